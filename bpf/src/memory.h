/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The traced process's memory. Copying a word with a helper costs 75 to 110 ns here, mostly for
 * checks, and a stack takes fifty words. So words are loaded through the kernel's map of physical
 * memory, by the process's own page tables: 7 ns, or 1 ns if the page is cached. A load that
 * faults returns 0, which the kernel ensures. The helper reads pages that are not resident or not
 * in that map. If user space did not find the map, blocks of the stack are copied at each hit, as the
 * next words are close to each other, and the helper reads everything else. */
#pragma once

/* Set before loading. */
volatile const u64 frame_mask;	/* the physical address in an entry */
volatile const u32 table_levels; /* 4 or 5 levels of page tables */

#define PAGE_BYTES 4096
/* of an entry of a page table */
#define ENTRY_PRESENT 1
#define ENTRY_USER 4
#define ENTRY_LARGE 128

/* Pages of a process that a thread has read. They are valid until the kernel flushes TLB entries
 * of the process, which it does before it takes a page away. */
#define VIEWS 64
#define IS_VIEW (1ull << 63)
struct view {
	u64 page; /* its number and IS_VIEW */
	u64 at;	  /* its address in the kernel's map */
};
/* A copy takes 0.1 µs. Powers of two, for the verifier; a block is in one page. */
#define BLOCKS 8
#define BLOCK_BYTES 1024

/* The words of memory that a part of a stack depends on: see words.h. */
#define MAX_WORDS 256
struct words {
	u32 count; /* MAX_WORDS + 1: the part cannot be compared */
	u32 pad;
	u64 placed; /* memory.forgotten when the places of all were found; 0: they were not */
	u64 at[MAX_WORDS];
	u64 word[MAX_WORDS];
};
enum stack_part {
	NATIVE_PART,
	PYTHON_PART,
	STACK_PARTS,
};

struct memory {
	u64 space; /* the kernel's unique number of an address space */
	u64 flushes;
	u64 closed; /* the helper reads everything */
	u64 forgotten; /* how often pages were forgotten: at least once, before anything is read */
	union { /* either, so that an unwinder stays below 32 KiB: the kernel has few larger pieces of memory */
		struct {
			struct view views[VIEWS]; /* by the lowest bits of the page number */
			u64 places[STACK_PARTS][MAX_WORDS]; /* of words in the kernel's map */
			struct words python;
		};
		struct { /* without direct_map: copies of this hit, by the lowest bits of the block's number */
			u64 copied[BLOCKS]; /* the number and IS_VIEW */
			u8 blocks[BLOCKS * BLOCK_BYTES];
		};
	};
};

static __always_inline struct mm_struct *this_space(void)
{
	return space_of(bpf_get_current_task_btf());
}

/* The running process's top-level page table, loaded as a number: the verifier does not
 * allow arithmetic on kernel pointers. */
static __always_inline u64 first_table(void)
{
	return load_kernel((u64)&this_space()->pgd);
}

/* Number of TLB flushes of the running process. */
static __always_inline u64 flushes(void)
{
	return load_kernel((u64)&this_space()->context.tlb_gen);
}

/* One level of page tables: 0 if the process may not read there. */
static __always_inline u64 table_entry(u64 table, u64 at, u32 shift)
{
	u64 entry = load_kernel(table + (at >> shift & 511) * 8);

	return (entry & (ENTRY_PRESENT | ENTRY_USER)) == (ENTRY_PRESENT | ENTRY_USER) ? entry : 0;
}

/* The kernel's address for the page of an address in the running process. */
static __always_inline u64 kernel_page(u64 at, u64 map, u64 mask, u32 levels)
{
	u64 table = first_table(), entry;

	if (levels == 5) {
		entry = table_entry(table, at, 48);
		if (!entry)
			return 0;
		table = map + (entry & mask);
	}
	entry = table_entry(table, at, 39);
	if (!entry)
		return 0;
	entry = table_entry(map + (entry & mask), at, 30);
	if (!entry)
		return 0;
	if (entry & ENTRY_LARGE)
		return map + (entry & mask & ~((1ull << 30) - 1)) + (at & ((1ull << 30) - PAGE_BYTES));
	entry = table_entry(map + (entry & mask), at, 21);
	if (!entry)
		return 0;
	if (entry & ENTRY_LARGE)
		return map + (entry & mask & ~((1ull << 21) - 1)) + (at & ((1ull << 21) - PAGE_BYTES));
	entry = table_entry(map + (entry & mask), at, 12);
	return entry ? map + (entry & mask) : 0;
}

__noinline int forget_pages(struct memory *m)
{
	if (!m)
		return 0;
	for (u32 i = 0; i < VIEWS; i++)
		m->views[i].page = 0;
	m->forgotten++;
	return 0;
}

/* Call before reading memory. */
static __always_inline void open_memory(struct memory *m)
{
	u64 space, now;

	if (!direct_map) {
		for (u32 i = 0; i < BLOCKS; i++)
			m->copied[i] = 0;
		return;
	}
	space = load_kernel((u64)&this_space()->context.ctx_id);
	now = flushes();
	if (m->space == space && m->flushes == now && !m->closed)
		return;
	m->space = space;
	m->flushes = now;
	m->closed = 0;
	forget_pages(m);
}

/* The helper reads everything until the next open_memory. */
static __always_inline void close_memory(struct memory *m)
{
	m->closed = 1;
	forget_pages(m);
}

/* Returns whether everything read since open_memory belonged to the process all that time. */
static __always_inline bool same_memory(const struct memory *m)
{
	return !direct_map || flushes() == m->flushes;
}

/* Finds the page of an address; 0 if there is none. */
__noinline u64 find_page(struct memory *m, u64 at)
{
	struct view *v;
	u64 page, word;

	if (!m || m->closed || !direct_map || at >> (table_levels == 5 ? 56 : 47))
		return 0;
	page = kernel_page(at, direct_map, frame_mask, table_levels);
	if (!page)
		return 0;
	/* The kernel's map lacks pages of devices and secret memory; loads from there return 0. */
	if (!load_kernel(page + (at & (PAGE_BYTES - 8))) &&
	    bpf_probe_read_kernel(&word, sizeof(word), (void *)page))
		return 0;
	v = &m->views[at / PAGE_BYTES & (VIEWS - 1)];
	v->page = at / PAGE_BYTES | IS_VIEW;
	v->at = page;
	return page;
}

/* Returns the kernel's address of the bytes at an address; 0: read them with the helper. */
static __always_inline u64 kernel_address(struct memory *m, u64 at, u32 bytes)
{
	u64 number = at / PAGE_BYTES, offset = at & (PAGE_BYTES - 1), page;
	struct view *v = &m->views[number & (VIEWS - 1)];

	if (!direct_map || offset > PAGE_BYTES - bytes)
		return 0;
	page = v->at;
	if (v->page != (number | IS_VIEW)) {
		page = find_page(m, at);
		if (!page)
			return 0;
	}
	return page + offset;
}

/* Copies the block of an address. */
__noinline int copy_block(struct memory *m, u64 at)
{
	u64 number = at / BLOCK_BYTES, slot = number & (BLOCKS - 1);

	if (!m)
		return 0;
	m->copied[slot] = 0;
	if (bpf_probe_read_user(m->blocks + slot * BLOCK_BYTES, BLOCK_BYTES, (void *)(number * BLOCK_BYTES)))
		return 0;
	m->copied[slot] = number | IS_VIEW;
	return 1;
}

/* Loads a word without the helper, if that is possible: one that is close to others that are read. */
static __always_inline bool load_near(struct memory *m, u64 at, u64 *word)
{
	u64 number = at / BLOCK_BYTES, slot = number & (BLOCKS - 1), from;

	if (direct_map) {
		from = kernel_address(m, at, 8);
		if (!from)
			return false;
		*word = load_kernel(from);
		return true;
	}
	if (at & 7 || (m->copied[slot] != (number | IS_VIEW) && !copy_block(m, at)))
		return false;
	*word = *(u64 *)(m->blocks + (at & (BLOCKS * BLOCK_BYTES - 8)));
	return true;
}

/* Reads a word that is close to others that are read. */
static __always_inline bool read_near(struct memory *m, u64 at, u64 *word)
{
	return load_near(m, at, word) || read_u64(at, word);
}

/* Reads a word of the process's memory; m may be NULL. */
static __always_inline bool read_user(struct memory *m, u64 at, u64 *word)
{
	u64 from = m ? kernel_address(m, at, 8) : 0;

	if (!from)
		return read_u64(at, word);
	*word = load_kernel(from);
	return true;
}

/* Reads several words; m may be NULL. */
static __always_inline bool read_user_words(struct memory *m, u64 at, u64 *words, u32 n)
{
	u64 from = m ? kernel_address(m, at, n * 8) : 0;

	if (!from)
		return !bpf_probe_read_user(words, n * 8, (void *)at);
	for (u32 i = 0; i < n; i++)
		words[i] = load_kernel(from + 8 * i);
	return true;
}

/* Reads a word for a record. If the kernel took a page away meanwhile, the helper reads it again. m may
 * be NULL. Global, so that the verifier checks it once. */
__noinline int read_word(struct memory *m, u64 at, u64 *word)
{
	if (!word)
		return 0;
	return read_user(m, at, word) && (!m || same_memory(m) || read_u64(at, word));
}

struct four_words {
	u64 word[4];
};
__noinline int read_four(struct memory *m, u64 at, struct four_words *to)
{
	if (!to)
		return 0;
	return read_user_words(m, at, to->word, 4) &&
	       (!m || same_memory(m) || !bpf_probe_read_user(to, sizeof(*to), (void *)at));
}

/* Reads half a word; m may be NULL. */
static __always_inline bool read_user_half(struct memory *m, u64 at, u32 *value)
{
	u64 from = m ? kernel_address(m, at, sizeof(u64)) : 0;

	if (!from)
		return read_u32(at, value);
	*value = load_kernel(from);
	return true;
}

/* Reads half a word for a record. */
static __always_inline bool read_half(struct memory *m, u64 at, u32 *value)
{
	u64 word = 0;

	if ((at & (PAGE_BYTES - 1)) > PAGE_BYTES - sizeof(word))
		return read_u32(at, value); /* the other half is in the next page */
	if (!read_word(m, at, &word))
		return false;
	*value = word;
	return true;
}

/* Follows a chain from an object to the address of a field. */
static __always_inline bool follow(struct memory *m, u64 object, const struct chain *c, u64 *at)
{
	u64 a = object;

	if (!c->length || c->length > MAX_CHAIN)
		return false;
	for (u32 i = 0; i < MAX_CHAIN; i++) {
		a += (s64)(s32)c->offset[i];
		if (i + 1 >= c->length) {
			*at = a;
			return true;
		}
		if (!read_word(m, a, &a))
			return false;
	}
	return false;
}

/* Finds the constants. User space runs on_find_direct_map with the address of a page of random
 * words and the range of candidates; found is direct_map, or 0. */
struct find_direct_map {
	u64 page;
	u64 words[4]; /* the first words of the page */
	u64 mask;
	u32 levels;
	u32 from; /* the first candidate: GiB below the process's first page table */
	u64 found;
};
struct find_direct_map finding;

static __always_inline bool is_direct_map(u64 map)
{
	u64 at = kernel_page(finding.page, map, finding.mask, finding.levels);

	if (!at)
		return false;
	for (u32 k = 0; k < 4; k++) {
		if (load_kernel(at + 8 * k) != finding.words[k])
			return false;
	}
	return true;
}

/* The direct map begins at a multiple of 1 GiB, below each page of the kernel. One run tries a few
 * such addresses. */
enum direct_map_search {
	GIBIBYTES_A_RUN = 4,
};
SEC("raw_tp")
int on_find_direct_map(void *ctx)
{
	u64 begin = (first_table() & ~((1ull << 30) - 1)) - ((u64)finding.from << 30);

	finding.found = 0;
	for (u32 i = 0; i < GIBIBYTES_A_RUN; i++) {
		u64 map = begin - ((u64)i << 30);

		if (is_direct_map(map)) {
			finding.found = map;
			break;
		}
	}
	return 0;
}
