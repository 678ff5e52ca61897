/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Captured traces: programs that the device records and runs again without the host. */
#pragma once

/* begin_mesh_trace(queue, id &), end_mesh_trace(queue, id &), replay_mesh_trace(queue, id &, blocking)
 * and release_mesh_trace(id &) of a MeshDevice or, where there is one, of its MeshDeviceImpl. */
HANDLER void trace_steps(const struct hit *h, u32 step)
{
	u64 second = h->ctx->si, third = h->ctx->dx;
	struct trace_record *r;
	u32 id;

	barrier_var(second); /* as in saved_register */
	barrier_var(third);
	if (!read_u32(step == TRACE_RELEASE ? second : third, &id)) {
		count_lost(LOST_PROGRAM_UNREADABLE);
		return;
	}
	r = RESERVE(struct trace_record, RECORD_TRACE, h->library);
	if (!r)
		return;
	r->h.stack = h->stack;
	r->h.static_kind = step;
	r->device = h->ctx->di;
	r->id = id;
	r->pad = 0;
	send(r);
}
