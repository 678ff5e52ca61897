/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Programs: their circular and dataflow buffers in L1, their kernels. */
#pragma once

/* The program that the thread works on from now on. */
HANDLER void enter_program(const struct hit *h, struct thread *t, u32 phase)
{
	t->impl = h->ctx->di;
	t->device = h->ctx->si;
	t->phase = phase;
	if (!read_u64(t->impl + h->l->program_id, &t->program_id))
		count_lost(LOST_PROGRAM_UNREADABLE);
	ensure_device(h, t->device);
}

static __always_inline void program_holds(u64 impl, u64 id, u32 what)
{
	struct object_key k = key_of(OBJECT_PROGRAM, impl);
	struct object *known = bpf_map_lookup_elem(&objects, &k);

	if (!known) {
		add_object(&k, id, what);
		return;
	}
	if (known->value != id) {
		known->value = id;
		known->holds = 0;
	}
	known->holds |= what;
}

/* A program releases some of its memory. Programs that never had any, such as moved-from ones, are
 * ignored. */
HANDLER void program_gives_up(const struct hit *h, u32 what)
{
	struct object_key k = key_of(OBJECT_PROGRAM, h->ctx->di);
	struct object *known = bpf_map_lookup_elem(&objects, &k);
	struct program_end_record *r;
	u32 ends;

	if (!known || !(known->holds & what))
		return;
	ends = known->holds & what & ~PROGRAM_KNOWN;
	r = ends ? RESERVE(struct program_end_record, RECORD_PROGRAM_END, h->library) : NULL;
	if (r) {
		r->program_id = known->value;
		r->h.flags = ends;
		send(r);
	}
	known->holds &= ~what;
	if (!known->holds)
		remove_object(&k);
}

struct cb_place {
	u64 address, size_bytes, device;
	u32 static_kind, flags;
	struct stack_ids stack;
};

/* Sends a record for each MAX_RANGES ranges of a CoreRangeSet, which is a vector of CoreRange: x0,
 * y0, x1, y1 as u64. */
__noinline int report_cb(u32 library, const struct cb_place *p, u64 program_id, u64 begin,
				u64 end)
{
	struct cb_record *r;
	u64 corners[4];
	u32 n = 0;

	if (!p)
		return 0;
	r = RESERVE(struct cb_record, RECORD_CB, library);
	if (!r)
		return 0;
	r->h.stack = p->stack;
	r->program_id = program_id;
	r->device = p->device;
	r->address = p->address;
	r->size_bytes = p->size_bytes;
	r->h.static_kind = p->static_kind;
	r->h.flags = p->flags;
	for (u32 i = 0; i < MAX_RANGES; i++) {
		if (begin + sizeof(corners) > end)
			break;
		if (bpf_probe_read_user(corners, sizeof(corners), (void *)begin)) {
			count_lost(LOST_PROGRAM_UNREADABLE);
			break;
		}
		r->ranges[i].x0 = corners[0];
		r->ranges[i].y0 = corners[1];
		r->ranges[i].x1 = corners[2];
		r->ranges[i].y1 = corners[3];
		begin += sizeof(corners);
		n++;
	}
	r->h.count = n;
	send(r);
	return 0;
}

#define MAX_RANGE_RECORDS 32

/* GraphTracker::track_allocate_cb(CoreRangeSet &, address, bytes, global, IDevice *) */
HANDLER void cb_allocate(const struct hit *h, struct thread *t)
{
	struct cb_place p = {
		.address = h->ctx->dx,
		.size_bytes = h->ctx->cx,
		.device = h->ctx->r9,
		.static_kind = STATIC_CIRCULAR_BUFFER,
		.flags = (h->ctx->r8 & 1) ? CB_GLOBAL : 0,
		.stack = h->stack,
	};
	u64 begin = 0, end = 0;

	if (!read_u64(h->ctx->si, &begin) || !read_u64(h->ctx->si + 8, &end)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	ensure_device(h, p.device);
	program_holds(t->impl, t->program_id, PROGRAM_CBS);
	for (u32 i = 0; i < MAX_RANGE_RECORDS && begin < end; i++) {
		report_cb(h->library, &p, t->program_id, begin, end);
		begin += MAX_RANGES * 32;
	}
	if (begin < end)
		count_lost(LOST_PROGRAM_UNREADABLE);
}

/* CircularBufferAllocator::mark_address(address, bytes, base), while the thread allocates dataflow
 * buffers or scratchpads: the allocator begins with its CoreRange. */
HANDLER void cb_mark(const struct hit *h, struct thread *t)
{
	struct cb_place p = {
		.address = h->ctx->si,
		.size_bytes = h->ctx->dx,
		.device = t->device,
		.static_kind = t->phase == PHASE_DFBS ? STATIC_DATAFLOW_BUFFER : STATIC_SCRATCHPAD,
		.stack = h->stack,
	};

	program_holds(t->impl, t->program_id, PROGRAM_DFBS);
	report_cb(h->library, &p, t->program_id, h->ctx->di, h->ctx->di + 32);
}

/* populate_dispatch_data(IDevice *): once for each compiled program. The function fills in the
 * binaries, so they are read at the thread's next step. Slow dispatch does not call it. */
HANDLER void program_compiled(const struct hit *h, struct thread *t)
{
	t->compiled = h->stack;
	t->kernel_pending = 1;
}

/* Returns whether a vector in a program has elements. */
static __always_inline bool has_elements(u64 impl, u32 vector)
{
	u64 begin = 0, end = 0;

	return vector != NO_FIELD && read_u64(impl + vector, &begin) &&
	       read_u64(impl + vector + 8, &end) && begin < end;
}

#define MAX_ALLOCATORS 256
#define MAX_REGIONS 16

/* Sends a record for each region of a CircularBufferAllocator: a vector of begin and end. */
__noinline int report_regions(u32 library, struct cb_place *p, u64 program_id, u64 allocator,
			      u64 vector)
{
	u64 region[2], begin = 0, end = 0;

	if (!p)
		return 0;
	if (!read_u64(vector, &begin) || !read_u64(vector + 8, &end))
		begin = 0, end = 1;
	for (u32 i = 0; i < MAX_REGIONS && begin < end; i++) {
		if (bpf_probe_read_user(region, sizeof(region), (void *)begin))
			break;
		begin += sizeof(region);
		p->address = region[0];
		p->size_bytes = region[1] - region[0];
		if (p->size_bytes)
			report_cb(library, p, program_id, allocator, allocator + 32);
	}
	if (begin < end)
		count_lost(LOST_PROGRAM_UNREADABLE);
	return 0;
}

/* Reports what a program has in L1 besides circular buffers. No function is called for each
 * scratchpad: user space subtracts the dataflow buffers. */
HANDLER void report_scratchpads(const struct hit *h, const struct thread *t)
{
	const struct layout *l = h->l;
	struct cb_place p = {
		.device = t->device,
		.static_kind = STATIC_SCRATCHPAD,
		.stack = t->compiled,
	};
	u64 id = 0, begin = 0, end = 0;

	/* another thread may have destroyed the program */
	if (!read_u64(t->impl + l->program_id, &id) || id != t->program_id ||
	    !read_u64(t->impl + l->program_dfbs, &begin) ||
	    !read_u64(t->impl + l->program_dfbs + 8, &end))
		begin = 0, end = 1;
	for (u32 i = 0; i < MAX_ALLOCATORS && begin < end; i++) {
		report_regions(h->library, &p, t->program_id, begin, begin + l->allocator_regions);
		begin += l->allocator_bytes;
	}
	if (begin < end)
		count_lost(LOST_PROGRAM_UNREADABLE);
}

/* tt-metal's types of cores with kernels of their own: Tensix, active and idle Ethernet, … */
#define MAX_CORE_TYPES 8

/* Returns the bytes of a program's kernels in the L1 of a core. The vector has an element for each
 * type of core, the first for Tensix cores, which are the workers. */
static __always_inline u64 text_of(const struct layout *l, u64 impl, u32 kind)
{
	u64 begin = 0, end = 0;
	u32 bytes, most = 0;

	if (l->program_text.length != 2 || !read_u64(impl + l->program_text.offset[0], &begin) ||
	    !read_u64(impl + l->program_text.offset[0] + 8, &end))
		return 0;
	for (u32 i = 0; i < MAX_CORE_TYPES && begin < end; i++) {
		if (i && (kind == KERNEL_WORKER || kind == KERNEL_COMPILED))
			break;
		if (read_u32(begin + l->program_text.offset[1], &bytes) && bytes > most)
			most = bytes;
		begin += l->program_text.offset[1] + sizeof(bytes);
	}
	return most;
}

static __always_inline void send_kernels(const struct hit *h, const struct stack_ids *stack,
					 u64 impl, u64 id, u64 device, u64 binary_bytes, u32 kind)
{
	u64 text_bytes = text_of(h->l, impl, kind);
	struct kernel_record *r;

	program_holds(impl, id, PROGRAM_KERNELS);
	r = RESERVE(struct kernel_record, RECORD_KERNEL, h->library);
	if (!r)
		return;
	r->h.stack = *stack;
	r->h.flags = kind;
	r->program_id = id;
	r->device = device;
	r->binary_bytes = binary_bytes;
	r->text_bytes = text_bytes;
	send(r);
}

/* The program that the thread compiled last is complete. */
HANDLER void kernel_compiled(const struct hit *h, struct thread *t)
{
	const struct layout *l = h->l;
	u64 begin = 0, end = 0;

	t->kernel_pending = 0;
	if (!read_u64(t->impl + l->program_binary, &begin) ||
	    !read_u64(t->impl + l->program_binary + 8, &end) || end < begin) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		begin = end = 0;
	}
	if (l->program_dfbs != NO_FIELD && l->allocator_regions != NO_FIELD &&
	    l->allocator_bytes != NO_FIELD && has_elements(t->impl, l->program_dfbs)) {
		/* scratchpads end with the dataflow buffers */
		program_holds(t->impl, t->program_id, PROGRAM_DFBS);
		report_scratchpads(h, t);
	}
	send_kernels(h, &t->compiled, t->impl, t->program_id, t->device, end - begin, KERNEL_COMPILED);
	t->unloaded++;
}

/* MeshWorkloadImpl::load_binaries(…): what the thread compiled right before is the workload's programs,
 * whose binaries are written to DRAM now. The programs of the command queue are never passed to it. */
HANDLER void binaries_loaded(const struct hit *h, struct thread *t)
{
	struct header *r;

	if (!t->unloaded)
		return;
	r = RESERVE_BYTES(sizeof(*r));
	if (!r)
		return;
	fill_header(r, RECORD_BINARIES_LOADED, h->library);
	r->count = t->unloaded;
	t->unloaded = 0;
	send(r);
}

/* Vector of the programs of a command queue: one, or a few. */
#define MAX_QUEUE_PROGRAMS 4

/* Returns what the kernels of a program are for that is written to a chip directly: Device keeps the
 * runtime's own programs. */
static __always_inline u32 kind_of(const struct hit *h, u64 device, u64 program, bool forced)
{
	const struct layout *l = h->l;
	u64 vtable = 0, found = 0, begin = 0, end = 0;

	if (l->queue_programs != NO_FIELD && l->fabric_program != NO_FIELD &&
	    read_u64(device, &vtable) && vtable == h->bias + l->device_vtable) {
		if (read_u64(device + l->fabric_program, &found) && found == program)
			return KERNEL_FABRIC;
		if (read_u64(device + l->queue_programs, &begin) &&
		    read_u64(device + l->queue_programs + 8, &end))
			for (u32 i = 0; i < MAX_QUEUE_PROGRAMS && begin < end; i++) {
				if (read_u64(begin, &found) && found == program)
					return KERNEL_QUEUE;
				begin += sizeof(found);
			}
	}
	return forced ? KERNEL_RUNTIME : KERNEL_WORKER;
}

/* ConfigureDeviceWithProgram(IDevice *, Program &, bool force slow dispatch): a program's kernels are
 * written to the L1 of its cores, without a copy in DRAM: at each run with slow dispatch, and once for
 * the programs of the command queue and of the fabric. */
HANDLER void program_configured(const struct hit *h)
{
	const struct layout *l = h->l;
	u64 impl, id, device = h->ctx->di;

	if (l->program_impl == NO_FIELD)
		return;
	if (!read_u64(h->ctx->si + l->program_impl, &impl) || !read_u64(impl + l->program_id, &id)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	ensure_device(h, device);
	send_kernels(h, &h->stack, impl, id, device, 0,
		     kind_of(h, device, h->ctx->si, h->ctx->dx & 1));
}

/* Returns whether the elements of a vector have been placed in L1. */
static __always_inline bool is_placed(u64 impl, u32 vector, u32 needed)
{
	u8 flag = 1;

	return needed != NO_FIELD && has_elements(impl, vector) &&
	       !bpf_probe_read_user(&flag, 1, (void *)(impl + needed)) && !flag;
}

/* Returns which memory a compiled program has; 0 if it is not compiled. */
__noinline int program_memory(u32 library, u64 impl)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u32 bytes = 0;
	int what = 0;
	u64 at;

	if (!l)
		return 0;
	if (is_placed(impl, l->program_cbs, l->program_cbs_needed))
		what |= PROGRAM_CBS;
	if (is_placed(impl, l->program_dfbs, l->program_dfbs_needed))
		what |= PROGRAM_DFBS;
	/* binaries without an address: not compiled yet */
	if ((l->program_binary && has_elements(impl, l->program_binary)) ||
	    (follow(impl, &l->program_text, &at) && read_u32(at, &bytes) && bytes))
		what |= PROGRAM_KERNELS;
	return what;
}

/* GraphTracker::track_program(Program *, IDevice *): each time a program is enqueued, even one
 * from the program cache. An unknown program that is already placed in L1 was compiled before
 * ttmem attached to the process. */
HANDLER void program_enqueued(const struct hit *h)
{
	const struct layout *l = h->l;
	u32 tgid = h->tgid;
	struct process *process = bpf_map_lookup_elem(&processes, &tgid);
	struct program_seen_record *r;
	struct program_run_record *run;
	struct object_key k;
	struct object *known;
	u64 impl, id;
	u32 what;

	if (l->program_impl == NO_FIELD)
		return;
	if (!read_u64(h->ctx->si + l->program_impl, &impl) || !read_u64(impl + l->program_id, &id)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	ensure_device(h, h->ctx->dx);
	run = RESERVE(struct program_run_record, RECORD_PROGRAM_RUN, h->library);
	if (run) {
		run->h.stack = h->stack;
		run->program_id = id;
		run->device = h->ctx->dx;
		send(run);
	}
	if (!process || !(process->flags & PROCESS_LATE))
		return;
	k = key_of(OBJECT_PROGRAM, impl);
	known = bpf_map_lookup_elem(&objects, &k);
	if (known && known->value == id)
		return;
	what = program_memory(h->library, impl);
	if (known) {
		known->value = id;
		known->holds = what | PROGRAM_KNOWN;
	} else if (!add_object(&k, id, what | PROGRAM_KNOWN)) {
		return; /* else it would be reported each time */
	}
	if (!what)
		return;
	r = RESERVE(struct program_seen_record, RECORD_PROGRAM_SEEN, h->library);
	if (!r) {
		remove_object(&k); /* try again later */
		return;
	}
	r->h.flags = what;
	r->program_id = id;
	r->impl = impl;
	r->device = h->ctx->dx;
	send(r);
}
