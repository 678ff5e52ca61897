/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Maps, and reading the target's memory. */
#pragma once

#define RING_BYTES (32 << 20)
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LIBRARIES);
	__type(key, u32);
	__type(value, struct layout);
} layouts SEC(".maps");

/* The losses of processes by cause, since user space last took them out. If a process adds to a
 * count while user space takes it, only that addition may be lost. */
enum loss_limit {
	MAX_LOSSES = 16384,
	LOSSES_A_USER = MAX_LOSSES / 16, /* until user space takes them out */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LOSSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct loss_key);
	__type(value, struct loss);
} lost SEC(".maps");

/* The number of all losses, so that user space reads `lost` only after one; and the number of
 * losses for which `lost` had no room, so that their process is not known. */
u64 lost_records, lost_unattributed;

/* How often user space has taken the losses out. */
u64 lost_taken;

/* Processes that are traced, by tgid. */
enum process_limit {
	MAX_PROCESSES = 65536,
	PROCESSES_A_USER = MAX_PROCESSES / 4,
};
struct process {
	u64 user; /* the user whose share it uses; 0: user space added it, or its parent is followed */
	u64 exec_id; /* of the program that it runs now */
	u32 flags;
	u32 space; /* the slot of its address space; 0: not published yet */
	/* A child uses its parent's space as long as that has this state; 0: it has its own. */
	u32 inherited;
	u32 forgotten_code; /* how often user space has dropped code objects of Python */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct process);
} processes SEC(".maps");

/* The library that a process has mapped, for hits in the files beside it. */
struct home {
	u64 bias;
	u32 library;
	u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct home);
} homes SEC(".maps");

/* The result of a CPU's last hit, which the next hit can usually reuse. It is valid until a
 * process or allocator ends, which `cache_epoch` counts. Each word is complete in itself: a
 * process with the same addresses, such as a fork, may preempt a hit. */
struct recent {
	u64 process;   /* the last traced one: this_process() */
	u64 allocator; /* the last known one: pair_of() */
	u64 device;    /* the last known one, with its id: pair_of() */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct recent);
} recent SEC(".maps");

/* The number of processes and allocators that have ended. */
u64 cache_epoch;

/* What a thread is doing. */
enum phase {
	PHASE_NONE,
	PHASE_CBS,
	PHASE_DFBS,
	PHASE_SCRATCHPADS,
};
/* The search of a thread's stack for what it was doing when an exception was made. */
struct stack_scan {
	u64 at;	   /* the next word */
	u64 limit; /* of the search for Buffers */
	u64 bias;
	u64 call;  /* the return address to search for; 0: any that shows the work */
	u64 found; /* its place on the stack */
	u64 buffers[FAILED_BUFFERS];
	u32 library;
	u32 what; /* FAILED_* */
};
struct thread {
	struct shard_request request;
	u64 impl; /* ProgramImpl */
	u64 program_id;
	u64 device;
	u64 home;      /* what `homes` has from this thread: see home_key(); 0: nothing */
	u64 exception; /* the last one that was reported */
	u64 other;     /* the header of another one, if that was caught last */
	u32 phase;
	u32 kernel_pending;
	/* programs that were compiled since the last one was loaded, and are to be loaded next */
	u32 unloaded;
	u32 pad;
	/* where the program was compiled */
	struct stack_ids compiled;
	struct stack_scan scan;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* From Linux 6.13 on a uprobe program gets a separate stack for each CPU, because the
 * kernel assumes that it cannot be preempted. With kernel preemption it can: then another
 * thread's hit overwrites the stack, including pointers to kernel memory. A program with a
 * tail call uses the thread's stack instead. So each program with large frames has a tail
 * call that is never reached, and leads to no program. TestStackBelongsToThread checks the
 * machine code. */
#define KEEP_THREAD_STACK(ctx, never, none)                \
	do {                                               \
		if (never)                                 \
			bpf_tail_call(ctx, &(none), 0);    \
	} while (0)
#define NO_PROGRAMS(name)                                  \
	struct {                                           \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);     \
		__uint(max_entries, 1);                    \
		__type(key, u32);                          \
		__type(value, u32);                        \
	} name SEC(".maps")

/* Set before loading. */
volatile const bool only_listed; /* trace only what is in `processes` */
volatile const u32 own_tgid;	 /* ttmem itself is never traced */
volatile const u64 direct_map;	 /* where the kernel has physical address 0; 0: see memory.h */

/* Linux 6.2 and later. Weak, so that the object loads without it: user space then leaves
 * direct_map 0, and the verifier removes every call. So each use is behind a check of
 * direct_map that the verifier can decide. */
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __weak;

static __always_inline u64 load_kernel(u64 at)
{
	struct timespec64 *word =
		bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct timespec64));
	u64 value = word->tv_sec;

	/* otherwise clang would merge this load with later ones */
	barrier_var(value);
	return value;
}

/* A process's address space. Loaded as a number: at each load of a pointer that it trusts, the verifier searches
 * all types of the kernel by name, for 0.3 ms. */
static __always_inline struct mm_struct *space_of(const struct task_struct *task)
{
	return (struct mm_struct *)load_kernel((u64)&task->mm);
}

static __always_inline struct recent *last_hit(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&recent, &zero);
}

static __always_inline u64 mix(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

static __always_inline u64 this_process(u32 tgid)
{
	return cache_epoch << 32 | tgid;
}

static __always_inline u64 pair_of(u32 tgid, u64 device, u64 allocator)
{
	return mix(mix(mix(0, this_process(tgid)), device), allocator);
}

/* Identifies the program that a process runs: the number of its address space. The kernel gives each
 * address space another one until it is booted again, so that a process with a reused id, or after
 * an exec, has another one; only a vfork shares that of its parent, until its exec. */
static __always_inline u64 exec_id_of(const struct task_struct *task)
{
	return direct_map ? load_kernel((u64)&space_of(task)->context.ctx_id) : task->mm->context.ctx_id;
}

/* Global, so that the verifier checks it once. */
__noinline u64 this_exec_id(void)
{
	return exec_id_of(bpf_get_current_task_btf());
}

static __always_inline void fill_header(struct header *h, u8 kind, u8 library)
{
	u64 id = bpf_get_current_pid_tgid();

	h->time_ns = bpf_ktime_get_ns();
	h->tgid = id >> 32;
	h->tid = id;
	h->exec_id = this_exec_id();
	h->kind = kind;
	h->library = library;
	h->flags = 0;
	h->static_kind = 0;
	h->count = 0;
	h->stack.native = h->stack.python = 0;
}

static __always_inline bool read_u64(u64 at, u64 *value)
{
	return !bpf_probe_read_user(value, sizeof(*value), (void *)at);
}

static __always_inline bool read_u32(u64 at, u32 *value)
{
	return !bpf_probe_read_user(value, sizeof(*value), (void *)at);
}

/* Returns whether a call instruction ends right before an address. If not, a word with this value
 * on the stack is not a return address. Global, so that the verifier checks it once. */
__noinline int follows_call(u64 address)
{
	u8 code[7]; /* call rel32 is e8, and an indirect one ff /2 of 2 to 7 bytes */

	if (bpf_probe_read_user(code, sizeof(code), (void *)(address - sizeof(code))))
		return false;
	return code[2] == 0xe8 || (code[5] == 0xff && (code[6] & 0x38) == 0x10) ||
	       (code[4] == 0xff && (code[5] & 0x38) == 0x10) ||
	       (code[3] == 0xff && (code[4] & 0x38) == 0x10) ||
	       (code[1] == 0xff && (code[2] & 0x38) == 0x10) ||
	       (code[0] == 0xff && (code[1] & 0x38) == 0x10);
}
