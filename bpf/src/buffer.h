/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Buffers: allocations, frees and failed allocations. */
#pragma once

/* Returns the object with the fields of a Buffer, for the argument of track_allocate or
 * deallocate_impl; 0 if it cannot be read. m may be NULL. */
static __always_inline u64 buffer_object(struct memory *m, const struct layout *l, u64 buffer)
{
	u64 impl = 0;

	if (l->buffer_impl == NO_FIELD)
		return buffer;
	if (!read_user(m, buffer + l->buffer_impl, &impl))
		return 0;
	return impl;
}

static __always_inline u64 window_u64(const u8 *window, u32 offset)
{
	u64 v;

	if (offset > BUFFER_WINDOW - 8)
		return 0;
	__builtin_memcpy(&v, window + offset, 8);
	return v;
}

static __always_inline u8 window_u8(const u8 *window, u32 offset)
{
	return offset < BUFFER_WINDOW ? window[offset & 127] : 0;
}

/* Reads the window of a Buffer's object, and its id. If the kernel took a page away meanwhile, the
 * helper reads it again. */
static __always_inline bool read_buffer(struct memory *m, const struct layout *l, u64 object,
					u64 *window, u64 *unique_id)
{
	u64 at = object + l->window;

	if (!read_user_words(m, at, window, BUFFER_WINDOW / 8) ||
	    (unique_id && !read_user(m, object + l->unique_id, unique_id)))
		return false;
	return !m || same_memory(m) || (!bpf_probe_read_user(window, BUFFER_WINDOW, (void *)at) &&
				  (!unique_id || read_u64(object + l->unique_id, unique_id)));
}

/* Returns a callee-saved register by its number in instructions. All are loaded first: clang would
 * merge the loads into one from a computed offset, which the verifier rejects. */
static __always_inline u64 saved_register(const struct pt_regs *ctx, u32 n)
{
	u64 bx = ctx->bx, bp = ctx->bp;
	u64 r12 = ctx->r12, r13 = ctx->r13, r14 = ctx->r14, r15 = ctx->r15;

	barrier_var(bx);
	barrier_var(bp);
	barrier_var(r12);
	barrier_var(r13);
	barrier_var(r14);
	barrier_var(r15);
	return n == 3 ? bx : n == 5 ? bp : n == 12 ? r12 : n == 13 ? r13 : n == 14 ? r14 : r15;
}

/* Where BankManager::allocate_buffer handles shards: keeps the request, which allocate_impl gets
 * unless there is an exception. The shards are an optional<u32>: the value in the low half, and
 * bit 32 if there is a value. */
HANDLER void bank_shards(const struct hit *h, struct thread *t)
{
	u64 shards = saved_register(h->ctx, h->l->shard_count);

	t->request.size_bytes = saved_register(h->ctx, h->l->shard_size);
	t->request.page_size_bytes = saved_register(h->ctx, h->l->shard_page);
	t->request.shards = shards >> 32 & 1 ? (u32)shards : 0;
}

/* Returns whether the hybrid allocator places a Buffer on single cores. */
static __always_inline bool is_per_core(const struct layout *l, u64 object)
{
	u8 flag = 0;

	return l->per_core != NO_FIELD &&
	       !bpf_probe_read_user(&flag, 1, (void *)(object + l->per_core)) && flag == 1;
}

/* The offsets of the first node and of the number of nodes in a std::unordered_map<CoreCoord,
 * DeviceAddr>. tracer/layout/per_core.go checks that the library uses them. */
#define MAP_FIRST 0x10
#define MAP_COUNT 0x18
struct core_node {
	u64 next, x, y, address;
};

/* The number of cores for one call: see ENTRIES_A_CALL. */
#define CORES_A_CALL 32

/* Adds the next nodes of a list of cores to u's record, and returns where the rest begins. */
__noinline u64 read_cores(struct unwinder *u, u64 at)
{
	struct core_node node;
	u32 n;

	if (!u)
		return 0;
	for (u32 i = 0; i < CORES_A_CALL; i++) {
		n = u->record.per_core.buffer.h.count;
		barrier_var(n); /* for its limit, which the verifier wants beside the use */
		if (n >= MAX_CORES || !at || bpf_probe_read_user(&node, sizeof(node), (void *)at))
			break;
		u->record.per_core.cores[n].x = node.x;
		u->record.per_core.cores[n].y = node.y;
		u->record.per_core.cores[n].address = node.address;
		u->record.per_core.buffer.h.count = n + 1;
		at = node.next;
	}
	return at;
}

/* Reports a Buffer on single cores, with its addresses. */
HANDLER void per_core_allocated(const struct hit *h, const struct buffer_record *buffer, u64 object)
{
	struct per_core_record *r = RECORD_OF(h, per_core);
	u64 map = object + h->l->per_core_addresses, at = 0, count = 0;
	u32 n;

	if (!r)
		return;
	r->buffer = *buffer;
	r->buffer.h.kind = RECORD_ALLOC_PER_CORE;
	r->buffer.h.count = 0;
	if (h->l->per_core_addresses != NO_FIELD && read_u64(map + MAP_FIRST, &at) &&
	    read_u64(map + MAP_COUNT, &count)) {
		for (u32 i = 0; i < MAX_CORES / CORES_A_CALL && at; i++)
			at = read_cores(h->u, at);
	}
	n = r->buffer.h.count;
	if (at || n != count)
		n = 0;
	if (!n)
		count_lost(LOST_BUFFER_UNREADABLE);
	r->buffer.h.count = n;
	SEND_WITH(r, cores, n);
}

/* Reports the device of a Buffer that is being allocated. */
HANDLER void buffer_device(const struct hit *h)
{
	struct memory *m = memory_of(h);
	u64 at = buffer_object(m, h->l, h->ctx->si) + h->l->window, device = 0, allocator = 0;

	if (read_word(m, at + h->l->device, &device) && read_word(m, at + h->l->allocator, &allocator))
		ensure_allocator(h, device, allocator, 0);
}

/* GraphTracker::track_allocate(Buffer *): address and status are set. Returns false, and reports
 * nothing, if user space does not know the device. device_reported: that was tried. */
HANDLER bool buffer_allocated(const struct hit *h, bool device_reported)
{
	const struct layout *l = h->l;
	struct memory *m = memory_of(h);
	struct buffer_record r = {};
	const u8 *window = r.window;
	struct thread *t;
	u64 object;

	object = buffer_object(m, l, h->ctx->si);
	if (!read_buffer(m, l, object, (u64 *)r.window, &r.unique_id)) {
		count_lost(LOST_BUFFER_UNREADABLE);
		return true;
	}
	r.object = h->ctx->si;
	r.device = window_u64(window, l->device);
	r.allocator = window_u64(window, l->allocator);
	if (!device_reported && !knows_allocator(h, r.device, r.allocator))
		return false;
	if (window_u8(window, l->sharding) >= SHARDED) {
		t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
		if (t) {
			r.request = t->request;
			t->request.shards = 0;
		}
	}
	fill_header(&r.h, RECORD_ALLOC, h->library);
	r.h.stack = h->stack;
	if (window_u8(window, l->sharding) >= SHARDED && !window_u8(window, l->hooked) && is_per_core(l, object))
		per_core_allocated(h, &r, object);
	else
		SEND(r);
	return true;
}

static __always_inline void send_free(const struct hit *h, const u8 *window, u64 buffer)
{
	const struct layout *l = h->l;
	struct free_record r = {
		.object = buffer,
		.size_bytes = window_u64(window, l->size),
		.page_size_bytes = window_u64(window, l->page_size),
		.address = window_u64(window, l->address),
		.type = window_u64(window, l->type),
		.sharding = window_u64(window, l->sharding),
	};

	fill_header(&r.h, RECORD_FREE, h->library);
	r.h.stack = h->stack;
	r.h.flags = (window_u8(window, l->hooked) ? FREE_HOOKED : 0) |
		    (window_u8(window, l->owns_data) ? 0 : FREE_VIEW);
	SEND(r);
}

/* deallocate_impl: does nothing unless the status is "allocated". The record needs no id: user
 * space finds the buffer by the Buffer's address. */
HANDLER void buffer_deallocate(const struct hit *h)
{
	const struct layout *l = h->l;
	struct memory *m = memory_of(h);
	u64 words[BUFFER_WINDOW / 8];
	const u8 *window = (u8 *)words;
	u64 object, buffer;

	if (l->dealloc_has_impl) {
		object = h->ctx->di;
		buffer = h->ctx->si;
	} else {
		buffer = h->ctx->di;
		object = buffer_object(m, l, buffer);
	}
	if (!read_buffer(m, l, object, words, NULL)) {
		count_lost(LOST_BUFFER_UNREADABLE);
		return;
	}
	if (window_u8(window, l->status) == 1)
		send_free(h, window, buffer);
}

/* An element of the vector of a MeshBuffer's parts: a variant of nothing, for a chip of another host, and of a shared_ptr
 * to a Buffer. */
#define PART_INDEX 0x10
#define PART_LOCAL 1

/* Reads where a MeshBuffer is from its first part: one that is a view has no Buffer of its own. */
static __always_inline void read_place(struct memory *m, const struct layout *l, u64 mesh_buffer,
				       struct transfer_record *r)
{
	u64 part, index, object;

	if (l->mesh_buffer_parts == NO_FIELD || !read_word(m, mesh_buffer + l->mesh_buffer_parts, &part) || !part ||
	    !read_word(m, part + PART_INDEX, &index) || (u8)index != PART_LOCAL || !read_word(m, part, &object))
		return;
	object = buffer_object(m, l, object) + l->window;
	if (bpf_probe_read_user(&r->type, 4, (void *)(object + l->type)) ||
	    bpf_probe_read_user(&r->address, 8, (void *)(object + l->address)))
		r->address = 0;
}

/* MeshCommandQueueBase::enqueue_write_shards_nolock(MeshBuffer &, …), or with a shared_ptr to it,
 * enqueue_write_shard_to_sub_grid(MeshBuffer &, …), and
 * enqueue_read_shards_nolock(shards, shared_ptr<MeshBuffer> &, …): the host writes or reads a buffer. */
HANDLER void buffer_transferred(const struct hit *h, enum probe probe)
{
	bool reads = probe == PROBE_BUFFER_READ, shared = reads || (probe == PROBE_BUFFER_WRITE && h->l->write_has_shared);
	u64 second = h->ctx->si, third = h->ctx->dx, buffer;
	struct memory *m = memory_of(h);
	struct transfer_record r = {};

	barrier_var(second); /* as in saved_register */
	barrier_var(third);
	buffer = reads ? third : second;
	if (h->l->mesh_buffer_backing == NO_FIELD)
		return;
	if ((shared && !read_word(m, buffer, &buffer)) ||
	    !read_word(m, buffer + h->l->mesh_buffer_backing, &r.object)) {
		count_lost(LOST_BUFFER_UNREADABLE);
		return;
	}
	read_place(m, h->l, buffer, &r);
	fill_header(&r.h, RECORD_TRANSFER, h->library);
	r.h.stack = h->stack;
	r.h.flags = reads ? TRANSFER_READ : 0;
	SEND(r);
}
