/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Functions whose calls are marks, chosen by the user. */
#pragma once

NO_PROGRAMS(after_mark);

/* The cookie is the number of the function's name. */
SEC("uprobe.multi")
int on_mark(struct pt_regs *ctx)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct header h;

	KEEP_THREAD_STACK(ctx, !ctx->ip, after_mark);
	if (!bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	fill_header(&h, RECORD_MARK, 0);
	h.count = bpf_get_attach_cookie(ctx);
	SEND(h);
	return 0;
}
