/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records for user space: one for each message of the ring buffer. tracer/decode.go turns them
 * into events. A record that ends with a list is sent with the used part of it. */
#pragma once

/* The probe of a hit: the low byte of the attach cookie. Their names in Go are in
 * tracer/internal/libraries/probes.go. */
enum probe {
	PROBE_BUFFER_ALLOCATED = 1,
	PROBE_BUFFER_DEALLOCATE,
	PROBE_BANK_SHARDS,
	PROBE_ALLOCATOR_CLEAR,
	PROBE_DEVICE_READY,
	PROBE_CB_ALLOCATE,
	PROBE_CB_DEALLOCATE,
	PROBE_CB_INVALIDATE,
	PROBE_DFB_INVALIDATE,
	PROBE_PROGRAM_CBS,
	PROBE_PROGRAM_DFBS,
	PROBE_PROGRAM_SCRATCHPADS,
	PROBE_CB_MARK,
	PROBE_PROGRAM_DESTROY,
	PROBE_PROGRAM_COMPILED,
	PROBE_PROGRAM_CONFIGURE,
	PROBE_PROGRAM_BINARIES,
	PROBE_PROGRAM_TRACK,
	PROBE_VALIDATE_CB,
	PROBE_VALIDATE_DFB,
	PROBE_TRACE_BEGIN,
	PROBE_TRACE_END,
	PROBE_TRACE_REPLAY,
	PROBE_TRACE_RELEASE,
	PROBE_BANKS_SHRINK,
	PROBE_BANKS_RESET,
	PROBE_BUFFER_WRITE,
	PROBE_BUFFER_REPLICATE,
	PROBE_BUFFER_READ,
	PROBE_MARK, /* in any file of a process */
	/* the last ones are also in the files beside the library: see enum cookie */
	PROBE_EXCEPTION,
	PROBE_EXCEPTION_TEXT,
	PROBE_CATCH,
	PROBE_RETHROW,
	PROBE_RETHROW_EXCEPTION,
};

/* The other parts of the attach cookie. */
enum cookie {
	COOKIE_LIBRARY = 8,	 /* the bits from here on are the library's slot */
	COOKIE_BESIDE = 1 << 16, /* the file is not the library: the process says which one it has */
};
/* header.library of a process whose library has not been hit yet */
#define NO_LIBRARY 255

/* Upper bound, and a mask for the verifier. */
#define MAX_PROBES 64

enum record_kind {
	RECORD_ALLOC = 1,
	RECORD_FREE,
	RECORD_FAILED,
	RECORD_CLEAR,
	RECORD_DEVICE,
	RECORD_CB,
	RECORD_PROGRAM_END,
	RECORD_KERNEL,
	RECORD_EXEC,
	RECORD_EXIT,
	RECORD_NATIVE_STACK,
	RECORD_PYTHON_STACK,
	RECORD_CODE,
	RECORD_PROGRAM_SEEN,
	RECORD_STACK,	 /* a header only */
	RECORD_UNLOADED, /* a header only */
	RECORD_MARK,
	RECORD_ALLOC_PER_CORE,
	RECORD_PROGRAM_RUN,
	RECORD_CAUGHT,
	RECORD_BINARIES_LOADED,
	RECORD_TRACE,
	RECORD_BANKS,
	RECORD_TRANSFER,
};

/* Bytes of the Buffer that a record carries undecoded; user space knows the layout. */
#define BUFFER_WINDOW 96
/* of a mesh, on this host; and its entries, with those of other hosts: heap.MaxChips */
#define MAX_CHIPS 1024
#define MAX_ENTRIES 4096
#define MAX_RANGES 32
#define MAX_MESSAGE 1024
/* DRAM, L1, SYSTEM_MEMORY, L1_SMALL, TRACE: tt-metal's BufferType. */
#define BUFFER_TYPES 5

/* The call stack of an event: the ids of its two parts, 0 if there is none. */
struct stack_ids {
	u64 native, python;
};

struct header {
	u64 time_ns;
	u32 tgid;
	u32 tid;
	u64 exec_id; /* of the program that the process runs: see this_exec_id() */
	u8 kind;
	u8 library;
	u8 flags;
	u8 static_kind;
	u32 count;
	struct stack_ids stack;
};

/* The request to BankManager::allocate_buffer for a sharded buffer: size and page size of the
 * shards, including padding and alignment. */
struct shard_request {
	u64 size_bytes;
	u64 page_size_bytes;
	u64 shards; /* 0: the buffer is interleaved */
};

struct buffer_record {
	struct header h;
	u64 object;
	u64 unique_id;
	u64 device;
	u64 allocator;
	struct shard_request request;
	u8 window[BUFFER_WINDOW];
};

/* A buffer that the hybrid allocator placed on single cores: at a different address on each of
 * buffer.h.count cores. 0 cores: they could not be read. */
#define MAX_CORES 256
struct core_address {
	u32 x, y;
	u64 address;
};
struct per_core_record {
	struct buffer_record buffer;
	struct core_address cores[MAX_CORES];
};

/* header.flags */
enum free_flag {
	FREE_HOOKED = 1, /* a graph capture took the allocation: there is no memory */
	FREE_VIEW = 2,	 /* of a buffer that owns no memory */
};
struct free_record {
	struct header h;
	u64 object;
	u64 size_bytes, page_size_bytes, address;
	u32 type, sharding;
};

/* The host writes a buffer or reads it. header.flags: */
enum transfer_flag {
	TRANSFER_READ = 1,
};
struct transfer_record {
	struct header h;
	u64 object; /* the Buffer, or nothing of use if the MeshBuffer is a view */
	/* where it is; 0: not known */
	u64 address;
	u32 type, pad;
};

/* header.flags: what the thread was doing, according to the functions on its stack */
enum failed_flag {
	FAILED_ALLOCATE = 1,
	FAILED_VALIDATE_CBS = 2,
	FAILED_VALIDATE_DFBS = 4,
};
/* The number of Buffers to take from the stack. Remains of earlier calls look the same; the
 * message shows which one failed. */
#define FAILED_BUFFERS 4
struct failed_buffer {
	u64 object; /* 0: end of the list */
	u64 unique_id;
	u64 per_core; /* 1: the allocation was for single cores */
	u8 window[BUFFER_WINDOW];
};

struct failed_record {
	struct header h;
	struct shard_request request;
	struct failed_buffer buffers[FAILED_BUFFERS];
	u64 device; /* of the program */
	u64 program_id;
	u64 exception;
	u8 message[MAX_MESSAGE]; /* ends with 0 */
};

/* The library catches an exception. header.flags: */
enum caught_flag {
	CAUGHT_THROWN_AGAIN = 1, /* it throws it again */
};
struct caught_record {
	struct header h;
	u64 exception;
};

struct clear_record {
	struct header h;
	u64 allocator;
};

struct bank_info {
	u64 bytes_per_bank;
	u64 base; /* address of the first byte that can be allocated; 0: unknown */
	u32 banks;
	u32 alignment_bytes;	   /* of pages */
	u64 block_alignment_bytes; /* of the free list's blocks; 0: unknown */
	u64 shrunk_bytes;	   /* that the bank lacks at its beginning: base is behind them */
};

enum device_flag {
	DEVICE_MESH = 1,
	DEVICE_READY = 2,
};
struct device_record {
	struct header h; /* count: number of chips */
	u64 device;
	u64 impl; /* MeshDeviceImpl of a mesh; 0: none */
	u64 allocator;
	struct bank_info banks[BUFFER_TYPES];
	s32 chips[MAX_CHIPS];
};

/* A region of an allocator becomes smaller, to make room for the allocators of sub-devices, or gets its
 * first size again. */
enum banks_flag {
	BANKS_SHRINK = 1,
};
struct banks_record {
	struct header h;
	u64 allocator;
	u64 bytes; /* that each bank loses at its beginning */
	u32 type;
	u32 pad;
};

/* header.static_kind: what happens to a captured trace */
enum trace_step {
	TRACE_BEGIN = 1,
	TRACE_END,
	TRACE_REPLAY,
	TRACE_RELEASE,
};
struct trace_record {
	struct header h;
	u64 device; /* MeshDevice or MeshDeviceImpl */
	u32 id;
	u32 pad;
};

struct core_range {
	u16 x0, y0, x1, y1;
};

enum cb_flag {
	CB_GLOBAL = 1,
};
/* header.static_kind: what was placed in L1 */
enum static_kind {
	STATIC_CIRCULAR_BUFFER = 1,
	STATIC_DATAFLOW_BUFFER,
	STATIC_SCRATCHPAD,
};
struct cb_record {
	struct header h; /* count: number of ranges */
	u64 program_id;
	u64 device;
	u64 address;
	u64 size_bytes;
	struct core_range ranges[MAX_RANGES];
};

/* header.flags: what the program released */
enum program_flag {
	PROGRAM_CBS = 1,
	PROGRAM_DFBS = 2,
	PROGRAM_KERNELS = 4,
	PROGRAM_KNOWN = 8, /* of struct program only: the program was checked */
};
struct program_end_record {
	struct header h;
	u64 program_id;
};

/* A program is enqueued, either after it was compiled or from the program
 * cache. header.count: the number of uses. header.flags: */
enum uses_flag {
	USES_READ = 1,	     /* what the program uses is known, except for: */
	USES_TOO_MANY = 2,   /* what is beyond the limits */
	USES_UNREADABLE = 4, /* what could not be read */
	/* of a word: it is the address of a circular or dataflow buffer in a tensor, perhaps not the tensor's
	 * first; else it is an argument of a kernel */
	USE_STATIC = 1,
};
/* Words that may be addresses of buffers. */
#define MAX_USES 24
struct program_run {
	struct header h;
	u64 program_id;
	u64 device;
};
struct program_run_record {
	struct program_run run;
	u32 uses[MAX_USES];
};

/* A program that was compiled before the attach. flags: its memory, which user space reads from
 * the process. */
struct program_seen_record {
	struct header h;
	u64 program_id;
	u64 impl; /* ProgramImpl */
	u64 device;
};

/* header.flags: what the kernels of a program are for */
enum kernel_kind {
	KERNEL_WORKER, /* an operation */
	KERNEL_QUEUE,  /* the command queue */
	KERNEL_FABRIC, /* routers between chips */
	KERNEL_RUNTIME, /* one of these two */
	KERNEL_COMPILED, /* not known yet: the program is compiled, and not loaded */
};
struct kernel_record {
	struct header h;
	u64 program_id;
	u64 device;
	u64 binary_bytes;
	u64 text_bytes;
};

/* A moment that the process names; "" if the name could not be read. */
#define MAX_MARK_NAME 128
struct mark_record {
	struct header h;
	u8 name[MAX_MARK_NAME];
};

struct process_record {
	struct header h;
	s32 exit_code;
	u32 pad;
};

/* A native stack, innermost first: the probe's address, then addresses inside the calls.
 * generation is the state of the process's address space. */
#define MAX_FRAMES 128
struct native_record {
	struct header h;
	u64 id;
	u32 generation;
	u16 frames;
	u16 end; /* enum stack_end */
	u64 addresses[MAX_FRAMES];
};

/* Python frames, innermost first: the code object's id, and the offset of the current instruction
 * in its code. PYTHON_ENTRY: C code called this function, so it has a separate eval loop on the
 * native stack. */
enum python_flag {
	PYTHON_ENTRY = 1u << 31,
};
struct python_call {
	u32 code;
	u32 place;
};
struct python_record {
	struct header h;
	u64 id;
	u32 frames;
	u32 pad;
	struct python_call calls[MAX_FRAMES];
};

/* A code object: its strs as they are in memory, and its line table. Further records with this id
 * have the next parts of a large table, and no strs. */
#define MAX_NAME 256
#define MAX_FILE 768
#define MAX_TABLE 65536
#define TABLE_PART 4096
#define MAX_TEXTS 2048 /* for a name, a qualified name and a file: a power of two, for the verifier */
struct text {
	u32 state; /* of the str: bytes per character */
	u32 bytes;
};
struct code_record {
	struct header h; /* count: the bytes of the table before this part */
	u32 id;
	u32 minor;
	u32 first_line;
	u32 pad;
	struct text name, qualname, file;
	u8 data[MAX_TEXTS + TABLE_PART]; /* the three strs, and this part of the table */
};

/* Why a record could not be sent or was incomplete. */
enum lost_cause {
	LOST_RING_FULL,
	LOST_BUFFER_UNREADABLE,
	LOST_DEVICE_UNREADABLE,
	LOST_PROGRAM_UNREADABLE,
	LOST_MAP_FULL,
	LOST_NO_THREAD_STATE,
	LOST_TOO_MANY_OBJECTS,
	LOST_TOO_MANY_PROCESSES,
	LOST_TOO_MANY_CHIPS,
	LOST_UNLOADED, /* user space has to read the process's mappings again */
	LOST_OF_USER, /* any, of a user whose processes have too many losses to count separately */
	LOST_CAUSES,
};

/* How often, and when last, a process lost records for a cause. */
struct loss_key {
	u64 exec_id; /* 0: not known */
	u32 tgid;    /* 0: any of a user */
	u32 uid;     /* the user, if tgid is 0 */
	u32 cause;
	u32 pad;
};
struct loss {
	u64 count;
	u64 time_ns;
};
