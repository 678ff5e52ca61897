/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Native stacks: from a probe to the thread's start, by the unwind rows of the code. The
 * library keeps no frame pointers. */
#pragma once

/* How a native stack ended. */
enum stack_end {
	END_START,	   /* at the thread's start */
	END_TOO_DEEP,	   /* MAX_FRAMES frames were taken */
	END_NO_SPACE,	   /* user space does not know the process yet */
	END_NOT_MAPPED,	   /* an address outside all known code */
	END_NO_ROW,	   /* code without unwind rows, and no frame pointer */
	END_UNSUPPORTED,   /* a row that needs other registers than rsp and rbp */
	END_BAD_FRAME,	   /* a frame that is not above its callee */
	END_NOT_READABLE,  /* stack memory that is not resident */
	END_RING_FULL,	   /* no room in the ring buffer */
	END_NO_STATE,	   /* no memory for the thread's state */
	END_ONLY_PYTHON,   /* like END_TOO_DEEP, but the Python part is complete: in stack_ends only */
	/* and the Python part: */
	END_PYTHON_NONE, /* the thread runs no Python */
	END_PYTHON,	 /* at the outermost frame */
	END_PYTHON_TOO_DEEP,
	END_PYTHON_NO_SPACE,
	END_PYTHON_NOT_READABLE,
	END_PYTHON_BAD,
	END_PYTHON_NO_TABLE_ROOM,
	END_PYTHON_RING_FULL,
	STACK_ENDS,
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STACK_ENDS);
	__type(key, u32);
	__type(value, u64);
} stack_ends SEC(".maps");

static __always_inline void count_end(u32 end)
{
	u64 *n = bpf_map_lookup_elem(&stack_ends, &end);
	if (n)
		(*n)++;
}

#define MAX_UNWINDERS 16384
#define UNWINDERS_A_USER (MAX_UNWINDERS / 4)
#define KNOWN_ROWS 512
#define KNOWN_IDS 16
#define KNOWN_CODES 64
#define SCANNED_WORDS 16

struct known_row {
	u64 at;
	struct rule rule;
};
struct known_code {
	u64 code;
	u64 deaths;
	u64 entry; /* value in the table of objects */
};

/* The places of the words of a program that may be addresses of buffers: see uses.h. */
struct use_places {
	u64 exec_id; /* with impl: whose places these are */
	u64 impl;
	u32 count;
	u32 flags; /* of the record */
	u64 places[MAX_USES];
};
/* The record of a program's run, the places of its uses, and words of the target. */
#define SEARCHED_WORDS 32
struct uses {
	struct program_run_record run;
	struct use_places found;
	u32 words[SEARCHED_WORDS];
};

/* State for unwinding a thread. Not per CPU: a probe can be preempted. */
struct unwinder {
	/* The current frame: an address within its current call, or, for the innermost frame, the
	 * instruction itself. */
	u64 at, sp, bp;
	u64 bp_at; /* where bp was saved; 0: still in the register */
	u64 bp_lost;

	/* What the last native stack depends on: where it began, and words. */
	u64 begin_at, begin_sp, begin_bp;
	u32 bp_own;  /* bp is still the thread's register */
	u32 bp_used; /* and the walk has used it to find a frame */
	struct words words;
	/* The last Python stack depends on memory.python, and on no code object's death. */
	u64 python_deaths;

	u64 user;	 /* the user of the thread */
	u64 cache_epoch; /* slot is valid while none is added */
	u32 slot, generation;
	u32 inherited; /* as in struct process */
	u32 mapping; /* of the last searched row */
	u32 place;   /* in a search */
	u32 end, python_end;
	u32 texts; /* bytes of strs in record.code */
	struct memory memory;

	/* the addresses of a thread's slot for autoTSSkey */
	u64 thread_slot;
	u64 python_frame;
	struct object_key code; /* of that frame */
	u64 python_passed; /* an inner frame: finding it again means a cycle */

	u64 native_ids[KNOWN_IDS], python_ids[KNOWN_IDS];
	struct known_code codes[KNOWN_CODES];
	struct known_row rows[KNOWN_ROWS];
	struct native_record native;
	struct python_record python;
	/* Another record of the thread that is too large for its stack. */
	union {
		struct device_record device;
		struct per_core_record per_core;
		struct failed_record failed;
		struct cb_record cb;
		struct code_record code;
		struct uses uses;
		u64 words[SCANNED_WORDS]; /* of the thread's stack, in a search */
	} record;
};
/* By thread id, and by that with OF_FREES for the stacks of frees: both kinds of stacks alternate, and
 * each repeats. Task storage would fit better, but from Linux 6.19 on it takes no value of this
 * size. on_exit and on_exec delete entries. */
#define OF_FREES 0x80000000
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_UNWINDERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct unwinder);
} unwinders SEC(".maps");

/* Zeros to initialise a new entry with; too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwinder);
} new_unwinder SEC(".maps");

/* Functions that are not inlined are global and get their data as arguments, so that the verifier
 * checks each once. It requires checks for NULL, although the arguments never are NULL. */

static __noinline struct unwinder *new_thread(u32 tid)
{
	u64 id = user_id();
	struct user *user = find_user(id);
	struct unwinder *u;
	u32 zero = 0;

	u = bpf_map_lookup_elem(&new_unwinder, &zero);
	if (!user || user->threads >= UNWINDERS_A_USER || !u ||
	    bpf_map_update_elem(&unwinders, &tid, u, BPF_NOEXIST))
		return NULL;
	__sync_fetch_and_add(&user->threads, 1);
	u = bpf_map_lookup_elem(&unwinders, &tid);
	if (u)
		u->user = id;
	return u;
}

/* Returns the running thread's unwinder, for stacks of frees if of_frees is OF_FREES, else 0, with its
 * memory opened; NULL if there is no memory for it, or if too many threads have one. */
static __noinline struct unwinder *this_unwinder(u32 of_frees)
{
	u32 tid = (u32)bpf_get_current_pid_tgid() | of_frees;
	struct unwinder *u = bpf_map_lookup_elem(&unwinders, &tid);

	if (!u)
		u = new_thread(tid);
	if (u)
		open_memory(&u->memory);
	return u;
}

static __always_inline void drop_one(u32 tid)
{
	/* nearly all threads of the host have none, and the look-up takes no lock */
	struct unwinder *u = bpf_map_lookup_elem(&unwinders, &tid);
	struct user *user;
	u64 id;

	if (!u)
		return;
	id = u->user;
	if (bpf_map_delete_elem(&unwinders, &tid))
		return;
	user = bpf_map_lookup_elem(&users, &id);
	if (user && user->threads)
		__sync_fetch_and_sub(&user->threads, 1);
}

static __always_inline void drop_unwinders(u32 tid)
{
	drop_one(tid);
	drop_one(tid | OF_FREES);
}

/* The searches keep their position in memory: there the verifier knows the same about it after
 * each branch of a step, and has one case to check. */
#define PLACE(u) (*(volatile u32 *)&(u)->place)

/* Returns the mapping that contains an address; MAX_MAPPINGS if there is none. */
__noinline u32 find_mapping(struct unwinder *u, const struct space *s, u64 at)
{
	u32 place;

	if (!s || !u)
		return MAX_MAPPINGS;
	PLACE(u) = 0;
	for (u32 half = MAX_MAPPINGS / 2; half; half /= 2) {
		u32 next = PLACE(u) + half;

		if (next < s->count && s->mappings[next & (MAX_MAPPINGS - 1)].start <= at)
			PLACE(u) = next;
	}
	place = PLACE(u) & (MAX_MAPPINGS - 1);
	if (!s->count || at < s->mappings[place].start || at >= s->mappings[place].end)
		return MAX_MAPPINGS;
	return place;
}

/* Returns the number of the rule for an offset in a page, from the rows between two words; -1 if
 * there is none. */
__noinline int find_row(struct unwinder *u, u32 from, u32 to, u32 offset)
{
	struct chunk *c = chunk_at(from / CHUNK_WORDS);
	u32 base = from & ~(CHUNK_WORDS - 1);

	if (!u || !c || to <= from || c->words[from & (CHUNK_WORDS - 1)] >> 16 > offset)
		return -1;
	PLACE(u) = from;
	for (u32 half = CHUNK_WORDS / 2; half; half /= 2) {
		u32 next = PLACE(u) + half;

		/* the words after the last row of a chunk are larger than any row */
		if (next < to && next - base < CHUNK_WORDS &&
		    c->words[next & (CHUNK_WORDS - 1)] >> 16 <= offset)
			PLACE(u) = next;
	}
	return c->words[PLACE(u) & (CHUNK_WORDS - 1)] & 0xffff;
}

/* Looks up the rule for an address, and caches it. */
__noinline int learn_rule(struct unwinder *u, const struct space *s, u64 at)
{
	const struct mapping *m;
	struct rule *r, rule = {};
	struct known_row *k;
	u32 n, page, from, to;
	int number;

	if (!u || !s)
		return END_NO_SPACE;
	n = u->mapping;
	if (n >= MAX_MAPPINGS || at < s->mappings[n].start || at >= s->mappings[n].end) {
		n = find_mapping(u, s, at);
		if (n >= MAX_MAPPINGS)
			return END_NOT_MAPPED;
		u->mapping = n;
	}
	m = &s->mappings[n];
	rule.cfa = CFA_FRAME_POINTER;
	page = ((at - m->bias) >> PAGE_SHIFT) - m->first_page;
	if (m->index != NO_TABLE && page < m->pages) {
		if (!word_at(m->index + page, &from) || !word_at(m->index + page + 1, &to))
			return END_NO_SPACE;
		number = find_row(u, from, to, (at - m->bias) & ((1 << PAGE_SHIFT) - 1));
		n = number;
		if (number >= 0 && (r = bpf_map_lookup_elem(&rules, &n)) && r->cfa != CFA_NO_ROW)
			rule = *r;
	}
	k = &u->rows[(at ^ at >> 9) & (KNOWN_ROWS - 1)];
	k->at = at;
	k->rule = rule;
	return END_START;
}

static __always_inline bool caller_bp(struct unwinder *u, u64 *bp)
{
	u64 at = u->bp_at, value;

	if (at) {
		if (!read_near(&u->memory, at, &value))
			return false;
		note_word(&u->words, at, value);
		u->bp = value;
		u->bp_at = 0;
		u->bp_own = 0;
	}
	u->bp_used |= u->bp_own;
	*bp = u->bp;
	return true;
}

/* Returns whether an address is the return address of a signal handler: there the thread calls
 * rt_sigreturn (mov $15, %rax; syscall), and no call ends before it. */
static __always_inline bool returns_from_signal(u64 address)
{
	u64 code;

	return read_u64(address, &code) && code == 0x0f0000000fc0c748;
}

/* Code without rows: takes the frame that rbp would point to, if that is plausible. */
__noinline int frame_pointer_frame(struct unwinder *u)
{
	u64 bp, frame[2];

	if (!u || u->bp_lost || !caller_bp(u, &bp))
		return END_NO_ROW;
	if (bp & 7 || bp < u->sp || bp - u->sp > 1 << 20 ||
	    bpf_probe_read_user(frame, sizeof(frame), (void *)bp) ||
	    (!follows_call(frame[1]) && !returns_from_signal(frame[1])))
		return END_NO_ROW;
	u->at = frame[1] - 1;
	u->sp = bp + 16;
	u->bp = frame[0];
	u->bp_at = 0;
	return END_START;
}

/* Code without rows at a probe, which is at the start of a function: the return address is
 * on top of the stack, and rbp is still the caller's. */
__noinline int entered_frame(struct unwinder *u)
{
	u64 word;

	if (!u || !read_u64(u->sp, &word) || !follows_call(word))
		return END_NO_ROW;
	u->at = word - 1;
	u->sp += 8;
	return END_START;
}

/* Returns the frame's address by the rarer rules; 0 if it cannot be read. */
__noinline u64 rare_cfa(struct unwinder *u, u64 packed)
{
	u32 kind = packed & 0xff, offset = packed >> 32;
	u64 base, word;

	if (!u)
		return 0;
	base = u->sp;
	if (kind == CFA_PLT)
		return base + 8 + ((u->at & 15) >= offset ? 8 : 0);
	if (kind == CFA_DEREF_BP && (u->bp_lost || !caller_bp(u, &base)))
		return 0;
	if (!read_near(&u->memory, base + (s64)(s16)offset, &word))
		return 0;
	return word + (s64)(s16)(offset >> 16);
}

/* A signal's frame: the kernel saved the thread's registers there. */
__noinline int signal_frame(struct unwinder *u)
{
	u64 words[7]; /* rbp, rbx, rdx, rax, rcx, rsp, rip of struct sigcontext */

	if (!u || bpf_probe_read_user(words, sizeof(words), (void *)(u->sp + 120)))
		return END_NOT_READABLE;
	u->bp = words[0];
	u->bp_at = 0;
	u->bp_lost = 0;
	u->sp = words[5];
	u->at = words[6];
	return END_START;
}

/* The process has another state: drop cached rules. */
__noinline int forget_rows(struct unwinder *u, u32 generation)
{
	u32 zero = 0;
	struct unwinder *empty = bpf_map_lookup_elem(&new_unwinder, &zero);

	if (!u || !empty)
		return 0;
	/* copied, as the verifier would check each step of a loop */
	bpf_probe_read_kernel(u->rows, sizeof(u->rows), empty->rows);
	bpf_probe_read_kernel(u->codes, sizeof(u->codes), empty->codes);
	never_compare(&u->words);
	if (direct_map)
		never_compare(&u->memory.python);
	u->generation = generation;
	u->mapping = MAX_MAPPINGS;
	u->thread_slot = 0;
	return 0;
}

static __always_inline struct known_row *known_row(struct unwinder *u, u64 at)
{
	return &u->rows[(at ^ at >> 9) & (KNOWN_ROWS - 1)];
}

static __always_inline void add_frame(struct unwinder *u)
{
	u32 n = u->native.frames;

	u->native.addresses[n & (MAX_FRAMES - 1)] = u->at;
	u->native.frames = n + 1;
	u->native.id = mix(u->native.id, u->at);
}

/* Goes from a frame to its caller's, by all methods: STEP_ON, or how the stack ends here. */
#define STEP_ON STACK_ENDS
__noinline int step(struct unwinder *u, const struct space *s)
{
	u64 cfa, bp, word, packed;
	int end;

	if (!u || !s)
		return END_NO_SPACE;
	if (known_row(u, u->at)->at != u->at) {
		end = learn_rule(u, s, u->at);
		if (end != END_START)
			return end; /* not in code, so not a frame */
	}
	add_frame(u);
	packed = *(u64 *)&known_row(u, u->at)->rule;
	switch (packed & 0xff) {
	case CFA_SP:
		cfa = u->sp + (s64)((s64)packed >> 32);
		break;
	case CFA_BP:
		if (u->bp_lost)
			return END_UNSUPPORTED;
		if (!caller_bp(u, &bp))
			return END_NOT_READABLE;
		cfa = bp + (s64)((s64)packed >> 32);
		break;
	case CFA_END:
		return END_START;
	case CFA_SIGNAL:
		never_compare(&u->words);
		end = signal_frame(u);
		return end == END_START ? STEP_ON : end;
	case CFA_FRAME_POINTER:
		never_compare(&u->words);
		end = u->native.frames > 1 ? frame_pointer_frame(u) : entered_frame(u);
		return end == END_START ? STEP_ON : end;
	case CFA_PLT:
	case CFA_DEREF_SP:
	case CFA_DEREF_BP:
		never_compare(&u->words);
		cfa = rare_cfa(u, packed);
		break;
	default:
		return END_UNSUPPORTED;
	}
	if (cfa <= u->sp || cfa & 7)
		return END_BAD_FRAME;
	switch (packed >> 8 & 0xff) {
	case BP_AT_CFA:
		u->bp_at = cfa + (s64)(s16)(packed >> 16);
		u->bp_lost = 0;
		break;
	case BP_AT_BP:
		if (!caller_bp(u, &bp))
			u->bp_lost = 1;
		else
			u->bp_at = bp + (s64)(s16)(packed >> 16);
		break;
	case BP_LOST:
		u->bp_lost = 1;
		break;
	}
	if (!read_near(&u->memory, cfa - 8, &word))
		return END_NOT_READABLE;
	note_word(&u->words, cfa - 8, word);
	u->at = word - 1;
	u->sp = cfa;
	return STEP_ON;
}

/* Does the same for nearly all frames: the rule is cached, the stack memory was read, and
 * everything is plausible. Otherwise it changes nothing. */
static __always_inline bool quick_step(struct unwinder *u)
{
	struct known_row *k = known_row(u, u->at);
	u64 packed = *(u64 *)&k->rule, cfa = u->sp, word;

	if (k->at != u->at)
		return false;
	if ((packed & 0xff) == CFA_BP) {
		if (u->bp_at | u->bp_lost)
			return false;
		cfa = u->bp;
		u->bp_used |= u->bp_own;
	} else if ((packed & 0xff) != CFA_SP) {
		return false;
	}
	cfa += (s64)((s64)packed >> 32);
	if (cfa <= u->sp || cfa & 7)
		return false;
	if (!load_near(&u->memory, cfa - 8, &word))
		return false;
	if ((packed >> 8 & 0xff) == BP_AT_CFA) {
		u->bp_at = cfa + (s64)(s16)(packed >> 16);
		u->bp_lost = 0;
	} else if ((packed >> 8 & 0xff) != BP_SAME) {
		return false;
	}
	add_frame(u);
	note_word(&u->words, cfa - 8, word);
	u->at = word - 1;
	u->sp = cfa;
	return true;
}

/* The steps of one call: few, as the verifier checks each one. */
#define SOME_STEPS 8
__noinline int unwind_some(struct unwinder *u, const struct space *s)
{
	int end;

	if (!u || !s)
		return END_NO_SPACE;
	for (u32 i = 0; i < SOME_STEPS; i++) {
		if (u->native.frames >= MAX_FRAMES)
			return END_TOO_DEEP;
		if (!quick_step(u)) {
			end = step(u, s);
			if (end != STEP_ON)
				return end;
		}
	}
	return STEP_ON;
}

/* Returns whether the native stack is the same as the last one. */
static __always_inline bool same_stack(struct unwinder *u)
{
	return u->at == u->begin_at && u->sp == u->begin_sp && (!u->bp_used || u->bp == u->begin_bp) &&
	       unchanged(&u->memory, &u->words, NATIVE_PART);
}

/* Unwinds from u's frame to the thread's start. The state stays in memory, because the verifier
 * tracks registers too closely. */
__noinline int unwind(struct unwinder *u, const struct space *s, u64 seed)
{
	int end = STEP_ON;

	if (!u || !s)
		return END_NO_SPACE;
	if (same_stack(u))
		return u->end;
	u->begin_at = u->at;
	u->begin_sp = u->sp;
	u->begin_bp = u->bp;
	u->bp_own = 1;
	u->bp_used = 0;
	begin_words(&u->words);
	u->native.id = seed;
	u->native.frames = 0;
	for (u32 i = 0; i <= MAX_FRAMES / SOME_STEPS; i++) {
		if (end == STEP_ON)
			end = unwind_some(u, s);
	}
	if (end != END_START && end != END_TOO_DEEP)
		never_compare(&u->words); /* it ended at something unreadable or implausible */
	return end;
}
