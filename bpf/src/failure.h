/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Failures: exceptions of the library and of the files beside it. The thread's stack shows what it
 * was doing, so that nothing has to be recorded in the normal case.
 *
 * The probes are on the stubs through which these files call the constructors of
 * std::runtime_error, std::logic_error and std::invalid_argument, and not on __cxa_throw: code that
 * throws other exceptions, and code of other files, pays nothing. __cxa_begin_catch shows which
 * exceptions the library catches itself. */
#pragma once

/* The number of stack words to search: building the text of an exception takes a few KiB of
 * stack. */
#define STACK_WORDS 4096
/* The distance above allocate_impl's return address to search for its Buffer: the functions in
 * between save it in their frames. */
#define FRAME_BYTES 512

/* The number of words for one call of a search, which are read at once. */
#define WORDS_A_CALL SCANNED_WORDS

static __always_inline bool inside(u64 address, u64 bias, const struct code *c)
{
	return address - bias - c->start < c->end - c->start;
}

/* What a return address on the stack says about the thread's work: FAILED_*, or 0. Global, so that the
 * verifier checks it once. */
__noinline u32 doing(u32 library, u64 bias, u64 word)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);

	if (!l)
		return 0;
	if (inside(word, bias, &l->allocate))
		return FAILED_ALLOCATE;
	if (inside(word, bias, &l->validate_cbs))
		return FAILED_VALIDATE_CBS;
	if (inside(word, bias, &l->validate_dfbs))
		return FAILED_VALIDATE_DFBS;
	return 0;
}

/* Checks whether the calls of a complete stack show the thread's work. */
__noinline int find_call(struct stack_scan *s, struct unwinder *u)
{
	if (!s || !u)
		return 0;
	for (u32 i = 0; i < MAX_FRAMES; i++) {
		if (i >= u->native.frames)
			break;
		s->call = u->native.addresses[i] + 1;
		s->what = doing(s->library, s->bias, s->call);
		if (s->what)
			return 1;
	}
	return 0;
}

/* Reads the next words of a thread's stack, up to the end of the page; returns their number. */
static __always_inline u32 next_words(struct unwinder *u, u64 at)
{
	u32 n = (PAGE_BYTES - (at & (PAGE_BYTES - 1))) / 8;

	if (n > WORDS_A_CALL)
		n = WORDS_A_CALL;
	if (!n)
		n = 1;
	barrier_var(n);
	if (n > WORDS_A_CALL || bpf_probe_read_user(u->record.words, n * 8, (void *)at))
		return 0;
	return n;
}

/* Searches the next words for the return address that shows the thread's work. Returns 0 when the
 * search is over. */
__noinline int find_caller(struct unwinder *u, struct stack_scan *s)
{
	u32 what, n;
	u64 word;

	if (!u || !s)
		return 0;
	n = next_words(u, s->at);
	for (u32 i = 0; i < WORDS_A_CALL; i++) {
		if (i >= n)
			break;
		word = u->record.words[i];
		what = doing(s->library, s->bias, word);
		if (what && (s->call ? word == s->call : follows_call(word))) {
			s->what = what;
			s->found = s->at;
			return 0;
		}
		s->at += 8;
	}
	return n;
}

__noinline int find_callers(struct unwinder *u, struct stack_scan *s)
{
	for (u32 i = 0; i < STACK_WORDS / WORDS_A_CALL; i++)
		if (!find_caller(u, s))
			break;
	return 0;
}

/* Returns whether a Buffer waits for memory: it has a size, no memory yet, and its device has the
 * vtable of a Device or MeshDevice. Global, so that the verifier checks it once. */
__noinline int lacks_memory(u32 library, u64 bias, u64 buffer)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 object, device, vtable = 0;
	u8 status = 1;

	if (!l || buffer < PAGE_BYTES || buffer & 7)
		return false;
	object = buffer_object(NULL, l, buffer);
	if (!object ||
	    bpf_probe_read_user(&status, 1, (void *)(object + l->window + l->status)) || status ||
	    !read_u64(object + l->window + l->device, &device) || !read_u64(device, &vtable))
		return false;
	return vtable == bias + l->device_vtable || vtable == bias + l->mesh_vtable;
}

/* Stores a discovered Buffer; 0 if there is no more room. Global, so that the verifier checks it once. */
__noinline int note_buffer(struct stack_scan *s, u64 buffer)
{
	if (!s)
		return false;
	for (int n = 0; n < FAILED_BUFFERS; n++) {
		if (s->buffers[n] == buffer)
			return true;
		if (!s->buffers[n]) {
			s->buffers[n] = buffer;
			return n < FAILED_BUFFERS - 1;
		}
	}
	return false;
}

/* Checks the next words for the Buffer that waits for memory. Returns 0 when the search is over. */
__noinline int find_buffer(struct unwinder *u, struct stack_scan *s)
{
	u64 word;
	u32 n;

	if (!u || !s)
		return 0;
	n = next_words(u, s->at);
	for (u32 i = 0; i < WORDS_A_CALL; i++) {
		if (i >= n)
			break;
		if (s->at >= s->limit)
			return 0;
		s->at += 8;
		word = u->record.words[i];
		if (lacks_memory(s->library, s->bias, word) && !note_buffer(s, word))
			return 0;
	}
	return n;
}

__noinline int find_buffers(struct unwinder *u, struct stack_scan *s)
{
	for (u32 i = 0; i < STACK_WORDS / WORDS_A_CALL; i++)
		if (!find_buffer(u, s))
			break;
	return 0;
}

/* Finds out what the thread was doing. Without a complete stack, words on the stack are taken for
 * calls, and one of them may remain from an earlier call. */
HANDLER void find_work(const struct hit *h, struct stack_scan *s)
{
	s->at = s->found = h->ctx->sp;
	s->bias = h->bias;
	s->library = h->library;
	s->what = 0;
	s->call = 0;
	if (!h->u || h->library == NO_LIBRARY ||
	    (take_stacks && h->u->end == END_START && !find_call(s, h->u)))
		return;
	find_callers(h->u, s);
}

/* Copies a Buffer's fields into a record. */
static __always_inline void fill_failed(struct failed_buffer *b, u64 buffer, const struct layout *l)
{
	u64 object;

	b->object = buffer;
	b->unique_id = 0;
	b->per_core = 0;
	__builtin_memset(b->window, 0, BUFFER_WINDOW);
	if (!buffer || !l)
		return;
	object = buffer_object(NULL, l, buffer);
	if (bpf_probe_read_user(b->window, BUFFER_WINDOW, (void *)(object + l->window)) ||
	    !read_u64(object + l->unique_id, &b->unique_id))
		count_lost(LOST_BUFFER_UNREADABLE);
	b->per_core = is_per_core(l, object);
}

/* std::runtime_error(const std::string &), or with a C string if is_text: records the exception that
 * is being made. A std::string begins with a pointer to its text. */
HANDLER void exception_made(const struct hit *h, struct thread *t, bool is_text)
{
	struct stack_scan *s = &t->scan;
	struct failed_record *r = RECORD_OF(h, failed);
	u64 text = h->ctx->si;
	long bytes = 0;

	find_work(h, s);
	t->exception = h->ctx->di;

	for (int n = 0; n < FAILED_BUFFERS; n++)
		s->buffers[n] = 0;
	if (s->what == FAILED_ALLOCATE) {
		s->limit = s->found + FRAME_BYTES;
		s->at = h->ctx->sp;
		find_buffers(h->u, s);
	}
	if (!r)
		return;
	fill_header(&r->h, RECORD_FAILED, h->library);
	r->h.stack = h->stack;
	r->h.flags = s->what;
	r->request = t->request;
	t->request.shards = 0;
	for (int n = 0; n < FAILED_BUFFERS; n++)
		fill_failed(&r->buffers[n], s->buffers[n], h->l);
	r->device = t->device;
	r->program_id = t->program_id;
	r->exception = t->exception;
	if (is_text || read_u64(text, &text))
		bytes = bpf_probe_read_user_str(r->message, MAX_MESSAGE, (void *)text);
	SEND_WITH(r, message, bytes < 0 ? 0 : bytes);
}

/* of <unwind.h> and libstdc++: a thrown object follows its header, whose first word is its class. A
 * dependent exception, of std::rethrow_exception, begins with the object that was thrown first. */
#define UNWIND_HEADER 32
#define DEPENDENT_CLASS 1
#define DEPENDENT_HEADER 80
/* Before UNWIND_HEADER: the number of handlers that run for the exception; 0 when it is freed. */
#define HANDLER_COUNT 40

/* __cxa_begin_catch(header), __cxa_rethrow() and std::rethrow_exception(exception_ptr &): whether an
 * exception that was reported is thrown. An exception_ptr is a pointer to what was thrown, perhaps by
 * another thread. */
HANDLER void caught(const struct hit *h, u32 probe)
{
	struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	u64 at = h->ctx->di, exception = at + UNWIND_HEADER, class = 0;
	struct caught_record r;
	s32 handlers = 0;

	if (!t)
		return;
	if (probe == PROBE_RETHROW_EXCEPTION) {
		if (!read_u64(at, &t->exception))
			return;
	} else if (probe == PROBE_CATCH) {
		if (!read_u64(at, &class) || ((class & 0xff) == DEPENDENT_CLASS &&
					      !read_u64(at - DEPENDENT_HEADER, &exception)))
			return;
		t->other = exception == t->exception ? 0 : at;
		if (t->other)
			return;
	} else if (t->other && !bpf_probe_read_user(&handlers, sizeof(handlers), (void *)(t->other - HANDLER_COUNT)) &&
		   handlers > 0) {
		return; /* the other one is thrown again */
	}
	if (!t->exception)
		return;
	fill_header(&r.h, RECORD_CAUGHT, h->library);
	r.h.flags = probe == PROBE_CATCH ? 0 : CAUGHT_THROWN_AGAIN;
	r.exception = t->exception;
	SEND(r);
}
