/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* One hit of a library's probe, as passed to its handler. */
#pragma once

/* on_probe takes the stack before it calls the handler. The unwinder is the deepest chain of
 * calls, and its frames must not add up with a handler's, so a handler with large variables is
 * a separate function (HANDLER). Linux allows a chain 512 bytes. bpf/budget_test.go counts
 * them. */
#define HANDLER static __noinline
struct hit {
	struct pt_regs *ctx;
	const struct layout *l;
	struct unwinder *u; /* NULL: no memory for it */
	u64 bias;
	u32 library;
	u32 tgid;
	struct stack_ids stack; /* 0, 0: no stack */
};

static __always_inline struct memory *memory_of(const struct hit *h)
{
	return h->u ? &h->u->memory : NULL;
}

/* Returns where a record is filled that is too large for the stack; NULL if there is no memory. */
#define RECORD_OF(h, member)                                              \
	({                                                                \
		if (!(h)->u)                                              \
			count_lost(LOST_NO_THREAD_STATE);                 \
		(h)->u ? &(h)->u->record.member : NULL;                   \
	})
