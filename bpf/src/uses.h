/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a program uses: the words among the arguments of its kernels that may be addresses of buffers, and the
 * addresses of its circular and dataflow buffers that lie in tensors. User space knows which words are addresses
 * of live buffers. The first run of a program searches all arguments, and remembers where it found words. They
 * stay there while the program exists, so that later runs read only these. */
#pragma once

/* Below these are the firmware's data and the kernels; buffers are aligned to at least so many bytes. */
#define LEAST_ADDRESS 0x18000
#define ADDRESS_ALIGNMENT 16

/* The limits of a search. The kernels of a core type begin with the buffers: no address was seen behind the
 * 18th of at most 179 words. */
#define SEARCHED_KERNELS 16
#define SEARCHED_BUFFERS 64
#define SEARCHED_CORES 1024 /* in x and in y */

/* libstdc++'s std::unordered_map<u32, std::shared_ptr<Kernel>>: its size, its first node, and in a node the next
 * one and the Kernel */
#define KERNEL_MAP_BYTES 56
#define KERNEL_MAP_FIRST 16
#define KERNEL_NODE_NEXT 0
#define KERNEL_NODE_KERNEL 16
/* std::set<CoreCoord>: its first node, the number of nodes, and x and y in a node */
#define CORE_SET_FIRST 24
#define CORE_SET_COUNT 40
#define CORE_NODE_X 32
#define CORE_NODE_Y 40
/* std::vector<std::vector<RuntimeArgsData>> by x and by y; RuntimeArgsData is u32 *words, u64 count */
#define VECTOR_BYTES 24
#define ARGUMENTS_BYTES 16
#define SHARED_PTR_BYTES 16

/* A place of a word: the address of a RuntimeArgsData and, from this bit on, the word's index; or the address
 * of the word itself, with the index NO_INDEX. The library may move the words that a RuntimeArgsData points to. */
#define PLACE_INDEX 58
#define PLACE_ADDRESS ((1ull << PLACE_INDEX) - 1)
#define NO_INDEX 63ull
struct program_key {
	u64 exec_id;
	u64 program_id;
};

/* The known places. Programs that did not run for long make room for others. A user adds at most a quarter in
 * a minute, so that the places of others stay; the arguments of further programs are searched each time. */
enum uses_limit {
	MAX_USE_PLACES = 16384,
	USE_PLACES_A_USER = MAX_USE_PLACES / 4,
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_USE_PLACES);
	__type(key, struct program_key);
	__type(value, struct use_places);
} use_places SEC(".maps");

volatile const bool read_uses; /* set before loading */

/* Notes that the record lacks a part of what its program uses. */
static __always_inline void lack_uses(struct unwinder *u, u8 why) { u->record.uses.run.run.h.flags |= why; }

/* Adds a word to u's record, if it may be an address. The number of words is read from memory each time, where
 * the verifier does not track it: else it would check all combinations of words. */
static __always_inline void add_use(struct unwinder *u, u32 word, u64 place)
{
	struct uses *to = &u->record.uses;
	u32 n = *(volatile u32 *)&to->run.run.h.count;

	if (word < LEAST_ADDRESS || word % ADDRESS_ALIGNMENT)
		return;
	if (place >> PLACE_INDEX == NO_INDEX)
		word |= USE_STATIC;
	if (n >= MAX_USES) {
		lack_uses(u, USES_TOO_MANY);
		return;
	}
	to->run.uses[n] = word;
	to->found.places[n] = place;
	to->run.run.h.count = n + 1;
}

/* The same for a search. Global, so that the verifier checks it once. */
__noinline int add_found(struct unwinder *u, u32 word, u64 place)
{
	if (u)
		add_use(u, word, place);
	return 0;
}

/* Searches a RuntimeArgsData. */
__noinline int search_words(struct unwinder *u, u64 arguments)
{
	u64 data = 0, count = 0;
	struct uses *to;

	if (!u)
		return 0;
	to = &u->record.uses;
	if (!read_word(&u->memory, arguments, &data) || !read_word(&u->memory, arguments + 8, &count)) {
		lack_uses(u, USES_UNREADABLE);
		return 0;
	}
	if (count > SEARCHED_WORDS)
		count = SEARCHED_WORDS;
	if (bpf_probe_read_user(to->words, count * sizeof(u32), (void *)data)) {
		lack_uses(u, USES_UNREADABLE);
		return 0;
	}
	for (u64 i = 0; i < SEARCHED_WORDS && i < count; i++)
		add_found(u, to->words[i], (arguments & PLACE_ADDRESS) | i << PLACE_INDEX);
	return 0;
}

/* Finds the RuntimeArgsData of a kernel's first core, on which it has arguments if it has any; 0 if it has none.
 * Returns whether everything could be read. */
static __always_inline bool find_arguments(struct memory *m, const struct layout *l, u64 kernel, u64 *arguments)
{
	u64 cores = kernel + l->kernel_cores, node = 0, count = 0, x = 0, y = 0, begin = 0, end = 0;

	*arguments = 0;
	if (!read_word(m, cores + CORE_SET_COUNT, &count))
		return false;
	if (!count)
		return true;
	if (!read_word(m, cores + CORE_SET_FIRST, &node) || !read_word(m, node + CORE_NODE_X, &x) ||
	    !read_word(m, node + CORE_NODE_Y, &y) || !read_word(m, kernel + l->kernel_arguments, &begin) ||
	    !read_word(m, kernel + l->kernel_arguments + 8, &end) || x >= SEARCHED_CORES || y >= SEARCHED_CORES)
		return false;
	node = begin + x * VECTOR_BYTES;
	if (node + VECTOR_BYTES > end)
		return true;
	if (!read_word(m, node, &begin) || !read_word(m, node + 8, &end))
		return false;
	begin += y * ARGUMENTS_BYTES;
	if (begin + ARGUMENTS_BYTES <= end)
		*arguments = begin;
	return true;
}

__noinline int search_kernel(struct unwinder *u, u32 library, u64 kernel)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 arguments = 0;

	if (!u || !l)
		return 0;
	if (!find_arguments(&u->memory, l, kernel, &arguments))
		lack_uses(u, USES_UNREADABLE);
	if (arguments)
		search_words(u, arguments);
	search_words(u, kernel + l->kernel_common_arguments);
	return 0;
}

/* Searches the kernels of a program: a map for each type of core. */
__noinline int search_kernels(struct unwinder *u, u32 library, u64 maps)
{
	u64 begin = 0, end = 0, node = 0, kernel = 0;
	struct memory *m;
	u32 i;

	if (!u)
		return 0;
	m = &u->memory;
	if (!read_word(m, maps, &begin) || !read_word(m, maps + 8, &end))
		begin = 0, end = 1;
	for (i = 0; i < SEARCHED_KERNELS + MAX_CORE_TYPES; i++) {
		if (!node && begin >= end)
			break;
		if (!node) {
			if (!read_word(m, begin + KERNEL_MAP_FIRST, &node))
				break;
			begin += KERNEL_MAP_BYTES;
			continue;
		}
		if (!read_word(m, node + KERNEL_NODE_KERNEL, &kernel) || !read_word(m, node + KERNEL_NODE_NEXT, &node))
			break;
		search_kernel(u, library, kernel);
	}
	if (node || begin < end)
		lack_uses(u, i < SEARCHED_KERNELS + MAX_CORE_TYPES ? USES_UNREADABLE : USES_TOO_MANY);
	return 0;
}

/* Searches a circular or dataflow buffer: one with the flag lies in a tensor, and has its address. Returns whether
 * it could be read. */
__noinline int search_buffer(struct unwinder *u, u64 at, u32 flag, u32 address)
{
	u64 buffer = 0, in_tensor = 0;
	struct memory *m;
	u32 word = 0;

	if (!u)
		return 0;
	m = &u->memory;
	if (!read_word(m, at, &buffer) || !read_word(m, buffer + flag, &in_tensor) ||
	    !read_half(m, buffer + address, &word))
		return 0;
	if (in_tensor & 0xff)
		add_found(u, word, ((buffer + address) & PLACE_ADDRESS) | NO_INDEX << PLACE_INDEX);
	return 1;
}

/* Searches a vector of shared_ptr of circular or dataflow buffers. */
__noinline int search_buffers(struct unwinder *u, u64 vector, u32 flag, u32 address)
{
	u64 begin = 0, end = 0;
	u32 i;

	if (!u)
		return 0;
	if (!read_word(&u->memory, vector, &begin) || !read_word(&u->memory, vector + 8, &end))
		begin = 0, end = 1;
	for (i = 0; i < SEARCHED_BUFFERS && begin < end; i++) {
		if (!search_buffer(u, begin, flag, address))
			break;
		begin += SHARED_PTR_BYTES;
	}
	if (begin < end)
		lack_uses(u, i < SEARCHED_BUFFERS ? USES_UNREADABLE : USES_TOO_MANY);
	return 0;
}

/* Reads the words at some known places: few, as the verifier checks each one. The kernel may take a page away
 * meanwhile: see add_uses. */
#define SOME_PLACES 8
__noinline int read_places(struct unwinder *u, const struct use_places *known, u32 first)
{
	u64 place, at, from = 0, data[2] = {};
	u32 index, word, n;

	if (!u || !known)
		return 0;
	for (u32 i = 0; i < SOME_PLACES; i++) {
		n = first + i;
		barrier_var(n);
		if (n >= MAX_USES || n >= known->count)
			break;
		place = known->places[n];
		at = place & PLACE_ADDRESS;
		index = place >> PLACE_INDEX;
		if (index != NO_INDEX) {
			if (at != from && !read_user_words(&u->memory, at, data, 2))
				data[1] = 0;
			from = at;
			at = index < data[1] ? data[0] + index * sizeof(word) : 0;
		}
		if (read_user_half(&u->memory, at, &word))
			add_use(u, word, place);
		else
			lack_uses(u, USES_UNREADABLE);
	}
	return 0;
}

static __always_inline void read_all_places(struct unwinder *u, const struct use_places *known)
{
	struct header *h = &u->record.uses.run.run.h;

	h->flags = known->flags;
	h->count = 0;
	for (u32 first = 0; first < MAX_USES && first < known->count; first += SOME_PLACES)
		read_places(u, known, first);
}

/* Remembers the places that a search found. */
static __always_inline void remember_places(struct unwinder *u, const struct program_key *k, u64 impl)
{
	struct use_places *found = &u->record.uses.found;
	const struct header *h = &u->record.uses.run.run.h;
	struct user *user = find_user(u->user);

	if (h->flags & USES_UNREADABLE || !user ||
	    !may_add(user, &user->use_places, USE_PLACES_A_USER, h->time_ns))
		return;
	found->exec_id = k->exec_id;
	found->impl = impl;
	found->count = h->count;
	found->flags = h->flags;
	bpf_map_update_elem(&use_places, k, found, BPF_ANY);
}

/* Adds to u's record of a run what its program uses. */
static __always_inline void add_uses(const struct layout *l, u32 library, struct unwinder *u, u64 impl)
{
	struct program_run *run = &u->record.uses.run.run;
	struct program_key k = {.exec_id = run->h.exec_id, .program_id = run->program_id};
	struct header *h = &run->h;
	struct use_places *known = bpf_map_lookup_elem(&use_places, &k);

	if (known && known->exec_id == k.exec_id && known->impl == impl) {
		read_all_places(u, known);
		if (!same_memory(&u->memory)) {
			close_memory(&u->memory);
			read_all_places(u, known);
		}
		barrier(); /* the kernel may give its place to another program at any time: see change_object */
		if (!(h->flags & USES_UNREADABLE) && known->exec_id == k.exec_id && known->impl == impl)
			return;
	}
	h->flags = USES_READ;
	h->count = 0;
	search_kernels(u, library, impl + l->program_kernels);
	if (l->program_cbs != NO_FIELD)
		search_buffers(u, impl + l->program_cbs, l->cb_in_tensor, l->cb_tensor_address);
	if (l->program_dataflow_buffers != NO_FIELD)
		search_buffers(u, impl + l->program_dataflow_buffers, l->dfb_in_tensor, l->dfb_address);
	remember_places(u, &k, impl);
}
