// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* ttmem's kernel side. One program serves all the probes of a library, so that one uprobe_multi
 * link is enough: the cookie has the probe and the library. All are entry probes: a return probe
 * would kill the target when an exception passes through it. */
#include "vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "records.h"
#include "layout.h"
#include "maps.h"
#include "share.h"
#include "memory.h"
#include "words.h"
#include "space.h"
#include "unwind.h"
#include "python.h"
#include "stack.h"
#include "hit.h"
#include "device.h"
#include "buffer.h"
#include "failure.h"
#include "process.h"
#include "mark.h"
#include "uses.h"
#include "program.h"
#include "trace.h"

/* Keeps the records' types in the object, from which the Go types are made. */
#define KEEP(type) const struct type *keep_##type __attribute__((unused))
KEEP(header);
KEEP(buffer_record);
KEEP(per_core_record);
KEEP(free_record);
KEEP(transfer_record);
KEEP(failed_record);
KEEP(caught_record);
KEEP(clear_record);
KEEP(device_record);
KEEP(banks_record);
KEEP(cb_record);
KEEP(program_end_record);
KEEP(program_run);
KEEP(program_run_record);
KEEP(program_seen_record);
KEEP(kernel_record);
KEEP(trace_record);
KEEP(mark_record);
KEEP(process_record);
KEEP(native_record);
KEEP(python_record);
KEEP(code_record);
KEEP(program_of);
/* Keeps the enums that Go shares. */
struct shared_enums {
	enum probe probe;
	enum record_kind record_kind;
	enum lost_cause lost_cause;
	enum free_flag free_flag;
	enum transfer_flag transfer_flag;
	enum failed_flag failed_flag;
	enum caught_flag caught_flag;
	enum cookie cookie;
	enum device_flag device_flag;
	enum cb_flag cb_flag;
	enum static_kind static_kind;
	enum trace_step trace_step;
	enum banks_flag banks_flag;
	enum program_flag program_flag;
	enum uses_flag uses_flag;
	enum kernel_kind kernel_kind;
	enum process_flag process_flag;
	enum process_limit process_limit;
	enum loss_limit loss_limit;
	enum python_flag python_flag;
	enum stack_end stack_end;
	enum layout_limit layout_limit;
	enum table_index table_index;
	enum rules_limit rules_limit;
	enum direct_map_search direct_map_search;
	enum object_kind object_kind;
	enum object_limit object_limit;
	enum user_kind user_kind;
};
KEEP(shared_enums);
/* Only reached through pointers, from maps in maps. */
KEEP(chunk);
KEEP(space);

/* The kernel allows the helpers that ttmem needs only under this licence. */
char LICENSE[] SEC("license") = "GPL";

static __always_inline bool traced(u32 tgid)
{
	struct recent *last = last_hit();

	if (last && last->process == this_process(tgid))
		return true;
	if (!bpf_map_lookup_elem(&processes, &tgid) &&
	    (only_listed || tgid == own_tgid || !add_process(tgid)))
		return false;
	if (last)
		last->process = this_process(tgid);
	return true;
}

/* Returns whether to take the stack of a hit. */
static __always_inline bool has_stack(u32 probe, struct thread *t)
{
	switch (probe) {
	case PROBE_CB_ALLOCATE:
	case PROBE_PROGRAM_COMPILED:
	case PROBE_PROGRAM_CONFIGURE:
	case PROBE_PROGRAM_TRACK:
	case PROBE_TRACE_BEGIN:
	case PROBE_TRACE_END:
	case PROBE_TRACE_REPLAY:
	case PROBE_TRACE_RELEASE:
	case PROBE_BUFFER_WRITE:
	case PROBE_BUFFER_REPLICATE:
	case PROBE_BUFFER_READ:
		return true;
	case PROBE_CB_MARK:
		return t->phase == PHASE_DFBS || t->phase == PHASE_SCRATCHPADS;
	case PROBE_EXCEPTION:
	case PROBE_EXCEPTION_TEXT:
		return true;
	}
	return false;
}

/* Tells apart the libraries and places of a process; not 0. A bias is a multiple of the size of a page. */
static __always_inline u64 home_key(const struct hit *h)
{
	return (h->bias | h->library) + 1;
}

/* Notes which library the process has, and where. */
static __noinline void remember_home(const struct hit *h, struct thread *t)
{
	struct home home = {.bias = h->bias, .library = h->library};
	u32 tgid = h->tgid;

	if (bpf_map_update_elem(&homes, &tgid, &home, BPF_ANY))
		count_lost(LOST_MAP_FULL);
	else
		t->home = home_key(h);
}

NO_PROGRAMS(after_probe);

SEC("uprobe.multi")
int on_probe(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx);
	u32 probe = cookie & 0xff;
	struct hit h = {
		.ctx = ctx,
		.library = (cookie >> COOKIE_LIBRARY) & (MAX_LIBRARIES - 1),
		.tgid = bpf_get_current_pid_tgid() >> 32,
	};
	struct home *home;
	bool wanted;
	struct thread *t;
	u32 library = h.library;

	KEEP_THREAD_STACK(ctx, !ctx->ip, after_probe);
	if (probe == PROBE_MARK) {
		marked(&h);
		return 0;
	}
	if (!traced(h.tgid))
		return 0;
	if (probe >= PROBE_CATCH) {
		caught(&h, probe);
		return 0;
	}
	if (cookie & COOKIE_BESIDE) {
		home = bpf_map_lookup_elem(&homes, &h.tgid);
		h.library = library = home ? home->library : NO_LIBRARY;
		h.bias = home ? home->bias : 0;
	}
	h.l = bpf_map_lookup_elem(&layouts, &library);
	if (!h.l && !(cookie & COOKIE_BESIDE))
		return 0;
	if (h.l && !(cookie & COOKIE_BESIDE))
		h.bias = ctx->ip - h.l->probe_address[cookie & (MAX_PROBES - 1)];
	switch (h.l ? probe : 0) {
	case PROBE_BUFFER_ALLOCATED:
		h.u = this_unwinder(0);
		stack_of(ctx, h.u, &h.stack);
		if (!buffer_allocated(&h, false)) {
			buffer_device(&h);
			buffer_allocated(&h, true);
		}
		return 0;
	case PROBE_BUFFER_DEALLOCATE:
		h.u = this_unwinder(free_stacks ? OF_FREES : 0);
		if (free_stacks)
			stack_of(ctx, h.u, &h.stack);
		buffer_deallocate(&h);
		return 0;
	}
	t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0,
				 BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		count_lost(LOST_NO_THREAD_STATE);
		return 0;
	}
	/* at each run of a program, and nearly always of one that was loaded before */
	if (probe == PROBE_PROGRAM_BINARIES && h.l && !t->kernel_pending && !t->unloaded && t->home == home_key(&h)) {
		t->phase = PHASE_NONE;
		return 0;
	}
	h.u = this_unwinder(0);
	if ((cookie & COOKIE_BESIDE) && !h.l)
		t->home = 0; /* the process has begun another program */
	wanted = has_stack(probe, t);
	if (wanted)
		stack_of(ctx, h.u, &h.stack);
	switch (probe) {
	case PROBE_EXCEPTION:
	case PROBE_EXCEPTION_TEXT:
		exception_made(&h, t, probe == PROBE_EXCEPTION_TEXT);
		return 0;
	}
	if (!h.l)
		return 0;
	if (t->home != home_key(&h))
		remember_home(&h, t);
	if (t->kernel_pending) {
		report_scratchpads(&h, t);
		kernel_compiled(&h, t);
	}
	switch (probe) {
	case PROBE_BANK_SHARDS:
		bank_shards(&h, t);
		break;
	case PROBE_ALLOCATOR_CLEAR:
		allocator_clear(&h);
		break;
	case PROBE_DEVICE_READY:
		device_ready(&h);
		break;
	case PROBE_PROGRAM_CBS:
		t->unloaded = 0;
		enter_program(&h, t, PHASE_CBS);
		break;
	case PROBE_PROGRAM_DFBS:
		enter_program(&h, t, PHASE_DFBS);
		break;
	case PROBE_PROGRAM_SCRATCHPADS:
		enter_program(&h, t, PHASE_SCRATCHPADS);
		break;
	case PROBE_VALIDATE_CB:
	case PROBE_VALIDATE_DFB:
		enter_program(&h, t, PHASE_NONE);
		break;
	case PROBE_CB_ALLOCATE:
		cb_allocate(&h, t);
		break;
	case PROBE_CB_MARK:
		if (wanted)
			cb_mark(&h, t);
		break;
	case PROBE_CB_INVALIDATE:
		program_gives_up(&h, PROGRAM_CBS);
		break;
	case PROBE_DFB_INVALIDATE:
		program_gives_up(&h, PROGRAM_DFBS);
		break;
	case PROBE_CB_DEALLOCATE:
		program_gives_up(&h, PROGRAM_CBS | PROGRAM_DFBS);
		break;
	case PROBE_PROGRAM_DESTROY:
		program_gives_up(&h, PROGRAM_CBS | PROGRAM_DFBS | PROGRAM_KERNELS | PROGRAM_KNOWN);
		break;
	case PROBE_PROGRAM_COMPILED:
		enter_program(&h, t, PHASE_NONE);
		program_compiled(&h, t);
		break;
	case PROBE_PROGRAM_BINARIES:
		t->phase = PHASE_NONE;
		binaries_loaded(&h, t);
		break;
	case PROBE_PROGRAM_CONFIGURE:
		t->phase = PHASE_NONE;
		ensure_device(&h, ctx->di);
		program_configured(&h);
		break;
	case PROBE_PROGRAM_TRACK:
		t->phase = PHASE_NONE;
		ensure_device(&h, ctx->dx);
		program_tracked(&h);
		break;
	case PROBE_TRACE_BEGIN:
	case PROBE_TRACE_END:
	case PROBE_TRACE_REPLAY:
	case PROBE_TRACE_RELEASE:
		trace_steps(&h, TRACE_BEGIN + probe - PROBE_TRACE_BEGIN);
		break;
	case PROBE_BANKS_SHRINK:
	case PROBE_BANKS_RESET:
		banks_change(&h, probe == PROBE_BANKS_SHRINK);
		break;
	case PROBE_BUFFER_WRITE:
	case PROBE_BUFFER_REPLICATE:
	case PROBE_BUFFER_READ:
		if (read_uses)
			buffer_transferred(&h, probe);
		break;
	}
	return 0;
}

/* Does nothing, to measure the cost of a probe alone. */
SEC("uprobe.multi")
int on_empty(struct pt_regs *ctx)
{
	return 0;
}
