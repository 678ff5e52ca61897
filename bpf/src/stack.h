/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The stacks of events: two ids, of the native and of the Python part, each reported once. */
#pragma once

/* The ids of the stacks that user space knows; the values mean nothing. Stacks that were not used
 * for long make room for others, and are reported again at their next use. A user adds at most a
 * quarter in a minute, so that the stacks that others use stay; further ones are reported each time. */
#define MAX_STACKS 131072
#define STACKS_A_USER (MAX_STACKS / 4)
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_STACKS);
	__type(key, u64);
	__type(value, u32);
} stacks SEC(".maps");

/* Set before loading: random, so that nobody can make a stack with the id of another user's. */
volatile const u64 stack_seed;

/* Remembers that user space knows a stack. Until then other threads report it as well, so that none of
 * their events comes before it. */
static __always_inline void remember_stack(u64 user, u64 id, u32 tgid, u64 now)
{
	struct user *u = find_user(user);

	if (u && may_add(u, &u->stacks, STACKS_A_USER, now))
		bpf_map_update_elem(&stacks, &id, &tgid, BPF_ANY);
}

/* Reports a native stack to user space; 0 if that failed. */
__noinline u64 report_native(struct unwinder *u, u32 tgid)
{
	u64 id;

	if (!u)
		return 0;
	id = u->native.id;
	if (!bpf_map_lookup_elem(&stacks, &id)) {
		fill_header(&u->native.h, RECORD_NATIVE_STACK, 0);
		u->native.generation = u->generation;
		u->native.end = u->end;
		if (!try_send(&u->native, SIZE_WITH(&u->native, addresses, u->native.frames), sizeof(u->native))) {
			u->end = END_RING_FULL;
			never_compare(&u->words); /* u->end is not how it ended any more */
			return 0;
		}
		remember_stack(u->user, id, tgid, u->native.h.time_ns);
	}
	u->native_ids[id & (KNOWN_IDS - 1)] = id;
	return id;
}

__noinline u64 report_python(struct unwinder *u, u32 tgid)
{
	u64 id;

	if (!u)
		return 0;
	id = u->python.id;
	if (!bpf_map_lookup_elem(&stacks, &id)) {
		fill_header(&u->python.h, RECORD_PYTHON_STACK, 0);
		if (!try_send(&u->python, SIZE_WITH(&u->python, calls, u->python.frames), sizeof(u->python))) {
			u->python_end = END_PYTHON_RING_FULL;
			return 0;
		}
		remember_stack(u->user, id, tgid, u->python.h.time_ns);
	}
	u->python_ids[id & (KNOWN_IDS - 1)] = id;
	return id;
}

/* Processes with unloaded code that user space does not know yet: how often unloading began or
 * ended. The number is odd while it goes on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u64);
} unloading SEC(".maps");

/* The slot of the process's space; 0 if user space has published none that is valid. */
static __always_inline u32 space_slot(struct unwinder *u, u32 tgid)
{
	struct process *p;

	if (u->slot && !u->inherited && u->cache_epoch == cache_epoch)
		return u->slot;
	u->cache_epoch = cache_epoch;
	u->slot = u->inherited = 0;
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (p && !bpf_map_lookup_elem(&unloading, &tgid)) {
		u->slot = p->space;
		u->inherited = p->inherited;
	}
	return u->slot;
}

/* struct r_debug of <link.h> */
#define R_STATE 24
#define RT_CONSISTENT 0
#define RT_DELETE 2

/* _dl_debug_state(), which ld.so calls before and after it changes mappings; the cookie is the
 * distance of _r_debug from it. Other code may be mapped in the place of unloaded code: no stacks are taken
 * until user space has read the new mappings. */
NO_PROGRAMS(after_debug_state);

SEC("uprobe.multi")
int on_debug_state(struct pt_regs *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32, state;
	u64 one = 1, *times;
	struct header h;

	KEEP_THREAD_STACK(ctx, !ctx->ip, after_debug_state);
	if (!read_u32(ctx->ip + bpf_get_attach_cookie(ctx) + R_STATE, &state))
		return 0;
	times = bpf_map_lookup_elem(&unloading, &tgid);
	if (state == RT_DELETE) {
		if (times && !(*times & 1))
			__sync_fetch_and_add(times, 1);
		else if (!times && bpf_map_update_elem(&unloading, &tgid, &one, BPF_ANY))
			count_lost(LOST_MAP_FULL);
		__sync_fetch_and_add(&cache_epoch, 1);
	} else if (state == RT_CONSISTENT && times && *times & 1) {
		__sync_fetch_and_add(times, 1);
		fill_header(&h, RECORD_UNLOADED, 0);
		if (may_write(sizeof(h))) /* a program may claim it in a loop, and a lost one is made good */
			send_now(&h, sizeof(h), LOST_UNLOADED);
		else
			count_lost(LOST_UNLOADED);
	}
	return 0;
}

/* Walks both parts of the stack. */
__noinline int walk(struct unwinder *u, struct space *s, u64 ip, u64 sp, u64 bp)
{
	u64 seed;

	if (!u || !s)
		return 0;
	seed = mix(stack_seed, bpf_get_current_pid_tgid() >> 32 << 32 | s->generation);
	u->at = ip;
	u->sp = sp;
	u->bp = bp;
	u->bp_at = 0;
	u->bp_lost = 0;
	u->end = unwind(u, s, seed);
	u->python_end = walk_python(u, s, ~seed);
	return 0;
}

/* Takes the stack of a probe's hit, and reports it if ids are given. Returns whether the native
 * part is complete. */
__noinline int take_stack(struct unwinder *u, u64 ip, u64 sp, u64 bp, struct stack_ids *ids)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct space *s;
	u64 id;

	if (!u)
		return 0;
	if (!space_slot(u, tgid) || !(s = space_at(u->slot)) ||
	    (u->inherited && u->inherited != s->generation)) {
		u->slot = 0;
		if (ids)
			count_end(END_NO_SPACE);
		return 0;
	}
	if (u->generation != s->generation)
		forget_rows(u, s->generation);
	walk(u, s, ip, sp, bp);
	if (!same_memory(&u->memory)) {
		/* another thread releases memory, as some do all the time */
		open_memory(&u->memory);
		walk(u, s, ip, sp, bp);
		if (!same_memory(&u->memory)) {
			close_memory(&u->memory);
			walk(u, s, ip, sp, bp);
		}
	}
	if (!ids)
		return u->end == END_START;
	id = u->native.id;
	if (u->native_ids[id & (KNOWN_IDS - 1)] != id)
		id = report_native(u, tgid);
	ids->native = id;
	if (u->python.frames) {
		id = u->python.id;
		if (u->python_ids[id & (KNOWN_IDS - 1)] != id)
			id = report_python(u, tgid);
		ids->python = id;
	}
	count_end(u->end == END_TOO_DEEP && u->python_end == END_PYTHON ? END_ONLY_PYTHON : u->end);
	count_end(u->python_end);
	return u->end == END_START;
}

volatile const bool take_stacks; /* set before loading */
volatile const bool free_stacks; /* of frees as well */

static __always_inline void stack_of(const struct pt_regs *ctx, struct unwinder *u,
				     struct stack_ids *ids)
{
	ids->native = ids->python = 0;
	if (!take_stacks)
		return;
	if (u)
		take_stack(u, ctx->ip, ctx->sp, ctx->bp, ids);
	else
		count_end(END_NO_STATE);
}

/* Takes the stack of every call of a function, for tests and benchmarks. */
NO_PROGRAMS(after_stack);

SEC("uprobe.multi")
int on_stack(struct pt_regs *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct stack_ids stack;
	struct header h;

	KEEP_THREAD_STACK(ctx, !ctx->ip, after_stack);
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	stack_of(ctx, this_unwinder(0), &stack);
	fill_header(&h, RECORD_STACK, 0);
	h.stack = stack;
	SEND(h);
	return 0;
}
