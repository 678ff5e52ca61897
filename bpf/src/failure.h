/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Failures: what the library throws while it allocates or checks a program's
 * static region. What the thread was doing is read off its stack, so that nothing
 * has to be noted while all goes well. */
#pragma once

/* How many words of the stack are looked at: building the text of an exception
 * takes a few KiB of it. */
#define STACK_WORDS 4096
/* How far above allocate_impl's return address its Buffer is looked for: the
 * functions in between save it in their frames. */
#define FRAME_BYTES 512

struct stack_scan {
	u64 at;
	u64 limit;
	u64 bias;
	u64 found; /* where on the stack */
	u64 buffers[FAILED_BUFFERS];
	u32 library;
	u32 what; /* FAILED_* */
};

static __always_inline bool inside(u64 address, u64 bias, const struct code *c)
{
	return address - bias >= c->start && address - bias < c->end;
}

/* One word of the search for a return address. */
static long find_caller(u64 i, struct stack_scan *s)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &s->library);
	u64 word;

	if (!l || !read_u64(s->at, &word))
		return 1;
	if (inside(word, s->bias, &l->allocate))
		s->what = FAILED_ALLOCATE;
	else if (inside(word, s->bias, &l->validate_cbs))
		s->what = FAILED_VALIDATE_CBS;
	else if (inside(word, s->bias, &l->validate_dfbs))
		s->what = FAILED_VALIDATE_DFBS;
	if (s->what && follows_call(word)) {
		s->found = s->at;
		return 1;
	}
	s->what = 0;
	s->at += 8;
	return 0;
}

/* One word of the search for the Buffer that memory was asked for: one that has a
 * size, no memory yet, and a Device's or MeshDevice's vtable behind its device. */
static long find_buffers(u64 i, struct stack_scan *s)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &s->library);
	u64 word, object, device, vtable = 0;
	u8 status = 1;

	if (!l || s->at >= s->limit || !read_u64(s->at, &word))
		return 1;
	s->at += 8;
	if (word < 4096 || word & 7)
		return 0;
	object = buffer_object(NULL, l, word);
	if (!object ||
	    bpf_probe_read_user(&status, 1, (void *)(object + l->window + l->status)) || status ||
	    !read_u64(object + l->window + l->device, &device) || !read_u64(device, &vtable))
		return 0;
	if (vtable != s->bias + l->device_vtable && vtable != s->bias + l->mesh_vtable)
		return 0;
	for (int n = 0; n < FAILED_BUFFERS; n++) {
		if (s->buffers[n] == word)
			return 0;
		if (!s->buffers[n]) {
			s->buffers[n] = word;
			return n == FAILED_BUFFERS - 1;
		}
	}
	return 1;
}

/* Takes what is known of a Buffer. */
static __always_inline void fill_failed(struct failed_buffer *b, u64 buffer, const struct layout *l)
{
	u64 object;

	b->object = buffer;
	b->unique_id = 0;
	__builtin_memset(b->window, 0, BUFFER_WINDOW);
	if (!buffer)
		return;
	object = buffer_object(NULL, l, buffer);
	if (bpf_probe_read_user(b->window, BUFFER_WINDOW, (void *)(object + l->window)) ||
	    !read_u64(object + l->unique_id, &b->unique_id))
		count_lost(LOST_BUFFER_UNREADABLE);
}

/* __cxa_throw(object, type, destructor), called from the library. The library
 * throws std::runtime_error, whose text's pointer follows the vtable. */
static __always_inline void thrown(struct pt_regs *ctx, u32 library, u64 bias,
				   const struct layout *l, struct thread *t)
{
	struct stack_scan s = {.at = ctx->sp, .bias = bias, .library = library};
	struct stack_ids stack;
	struct failed_record *r;
	u64 text = 0;

	bpf_loop(STACK_WORDS, find_caller, &s, 0);
	if (!s.what)
		return;
	if (s.what == FAILED_ALLOCATE) {
		s.limit = s.found + FRAME_BYTES;
		s.at = ctx->sp;
		bpf_loop(STACK_WORDS, find_buffers, &s, 0);
	}
	stack = stack_of(ctx, this_unwinder());
	r = RESERVE(struct failed_record, RECORD_FAILED, library);
	if (!r)
		return;
	r->h.stack = stack;
	r->h.flags = s.what;
	r->request = t->request;
	t->request.shards = 0;
	for (int n = 0; n < FAILED_BUFFERS; n++)
		fill_failed(&r->buffers[n], s.buffers[n], l);
	r->device = t->device;
	r->program_id = t->program_id;
	r->message[0] = 0;
	if (read_u64(ctx->di + 8, &text))
		bpf_probe_read_user_str(r->message, MAX_MESSAGE, (void *)text);
	send(r);
}
