/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A process's address space, for unwinding: the mapped code, its unwind rows and its CPython.
 * tracer/internal/stack fills it in. */
#pragma once

/* Unwind tables are sequences of 32-bit words, in chunks: chunk n has the words from n *
 * CHUNK_WORDS. Chunks are allocated in slabs of 4 MiB, as needed. A slab stays, and user
 * space writes to its chunks in place, because changing the map of slabs takes until all
 * running programs have ended. A chunk is written only while no process's space refers to
 * it. */
#define CHUNK_WORDS 4096
#define SLAB_CHUNKS 256
#define MAX_SLABS 32
struct chunk {
	u32 words[CHUNK_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SLABS);
	__type(key, u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, SLAB_CHUNKS);
		__type(key, u32);
		__type(value, struct chunk);
	});
} slabs SEC(".maps");

/* How to find the caller's frame: symbolize/unwind.Rule. */
enum cfa {
	CFA_NO_ROW,
	CFA_END,
	CFA_SP,
	CFA_BP,
	CFA_DEREF_SP,
	CFA_DEREF_BP,
	CFA_PLT,
	CFA_SIGNAL,
	CFA_UNSUPPORTED,
	/* used by the kernel side only: */
	CFA_FRAME_POINTER, /* code without rows */
};
enum caller_bp {
	BP_SAME,
	BP_AT_CFA,
	BP_AT_BP,
	BP_LOST,
};
struct rule {
	u8 cfa;
	u8 bp;
	s16 bp_offset;
	s32 cfa_offset;
};
enum rules_limit {
	MAX_RULES = 65536,
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_RULES);
	__type(key, u32);
	__type(value, struct rule);
} rules SEC(".maps");

/* Code that a process maps. Page p of the file's addresses, counted from first_page, has the rows
 * from words[index + p] to words[index + p + 1]. */
#define PAGE_SHIFT 12
enum table_index {
	NO_TABLE = 0xffffffff,
};
struct mapping {
	u64 start, end;
	u64 bias; /* address in the process minus address in the file */
	u32 index;
	u32 first_page;
	u32 pages;
	u32 pad;
};

/* Where a CPython keeps the data that a stack needs: symbolize/python.Runtime. */
struct python_offsets {
	u32 minor; /* 0: the process has no supported CPython */
	u32 thread_frame, cframe_frame;
	u32 frame_code, frame_previous, frame_instruction, frame_owner;
	u32 code_name, code_file, code_qualname, code_first_line, code_line_table, code_bytes;
	/* 0: all threads execute the instructions at code_bytes */
	u32 frame_copy, code_copies;
	u32 str_ascii, str_other, str_shift;
	/* added to the offsets of the fields that all versions have in common */
	u32 head;
	u32 key; /* of thread states, plus 1; 0: not known yet */
	u32 key_slots, pthread_specific, key_slot, key_data;
	u64 key_at; /* a struct Py_tss_t: an int, 1 once the key exists, and the key */
	u64 code_type;
};

#define MAX_MAPPINGS 1024
struct space {
	/* unique among all states of all processes */
	u32 generation;
	u32 count;
	struct python_offsets python;
	struct mapping mappings[MAX_MAPPINGS]; /* ascending */
};
#define MAX_SPACES 4096
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_SPACES);
	__type(key, u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__type(key, u32);
		__type(value, struct space);
	});
} spaces SEC(".maps");

static __always_inline struct space *space_at(u32 slot)
{
	u32 zero = 0;
	void *inner = bpf_map_lookup_elem(&spaces, &slot);

	return inner ? bpf_map_lookup_elem(inner, &zero) : NULL;
}

static __always_inline struct chunk *chunk_at(u32 n)
{
	u32 slab = n / SLAB_CHUNKS, chunk = n % SLAB_CHUNKS;
	void *inner = bpf_map_lookup_elem(&slabs, &slab);

	return inner ? bpf_map_lookup_elem(inner, &chunk) : NULL;
}

static __always_inline bool word_at(u32 at, u32 *word)
{
	struct chunk *c = chunk_at(at / CHUNK_WORDS);

	if (!c)
		return false;
	*word = c->words[at % CHUNK_WORDS];
	return true;
}
