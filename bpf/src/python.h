/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Python stacks: the frames of the thread's CPython, from the newest outward, and their code
 * objects, each of which is reported once. */
#pragma once

/* The number of code objects that were reported or have died. */
u32 code_ids;
u64 code_deaths;

/* Frames with this owner or a larger one have no Python code. */
#define OWNER_C_STACK 3

/* Fields of CPython's objects, without python_offsets.head: the type, then the number of items, if
 * there are several. */
#define OBJECT_TYPE 8
#define OBJECT_SIZE 16
#define TYPE_FLAGS 168
#define TYPE_IS_BYTES (1UL << 27)
#define TYPE_IS_STR (1UL << 28)
#define BYTES_DATA 32

#define STR_STATE 32
#define STR_COMPACT 32 /* the characters follow the object */
#define STR_ASCII 64

/* Larger than any name, file name or line table. */
#define MAX_ITEMS (1 << 24)

/* Returns whether an object is a str or a bytes: the memory may contain anything. */
static __always_inline bool is_a(const struct python_offsets *p, u64 type, u64 flag)
{
	u64 flags;

	return read_u64(type + p->head + TYPE_FLAGS, &flags) && flags & flag;
}

/* Appends a str to a record: its state and its data, undecoded. False if it cannot be read. */
static __always_inline bool copy_text(const struct python_offsets *p, u64 at, struct text *t,
				      struct unwinder *u, u64 limit)
{
	u64 type, length, bytes, data, fields = at + p->head;
	u32 kind, state;

	if (!read_u64(fields + OBJECT_TYPE, &type) || !is_a(p, type, TYPE_IS_STR) ||
	    !read_u64(fields + OBJECT_SIZE, &length) || length > MAX_ITEMS ||
	    !read_u32(fields + STR_STATE, &state))
		return false;
	t->state = state >> (p->str_shift & 31);
	kind = t->state >> 2 & 7;
	data = at + (t->state & STR_ASCII ? p->str_ascii : p->str_other);
	if (!(t->state & STR_COMPACT)) { /* an instance of a subclass */
		if (!read_u64(at + p->str_other, &data))
			return false;
		t->state |= STR_COMPACT;
	}
	bytes = length * kind;
	if (bytes > limit)
		bytes = limit;
	t->bytes = bytes;
	u->texts += bytes;
	/* not needed after the call: Linux 6.1's verifier loses the limit of a saved value */
	barrier_var(bytes);
	if (bytes > limit)
		return false;
	return !bpf_probe_read_user(u->record.code.data + ((u->texts - t->bytes) & (MAX_TEXTS - 1)),
				    bytes, (void *)data);
}

/* Copies a code object without its table. False if a part of it cannot be read. */
static __always_inline bool fill_code(struct unwinder *u, const struct python_offsets *p, u64 code)
{
	struct code_record *r = &u->record.code;
	u64 at = 0;

	fill_header(&r->h, RECORD_CODE, 0);
	r->minor = p->minor;
	r->pad = 0;
	r->qualname.state = r->qualname.bytes = 0;
	u->texts = 0;
	if (!read_u32(code + p->code_first_line, &r->first_line) ||
	    !read_u64(code + p->code_name, &at) || !copy_text(p, at, &r->name, u, MAX_NAME))
		return false;
	if (p->code_qualname != NO_FIELD &&
	    (!read_u64(code + p->code_qualname, &at) || !copy_text(p, at, &r->qualname, u, MAX_NAME)))
		return false;
	return read_u64(code + p->code_file, &at) && copy_text(p, at, &r->file, u, MAX_FILE);
}

/* Sends a code object with the next part of its table, whose fields lie from table on; sets
 * u->python_end if that failed. */
__noinline int send_code(struct unwinder *u, u64 table, u64 bytes)
{
	struct code_record *r;
	u64 texts;

	if (!u)
		return 0;
	r = &u->record.code;
	texts = u->texts & (MAX_TEXTS - 1);
	if (bytes > TABLE_PART)
		bytes = TABLE_PART;
	if (bpf_probe_read_user(r->data + texts, bytes, (void *)(table + BYTES_DATA + r->h.count))) {
		/* A page may be moving; the next stack tries again. */
		u->python_end = END_PYTHON_NOT_READABLE;
		return 0;
	}
	texts = u->texts & (MAX_TEXTS - 1);
	if (!try_send(r, SIZE_WITH(r, data, texts + bytes), sizeof(*r))) {
		u->python_end = END_PYTHON_RING_FULL;
		return 0;
	}
	r->h.count += TABLE_PART;
	r->name.bytes = r->qualname.bytes = r->file.bytes = 0;
	u->texts = 0;
	return 1;
}

/* Reports a complete code object to user space; 0 if that failed. A frame without a name or with
 * the wrong line would be misleading. id: that with which it was reported before; 0: it was not. */
__noinline u64 report_code(struct unwinder *u, const struct space *s, u64 code, u32 id)
{
	const struct python_offsets *p;
	u64 type = 0, table = 0, bytes = 0, size = 0;

	if (!u || !s)
		return 0;
	p = &s->python;
	if (!read_u64(code + p->head + OBJECT_TYPE, &type) || type != p->code_type) {
		u->python_end = END_PYTHON_BAD;
		return 0;
	}
	u->python_end = END_PYTHON_NOT_READABLE;
	if (!read_u64(code + p->code_line_table, &table))
		return 0;
	table += p->head;
	if (!read_u64(table + OBJECT_TYPE, &type) || !is_a(p, type, TYPE_IS_BYTES) ||
	    !read_u64(table + OBJECT_SIZE, &bytes) || bytes > MAX_ITEMS || !fill_code(u, p, code))
		return 0;
	/* the code objects of 3.10 lack their length */
	if (p->minor < 11 || !read_u64(code + p->head + OBJECT_SIZE, &size) || size > MAX_ITEMS / 2)
		size = MAX_ITEMS / 2;
	if (!id)
		id = __sync_fetch_and_add(&code_ids, 1) + 1;
	u->record.code.id = id;
	for (u32 i = 0; i < MAX_TABLE / TABLE_PART; i++) {
		if (i && bytes <= i * TABLE_PART)
			break;
		if (!send_code(u, table, bytes - i * TABLE_PART))
			return 0;
	}
	u->python_end = END_PYTHON_NONE;
	return size * 2 << 32 | id;
}

/* Returns the address of the thread's CPython thread state: pthread's slot for CPython's key. 0 if
 * the thread has none. */
__noinline u64 find_thread_slot(struct space *s)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 fs = task->thread.fsbase, block = 0, tss = 0;
	u32 key;

	if (!s || !s->python.key_slots)
		return 0;
	if (!s->python.key) {
		if (!read_u64(s->python.key_at, &tss) || (u32)tss != 1)
			return 0; /* its first thread has not begun to run Python */
		s->python.key = (tss >> 32) + 1;
	}
	key = s->python.key - 1;
	if (!read_u64(fs + s->python.pthread_specific + 8 * (u64)(key / s->python.key_slots), &block) ||
	    !block)
		return 0;
	return block + key % s->python.key_slots * s->python.key_slot + s->python.key_data;
}

/* Notes a word that the Python part depends on: see walk_python. */
static __always_inline void note_python(struct unwinder *u, u64 at, u64 word)
{
	if (direct_map)
		note_word(&u->memory.python, at, word);
}

__noinline u64 newest_frame(struct unwinder *u, struct space *s)
{
	u64 thread = 0, frame = 0, at;

	if (!u || !s)
		return 0;
	if (!u->thread_slot)
		u->thread_slot = find_thread_slot(s);
	if (!u->thread_slot || !read_user(&u->memory, u->thread_slot, &thread) || !thread)
		return 0;
	note_python(u, u->thread_slot, thread);
	if (!read_user(&u->memory, thread + s->python.thread_frame, &frame)) {
		u->python_end = END_PYTHON_NOT_READABLE;
		return 0;
	}
	note_python(u, thread + s->python.thread_frame, frame);
	if (s->python.cframe_frame != NO_FIELD) {
		at = frame + s->python.cframe_frame;
		if (!frame || !read_user(&u->memory, at, &frame)) {
			u->python_end = END_PYTHON_NOT_READABLE;
			return 0;
		}
		note_python(u, at, frame);
	}
	return frame;
}

/* Returns how often user space has dropped code objects of the running process. */
static __noinline u32 forgotten_code(void)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	return p ? p->forgotten_code : 0;
}

/* Returns the id of the running code, and reports the code if needed. */
static __always_inline u64 code_entry(struct unwinder *u, const struct space *s, u64 code)
{
	struct known_code *k = &u->codes[(code >> 4 ^ code >> 10) & (KNOWN_CODES - 1)];
	u64 deaths = code_deaths;
	struct object *known;
	u32 forgotten;
	u64 entry;

	/* 0 is an entry that was forgotten */
	if (code && k->code == code && k->deaths == deaths)
		return k->entry;
	forgotten = forgotten_code();
	u->code = key_of(OBJECT_CODE, code);
	known = find_object(&u->code);
	if (known && known->holds == forgotten) {
		entry = known->value;
	} else {
		entry = report_code(u, s, code, known ? known->value : 0);
		if (!entry)
			return 0;
		/* Known from now on: a record with this id is on its way. */
		if (!(known && change_object(&u->code, entry, forgotten)) && !add_object(&u->code, entry, forgotten)) {
			u->python_end = END_PYTHON_NO_TABLE_ROOM;
			return 0;
		}
		/* If another thread has reported it meanwhile, its id counts: else one call would have two. */
		known = find_object(&u->code);
		if (known)
			entry = known->value;
	}
	k->code = code;
	k->deaths = deaths;
	k->entry = entry;
	return entry;
}

/* Returns how far an address lies from the start of the copy of the code that a frame executes; 1,
 * where no instruction is, if it cannot be read. In a free-threaded build since 3.14, each thread
 * has copies of its own. */
__noinline u64 place_in_copy(const struct space *s, u64 code, u64 frame, u64 at)
{
	u64 copies = 0, count = 0, start = 0;
	u32 n = 0;

	if (!s || !read_u32(frame + s->python.frame_copy, &n) ||
	    !read_u64(code + s->python.code_copies, &copies) || !read_u64(copies, &count) ||
	    n >= count || !read_u64(copies + 8 + 8 * (u64)n, &start))
		return 1;
	return at - start;
}

/* Reads one Python frame: returns STEP_ON, or how the stack ends here. */
__noinline int python_step(struct unwinder *u, const struct space *s)
{
	u64 frame, code, at, marker, entry;
	u64 owner = 1;
	u32 n, place;

	if (!u || !s)
		return END_PYTHON_NONE;
	frame = u->python_frame;
	if (!frame)
		return END_PYTHON;
	n = u->python.frames;
	if (frame & 7 || !read_near(&u->memory, frame + s->python.frame_code, &code) ||
	    !read_near(&u->memory, frame + s->python.frame_instruction, &at) ||
	    !read_near(&u->memory, frame + s->python.frame_previous, &u->python_frame))
		return END_PYTHON_NOT_READABLE;
	note_python(u, frame + s->python.frame_instruction, at);
	note_python(u, frame + s->python.frame_previous, u->python_frame);
	if (s->python.minor >= 11) { /* the instruction's address tells which code it is of */
		marker = s->python.frame_owner;
		if (!read_near(&u->memory, frame + (marker & ~7ull), &owner))
			return END_PYTHON_NOT_READABLE;
		note_python(u, frame + (marker & ~7ull), owner);
		owner = owner >> (marker & 7) * 8 & 0xff;
	} else {
		note_python(u, frame + s->python.frame_code, code);
	}
	if (s->python.minor >= 12 && owner >= OWNER_C_STACK) {
		/* not a Python frame: C code called the previous one */
		if (n && !(u->python.calls[(n - 1) & (MAX_FRAMES - 1)].place & PYTHON_ENTRY)) {
			u->python.calls[(n - 1) & (MAX_FRAMES - 1)].place |= PYTHON_ENTRY;
			u->python.id = mix(u->python.id, PYTHON_ENTRY);
		}
		return STEP_ON;
	}
	if (n >= MAX_FRAMES)
		return END_PYTHON_TOO_DEEP;
	/* 3.14 has reference counting flags in the low bits */
	code &= ~7ull;
	/* in bytes from the start of the code; negative before the first instruction */
	if (s->python.code_copies)
		at = place_in_copy(s, code, frame, at);
	else if (s->python.minor >= 11)
		at -= code + s->python.code_bytes;
	else
		at = (s32)at * 2; /* 3.10 counts units of two bytes */
	entry = code_entry(u, s, code);
	if (!entry)
		return u->python_end;
	if (at + 2 >= (entry >> 32) + 2 || at & 1)
		return END_PYTHON_BAD;
	place = at;
	place &= ~PYTHON_ENTRY;
	if (s->python.minor < 12 && owner)
		place |= PYTHON_ENTRY;
	/* Linux 6.1's verifier has lost the fact that n is below MAX_FRAMES, and clang would
	 * remove a check without effect */
	barrier_var(n);
	n &= MAX_FRAMES - 1;
	u->python.calls[n].code = entry;
	u->python.calls[n].place = place;
	u->python.frames = n + 1;
	u->python.id = mix(u->python.id, entry << 32 | place);
	return STEP_ON;
}

/* Reads the frames of the thread's Python: returns how they end. */
static __always_inline int python_frames(struct unwinder *u, struct space *s)
{
	int end;

	if (!s->python.minor)
		return END_PYTHON_NONE;
	if (u->inherited)
		return END_PYTHON_NO_SPACE; /* the deaths of its code objects are not reported yet */
	u->python_frame = newest_frame(u, s);
	if (!u->python_frame)
		return u->python_end;
	/* one more for each frame that stands for C code */
	for (u32 i = 0; i < 2 * MAX_FRAMES + 1; i++) {
		if (i && u->python_frame == u->python_passed) {
			u->python.frames = 0; /* a cycle of frames is not a stack */
			return END_PYTHON_BAD;
		}
		if (!(i & (i - 1)))
			u->python_passed = u->python_frame;
		end = python_step(u, s);
		if (end != STEP_ON)
			return end;
	}
	return END_PYTHON_TOO_DEEP;
}

/* Reads the Python part of the thread's stack, or finds that it is the same as the last one: returns how it ends. */
__noinline int walk_python(struct unwinder *u, struct space *s, u64 seed)
{
	int end;

	if (!u || !s)
		return END_PYTHON_NONE;
	/* without direct_map, to compare would take as long as to read */
	if (direct_map) {
		if (u->python_deaths == code_deaths && unchanged(&u->memory, &u->memory.python, PYTHON_PART))
			return END_PYTHON;
		u->python_deaths = code_deaths;
		begin_words(&u->memory.python);
	}
	u->python.frames = 0;
	u->python.id = seed;
	u->python_end = END_PYTHON_NONE;
	end = python_frames(u, s);
	if (direct_map && (end != END_PYTHON || s->python.code_copies)) /* place_in_copy reads more words */
		never_compare(&u->memory.python);
	return end;
}

/* code_dealloc(PyCodeObject *): another object may take its address. */
SEC("uprobe.multi")
int on_code_dealloc(struct pt_regs *ctx)
{
	struct object_key key = key_of(OBJECT_CODE, ctx->di);

	if (remove_object(&key))
		__sync_fetch_and_add(&code_deaths, 1);
	return 0;
}
