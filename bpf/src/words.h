/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The words of memory that a part of a stack depends on. If they are unchanged, so is the part. In a loop most
 * parts are, and comparing takes a fifth of the time of reading them again: every word's place is known, and no
 * load waits for another. */
#pragma once

#define MAX_WORDS 256
struct words {
	u32 count; /* MAX_WORDS + 1: too many, or the part depends on anything else */
	u32 pad;
	u64 found; /* how often pages had been forgotten when each `from` was found */
	u64 at[MAX_WORDS];
	struct {
		u64 word;
		u64 from; /* where it is in the kernel's map */
	} list[MAX_WORDS];
};

static __always_inline void begin_words(struct words *w)
{
	w->count = 0;
	w->found = 0;
}

static __always_inline void note_word(struct words *w, u64 at, u64 word)
{
	u32 n = w->count;

	if (n < MAX_WORDS) {
		w->at[n] = at;
		w->list[n].word = word;
	}
	w->count = n < MAX_WORDS ? n + 1 : MAX_WORDS + 1;
}

/* For parts that depend on anything else. */
static __always_inline void never_compare(struct words *w)
{
	w->count = MAX_WORDS + 1;
}

#define SOME_WORDS 16
/* Finds where some words are. After the last one, the first one repeats. */
__noinline int find_words(struct memory *m, struct words *w, u32 n)
{
	u32 to, of;

	if (!m || !w)
		return 0;
	for (u32 i = 0; i < SOME_WORDS; i++) {
		to = (n + i) & (MAX_WORDS - 1);
		of = to < w->count ? to : 0;
		w->list[to].word = w->list[of].word;
		w->list[to].from = kernel_address(m, w->at[of], sizeof(u64));
		if (!w->list[to].from)
			return 0;
	}
	return 1;
}

/* Returns whether some words are unchanged, which were found. */
__noinline int same_words(struct words *w, u32 n)
{
	typeof(&w->list[0]) some;

	if (!w || !direct_map) /* as load_kernel demands it */
		return 0;
	some = &w->list[n & (MAX_WORDS - SOME_WORDS)];
	barrier_var(some); /* else clang computes each address anew */
#pragma unroll
	for (u32 i = 0; i < SOME_WORDS; i++) {
		if (load_kernel(some[i].from) != some[i].word)
			return 0;
	}
	return 1;
}

/* The same without direct_map. */
__noinline int same_copies(struct memory *m, struct words *w, u32 n)
{
	u64 word;
	u32 of;

	if (!m || !w)
		return 0;
	for (u32 i = 0; i < SOME_WORDS; i++) {
		of = (n + i) & (MAX_WORDS - 1);
		if (n + i >= w->count)
			return 1;
		if (!load_near(m, w->at[of], &word) || word != w->list[of].word)
			return 0;
	}
	return 1;
}

/* Returns whether all words are unchanged. */
__noinline int unchanged(struct memory *m, struct words *w)
{
	bool found;

	if (!m || !w || w->count > MAX_WORDS)
		return 0;
	found = w->found == m->forgotten;
	for (u32 n = 0; n < MAX_WORDS; n += SOME_WORDS) {
		if (n >= w->count)
			break;
		if (direct_map ? (!found && !find_words(m, w, n)) || !same_words(w, n) : !same_copies(m, w, n))
			return 0;
	}
	w->found = m->forgotten;
	return 1;
}
