/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Programs: their circular and dataflow buffers in L1, their kernels. */
#pragma once

/* The program that the thread works on from now on. */
HANDLER void enter_program(const struct hit *h, struct thread *t, u32 phase)
{
	t->impl = h->ctx->di;
	t->device = h->ctx->si;
	t->phase = phase;
	if (!read_word(memory_of(h), t->impl + h->l->program_id, &t->program_id))
		count_lost(LOST_PROGRAM_UNREADABLE);
	ensure_device(h, t->device);
}

static __always_inline void program_holds(u64 impl, u64 id, u32 what)
{
	struct object_key k = key_of(OBJECT_PROGRAM, impl);
	struct object *known = bpf_map_lookup_elem(&objects, &k);
	u32 before = known && known->value == id ? known->holds : 0;

	if ((before & what) != what)
		put_object(&k, id, before | what);
}

/* A program releases some of its memory. Programs that never had any, such as moved-from ones, are
 * ignored. */
HANDLER void program_gives_up(const struct hit *h, u32 what)
{
	struct object_key k = key_of(OBJECT_PROGRAM, h->ctx->di);
	struct object *known = bpf_map_lookup_elem(&objects, &k);
	struct program_end_record r;
	u32 holds = known ? known->holds : 0;
	u32 ends = holds & what & ~PROGRAM_KNOWN;

	if (!known || !(holds & what))
		return;
	r.program_id = known->value;
	if (ends) {
		fill_header(&r.h, RECORD_PROGRAM_END, h->library);
		r.h.flags = ends;
		SEND(r);
	}
	if (holds & ~what)
		change_object(&k, r.program_id, holds & ~what);
	else
		remove_object(&k);
}

/* Begins u's record of a buffer of a program. */
static __always_inline struct cb_record *new_cb(const struct hit *h, u32 kind, const struct stack_ids *stack,
						u64 program_id, u64 device)
{
	struct cb_record *r = RECORD_OF(h, cb);

	if (!r)
		return NULL;
	fill_header(&r->h, RECORD_CB, h->library);
	r->h.static_kind = kind;
	r->h.stack = *stack;
	r->program_id = program_id;
	r->device = device;
	return r;
}

/* Sends u's record with the next MAX_RANGES ranges of a CoreRangeSet, which is a vector of CoreRange: x0,
 * y0, x1, y1 as u64. */
__noinline int report_cb(struct unwinder *u, u64 begin, u64 end)
{
	struct four_words corners = {};
	struct cb_record *r;
	u32 n = 0;

	if (!u)
		return 0;
	r = &u->record.cb;
	for (u32 i = 0; i < MAX_RANGES; i++) {
		if (begin + sizeof(corners) > end)
			break;
		if (!read_four(&u->memory, begin, &corners)) {
			count_lost(LOST_PROGRAM_UNREADABLE);
			break;
		}
		r->ranges[i].x0 = corners.word[0];
		r->ranges[i].y0 = corners.word[1];
		r->ranges[i].x1 = corners.word[2];
		r->ranges[i].y1 = corners.word[3];
		begin += sizeof(corners);
		n++;
	}
	r->h.count = n;
	SEND_WITH(r, ranges, n);
	return 0;
}

#define MAX_RANGE_RECORDS 32

/* GraphTracker::track_allocate_cb(CoreRangeSet &, address, bytes, global, IDevice *) */
HANDLER void cb_allocate(const struct hit *h, struct thread *t)
{
	u64 begin = 0, end = 0, device = h->ctx->r9;
	struct memory *m = memory_of(h);
	struct cb_record *r;

	if (!read_word(m, h->ctx->si, &begin) || !read_word(m, h->ctx->si + 8, &end)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	ensure_device(h, device);
	program_holds(t->impl, t->program_id, PROGRAM_CBS);
	r = new_cb(h, STATIC_CIRCULAR_BUFFER, &h->stack, t->program_id, device);
	if (!r)
		return;
	r->h.flags = (h->ctx->r8 & 1) ? CB_GLOBAL : 0;
	r->address = h->ctx->dx;
	r->size_bytes = h->ctx->cx;
	for (u32 i = 0; i < MAX_RANGE_RECORDS && begin < end; i++) {
		report_cb(h->u, begin, end);
		begin += MAX_RANGES * 32;
	}
	if (begin < end)
		count_lost(LOST_PROGRAM_UNREADABLE);
}

/* CircularBufferAllocator::mark_address(address, bytes, base), while the thread allocates dataflow
 * buffers or scratchpads: the allocator begins with its CoreRange. */
HANDLER void cb_mark(const struct hit *h, struct thread *t)
{
	u32 kind = t->phase == PHASE_DFBS ? STATIC_DATAFLOW_BUFFER : STATIC_SCRATCHPAD;
	struct cb_record *r;

	program_holds(t->impl, t->program_id, PROGRAM_DFBS);
	r = new_cb(h, kind, &h->stack, t->program_id, t->device);
	if (!r)
		return;
	r->address = h->ctx->si;
	r->size_bytes = h->ctx->dx;
	report_cb(h->u, h->ctx->di, h->ctx->di + 32);
}

/* populate_dispatch_data(IDevice *): once for each compiled program. The function fills in the
 * binaries, so they are read at the thread's next step. Slow dispatch does not call it. */
HANDLER void program_compiled(const struct hit *h, struct thread *t)
{
	t->compiled = h->stack;
	t->kernel_pending = 1;
}

/* Returns whether a vector in a program has elements. */
static __always_inline bool has_elements(struct memory *m, u64 impl, u32 vector)
{
	u64 begin = 0, end = 0;

	return vector != NO_FIELD && read_word(m, impl + vector, &begin) &&
	       read_word(m, impl + vector + 8, &end) && begin < end;
}

#define MAX_ALLOCATORS 256
#define ALLOCATORS_A_CALL 32
#define MAX_REGIONS 16

/* Sends u's record for each region of a CircularBufferAllocator: a vector of begin and end. */
__noinline int report_regions(struct unwinder *u, u64 allocator, u64 vector)
{
	u64 region[2], begin = 0, end = 0;
	struct cb_record *r;

	if (!u)
		return 0;
	r = &u->record.cb;
	if (!read_word(&u->memory, vector, &begin) || !read_word(&u->memory, vector + 8, &end))
		begin = 0, end = 1;
	for (u32 i = 0; i < MAX_REGIONS && begin < end; i++) {
		if (bpf_probe_read_user(region, sizeof(region), (void *)begin))
			break;
		begin += sizeof(region);
		r->address = region[0];
		r->size_bytes = region[1] - region[0];
		if (r->size_bytes)
			report_cb(u, allocator, allocator + 32);
	}
	if (begin < end)
		count_lost(LOST_PROGRAM_UNREADABLE);
	return 0;
}

/* Reports the regions of the next allocators in a vector, and returns where the rest begins. The verifier
 * checks each step of the caller, but this function only once. */
__noinline u64 report_allocators(struct unwinder *u, u32 library, u64 begin, u64 end)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);

	if (!u || !l)
		return end;
	for (u32 i = 0; i < ALLOCATORS_A_CALL && begin < end; i++) {
		report_regions(u, begin, begin + l->allocator_regions);
		begin += l->allocator_bytes;
	}
	return begin;
}

/* Reports what a program has in L1 besides circular buffers. No function is called for each
 * scratchpad: user space subtracts the dataflow buffers. */
HANDLER void report_scratchpads(const struct hit *h, const struct thread *t)
{
	const struct layout *l = h->l;
	struct memory *m = memory_of(h);
	u64 id = 0, begin = 0, end = 0;

	if (l->program_dfbs == NO_FIELD || l->allocator_regions == NO_FIELD ||
	    l->allocator_bytes == NO_FIELD || !has_elements(m, t->impl, l->program_dfbs))
		return;
	/* scratchpads end with the dataflow buffers */
	program_holds(t->impl, t->program_id, PROGRAM_DFBS);
	if (!new_cb(h, STATIC_SCRATCHPAD, &t->compiled, t->program_id, t->device))
		return;
	/* another thread may have destroyed the program */
	if (!read_word(m, t->impl + l->program_id, &id) || id != t->program_id ||
	    !read_word(m, t->impl + l->program_dfbs, &begin) ||
	    !read_word(m, t->impl + l->program_dfbs + 8, &end))
		begin = 0, end = 1;
	for (u32 i = 0; i < MAX_ALLOCATORS / ALLOCATORS_A_CALL && begin < end; i++)
		begin = report_allocators(h->u, h->library, begin, end);
	if (begin < end)
		count_lost(LOST_PROGRAM_UNREADABLE);
}

/* Returns the bytes of a program's kernels in the L1 of a core. The vector has an element for each
 * type of core, the first for Tensix cores, which are the workers. Global, like kind_of, so that the verifier
 * checks it once. */
__noinline u64 text_of(struct memory *m, u32 library, u64 impl, u32 kind)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 begin = 0, end = 0;
	u32 bytes, most = 0;

	if (!l || l->program_text.length != 2 || !read_word(m, impl + l->program_text.offset[0], &begin) ||
	    !read_word(m, impl + l->program_text.offset[0] + 8, &end))
		return 0;
	for (u32 i = 0; i < MAX_CORE_TYPES && begin < end; i++) {
		if (i && (kind == KERNEL_WORKER || kind == KERNEL_COMPILED))
			break;
		if (read_half(m, begin + l->program_text.offset[1], &bytes) && bytes > most)
			most = bytes;
		begin += l->program_text.offset[1] + sizeof(bytes);
	}
	return most;
}

static __always_inline void send_kernels(const struct hit *h, const struct stack_ids *stack,
					 u64 impl, u64 id, u64 device, u64 binary_bytes, u32 kind)
{
	struct kernel_record r = {
		.program_id = id,
		.device = device,
		.binary_bytes = binary_bytes,
		.text_bytes = text_of(memory_of(h), h->library, impl, kind),
	};

	program_holds(impl, id, PROGRAM_KERNELS);
	fill_header(&r.h, RECORD_KERNEL, h->library);
	r.h.stack = *stack;
	r.h.flags = kind;
	SEND(r);
}

/* The program that the thread compiled last is complete. */
HANDLER void kernel_compiled(const struct hit *h, struct thread *t)
{
	const struct layout *l = h->l;
	struct memory *m = memory_of(h);
	u64 begin = 0, end = 0;

	t->kernel_pending = 0;
	if (!read_word(m, t->impl + l->program_binary, &begin) ||
	    !read_word(m, t->impl + l->program_binary + 8, &end) || end < begin) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		begin = end = 0;
	}
	send_kernels(h, &t->compiled, t->impl, t->program_id, t->device, end - begin, KERNEL_COMPILED);
	t->unloaded++;
}

/* MeshWorkloadImpl::load_binaries(…): what the thread compiled right before is the workload's programs,
 * whose binaries are written to DRAM now. The programs of the command queue are never passed to it. */
HANDLER void binaries_loaded(const struct hit *h, struct thread *t)
{
	struct header r;

	if (!t->unloaded)
		return;
	fill_header(&r, RECORD_BINARIES_LOADED, h->library);
	r.count = t->unloaded;
	if (SEND(r))
		t->unloaded = 0;
}

/* Vector of the programs of a command queue: one, or a few. */
#define MAX_QUEUE_PROGRAMS 4

/* Returns what the kernels of a program are for, if it is one of the runtime's own programs, which Device
 * keeps; else KERNEL_WORKER. */
__noinline u32 kind_of(struct memory *m, u32 library, u64 bias, u64 device, u64 program)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 vtable = 0, found = 0, begin = 0, end = 0;

	if (l && l->queue_programs != NO_FIELD && l->fabric_program != NO_FIELD &&
	    read_word(m, device, &vtable) && vtable == bias + l->device_vtable) {
		if (read_word(m, device + l->fabric_program, &found) && found == program)
			return KERNEL_FABRIC;
		if (read_word(m, device + l->queue_programs, &begin) &&
		    read_word(m, device + l->queue_programs + 8, &end))
			for (u32 i = 0; i < MAX_QUEUE_PROGRAMS && begin < end; i++) {
				if (read_word(m, begin, &found) && found == program)
					return KERNEL_QUEUE;
				begin += sizeof(found);
			}
	}
	return KERNEL_WORKER;
}

/* ConfigureDeviceWithProgram(IDevice *, Program &, bool force slow dispatch): a program's kernels are
 * written to the L1 of its cores, without a copy in DRAM: at each run with slow dispatch, and once for
 * the programs of the command queue and of the fabric. */
HANDLER void program_configured(const struct hit *h)
{
	const struct layout *l = h->l;
	struct memory *m = memory_of(h);
	u64 impl = 0, id = 0, device = h->ctx->di;
	u32 kind;

	if (l->program_impl == NO_FIELD)
		return;
	if (!read_word(m, h->ctx->si + l->program_impl, &impl) || !read_word(m, impl + l->program_id, &id)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	kind = kind_of(m, h->library, h->bias, device, h->ctx->si);
	if (kind == KERNEL_WORKER && h->ctx->dx & 1)
		kind = KERNEL_RUNTIME;
	send_kernels(h, &h->stack, impl, id, device, 0, kind);
}

/* Returns whether the elements of a vector have been placed in L1. */
static __always_inline bool is_placed(struct memory *m, u64 impl, u32 vector, u32 needed)
{
	u8 flag = 1;

	return needed != NO_FIELD && has_elements(m, impl, vector) &&
	       !bpf_probe_read_user(&flag, 1, (void *)(impl + needed)) && !flag;
}

/* Returns which memory a compiled program has; 0 if it is not compiled. */
__noinline int program_memory(struct memory *m, u32 library, u64 impl)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u32 bytes = 0;
	int what = 0;
	u64 at;

	if (!l)
		return 0;
	if (is_placed(m, impl, l->program_cbs, l->program_cbs_needed))
		what |= PROGRAM_CBS;
	if (is_placed(m, impl, l->program_dfbs, l->program_dfbs_needed))
		what |= PROGRAM_DFBS;
	/* binaries without an address: not compiled yet */
	if ((l->program_binary && has_elements(m, impl, l->program_binary)) ||
	    (follow(m, impl, &l->program_text, &at) && read_half(m, at, &bytes) && bytes))
		what |= PROGRAM_KERNELS;
	return what;
}

/* Reports a run of a program. Its arguments are set by then. */
HANDLER void program_runs(const struct hit *h, u64 impl, u64 id)
{
	struct program_run r = {.program_id = id};

	fill_header(&r.h, RECORD_PROGRAM_RUN, h->library);
	r.h.stack = h->stack;
	r.device = h->ctx->dx;
	if (!read_uses || !h->u || h->l->program_kernels == NO_FIELD) {
		SEND(r);
		return;
	}
	h->u->record.uses.run.run = r;
	add_uses(h->l, h->library, h->u, impl);
	SEND_WITH(&h->u->record.uses.run, uses, h->u->record.uses.run.run.h.count);
}

/* An unknown program that is enqueued and already placed in L1 was compiled before ttmem attached to the
 * process. */
HANDLER void program_enqueued(const struct hit *h, u64 impl, u64 id)
{
	u32 tgid = h->tgid;
	struct process *process = bpf_map_lookup_elem(&processes, &tgid);
	struct program_seen_record r;
	struct object_key k;
	struct object *known;
	u32 what;

	if (!process || !(process->flags & PROCESS_LATE))
		return;
	k = key_of(OBJECT_PROGRAM, impl);
	known = bpf_map_lookup_elem(&objects, &k);
	if (known && known->value == id)
		return;
	what = program_memory(memory_of(h), h->library, impl);
	if (!put_object(&k, id, what | PROGRAM_KNOWN))
		return; /* else it would be reported each time */
	if (!what)
		return;
	fill_header(&r.h, RECORD_PROGRAM_SEEN, h->library);
	r.h.flags = what;
	r.program_id = id;
	r.impl = impl;
	r.device = h->ctx->dx;
	if (!SEND(r))
		remove_object(&k); /* try again later */
}

/* GraphTracker::track_program(Program *, IDevice *): each time a program is enqueued, even one
 * from the program cache. */
HANDLER void program_tracked(const struct hit *h)
{
	struct memory *m = memory_of(h);
	u64 impl = 0, id = 0;

	if (h->l->program_impl == NO_FIELD)
		return;
	if (!read_word(m, h->ctx->si + h->l->program_impl, &impl) || !read_word(m, impl + h->l->program_id, &id)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	program_runs(h, impl, id);
	program_enqueued(h, impl, id);
}
