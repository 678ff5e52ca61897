/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Captured traces: programs that the device records and runs again without the host. */
#pragma once

/* begin_mesh_trace(queue, id &), end_mesh_trace(queue, id &), replay_mesh_trace(queue, id &, blocking)
 * and release_mesh_trace(id &) of a MeshDevice or, where there is one, of its MeshDeviceImpl. */
HANDLER void trace_steps(const struct hit *h, u32 step)
{
	u64 second = h->ctx->si, third = h->ctx->dx;
	struct trace_record r;

	barrier_var(second); /* as in saved_register */
	barrier_var(third);
	if (!read_half(memory_of(h), step == TRACE_RELEASE ? second : third, &r.id)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	fill_header(&r.h, RECORD_TRACE, h->library);
	r.h.stack = h->stack;
	r.h.static_kind = step;
	r.device = h->ctx->di;
	r.pad = 0;
	SEND(r);
}
