/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The words of memory that a part of a stack depends on. If they are unchanged, so is the part. In a loop most
 * parts are. With direct_map, the places of words in it are kept, so that no load waits for another. */
#pragma once

static __always_inline void begin_words(struct words *w)
{
	w->count = 0;
	w->placed = 0;
}

static __always_inline void note_word(struct words *w, u64 at, u64 word)
{
	u32 n = w->count;

	if (n < MAX_WORDS) {
		w->at[n] = at;
		w->word[n] = word;
	}
	w->count = n < MAX_WORDS ? n + 1 : MAX_WORDS + 1;
}

/* For parts that depend on anything else, or whose result is not kept. */
static __always_inline void never_compare(struct words *w)
{
	w->count = MAX_WORDS + 1;
}

#define SOME_WORDS 16
_Static_assert(MAX_WORDS % SOME_WORDS == 0, "words are compared in groups");

/* Finds the places of some words. After the last one, the first one repeats. */
__noinline int place_words(struct memory *m, struct words *w, enum stack_part part, u32 n)
{
	u64 *place;
	u32 to, of;

	if (!m || !w)
		return 0;
	place = m->places[part & (STACK_PARTS - 1)];
	for (u32 i = 0; i < SOME_WORDS; i++) {
		to = n + i;
		barrier_var(to); /* for its limit, which the verifier wants beside the use */
		if (to >= MAX_WORDS)
			return 0;
		of = to < w->count ? to : 0;
		w->word[to] = w->word[of];
		place[to] = kernel_address(m, w->at[of], sizeof(u64));
		if (!place[to])
			return 0;
	}
	return 1;
}

/* Returns whether some words, whose places are known, are unchanged. */
__noinline int same_words(struct memory *m, struct words *w, enum stack_part part, u32 n)
{
	u64 *place, *word;

	/* direct_map: load_kernel demands it */
	if (!m || !w || !direct_map || n > MAX_WORDS - SOME_WORDS)
		return 0;
	place = m->places[part & (STACK_PARTS - 1)] + n;
	word = w->word + n;
	barrier_var(place); /* else clang computes each address anew */
	barrier_var(word);
#pragma unroll
	for (u32 i = 0; i < SOME_WORDS; i++) {
		if (load_kernel(place[i]) != word[i])
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
		of = n + i;
		barrier_var(of); /* as in place_words */
		if (of >= MAX_WORDS || of >= w->count)
			return 1;
		if (!load_near(m, w->at[of], &word) || word != w->word[of])
			return 0;
	}
	return 1;
}

/* Returns whether all words are unchanged. */
__noinline int unchanged(struct memory *m, struct words *w, enum stack_part part)
{
	bool placed;

	if (!m || !w || w->count > MAX_WORDS)
		return 0;
	placed = w->placed == m->forgotten;
	for (u32 n = 0; n < MAX_WORDS; n += SOME_WORDS) {
		if (n >= w->count)
			break;
		if (!direct_map) {
			if (!same_copies(m, w, n))
				return 0;
		} else if ((!placed && !place_words(m, w, part, n)) || !same_words(m, w, part, n)) {
			return 0;
		}
	}
	w->placed = m->forgotten;
	return 1;
}
