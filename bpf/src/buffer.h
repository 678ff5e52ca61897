/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Buffers: memory given, given back, refused. */
#pragma once

/* The Buffer of a track_allocate or deallocate_impl, as the object that has the
 * fields; 0 where it cannot be read. */
static __always_inline u64 buffer_object(const struct layout *l, u64 buffer)
{
	u64 impl = 0;

	if (l->buffer_impl == NO_FIELD)
		return buffer;
	if (!read_u64(buffer + l->buffer_impl, &impl))
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

/* BankManager::allocate_buffer(size, page_size, bottom_up, grid, num_shards, …):
 * what allocate_impl will have got if nothing is thrown. */
static __always_inline void bank_allocate(struct pt_regs *ctx, struct thread *t)
{
	t->request.manager = ctx->di;
	t->request.size_bytes = ctx->si;
	t->request.page_size_bytes = ctx->dx;
	t->request.shards = ctx->r9;
}

/* GraphTracker::track_allocate(Buffer *): address and status are set. */
static __always_inline void buffer_allocated(struct pt_regs *ctx, u32 library, u64 bias,
					     u32 tgid, const struct layout *l, struct thread *t)
{
	u64 object = buffer_object(l, ctx->si), unique_id, device, allocator;
	struct bank_request request = t->request;
	struct buffer_record *r;
	u8 window[BUFFER_WINDOW];

	/* without a request no bank was asked: a hooked or an empty buffer */
	if (!request.manager)
		return;
	t->request.manager = 0;
	if (bpf_probe_read_user(window, BUFFER_WINDOW, (void *)(object + l->window)) ||
	    !read_u64(object + l->unique_id, &unique_id)) {
		count_lost(LOST_BUFFER_UNREADABLE);
		return;
	}
	device = window_u64(window, l->device);
	allocator = window_u64(window, l->allocator);
	meet_allocator(library, bias, tgid, device, allocator, 0);

	r = RESERVE(struct buffer_record, RECORD_ALLOC, library);
	if (!r)
		return;
	r->request = request;
	r->object = ctx->si;
	r->unique_id = unique_id;
	r->device = device;
	r->allocator = allocator;
	__builtin_memcpy(r->window, window, BUFFER_WINDOW);
	send(r);
}

/* deallocate_impl: does nothing unless the status is "allocated". */
static __always_inline void buffer_deallocate(struct pt_regs *ctx, u32 library,
					      const struct layout *l)
{
	u64 object, buffer;
	struct free_record *r;

	if (l->dealloc_has_impl) {
		object = ctx->di;
		buffer = ctx->si;
	} else {
		buffer = ctx->di;
		object = buffer_object(l, buffer);
	}
	r = RESERVE(struct free_record, RECORD_FREE, library);
	if (!r)
		return;
	r->object = buffer;
	if (bpf_probe_read_user(r->window, BUFFER_WINDOW, (void *)(object + l->window)) ||
	    !read_u64(object + l->unique_id, &r->unique_id)) {
		count_lost(LOST_BUFFER_UNREADABLE);
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return;
	}
	if (l->status >= BUFFER_WINDOW || r->window[l->status & 127] != 1) {
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
		return;
	}
	send(r);
}

/* __cxa_throw(object, type, destructor) called from the library, while the
 * thread waits for memory or checks a program's static region. The library
 * throws std::runtime_error, whose text's pointer follows the vtable. */
static __always_inline void thrown(struct pt_regs *ctx, u32 library, struct thread *t)
{
	struct failed_record *r;
	u64 text = 0;

	if (!t->request.manager && t->phase != PHASE_VALIDATE_CBS &&
	    t->phase != PHASE_VALIDATE_DFBS)
		return;
	r = RESERVE(struct failed_record, RECORD_FAILED, library);
	if (!r)
		return;
	r->request = t->request;
	r->device = 0;
	r->program_id = 0;
	if (!t->request.manager) {
		r->device = t->device;
		r->program_id = t->program_id;
		r->h.static_kind = t->phase;
	}
	t->request.manager = 0;
	t->phase = PHASE_NONE;
	r->message[0] = 0;
	if (read_u64(ctx->di + 8, &text))
		bpf_probe_read_user_str(r->message, MAX_MESSAGE, (void *)text);
	send(r);
}
