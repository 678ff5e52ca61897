/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Moments that a process names. */
#pragma once

/* ttmem_mark(const char *name), which does nothing else: python/ttmem/mark.c. A process that is not listed
 * maps no library: a mark alone is no reason to trace it. */
HANDLER void marked(const struct hit *h)
{
	struct mark_record r = {};
	u32 tgid = h->tgid;
	long bytes;

	if (!bpf_map_lookup_elem(&processes, &tgid))
		return;
	bytes = bpf_probe_read_user_str(r.name, MAX_MARK_NAME, (void *)h->ctx->di);
	fill_header(&r.h, RECORD_MARK, 0);
	send(&r, SIZE_WITH(&r, name, bytes < 0 ? 0 : bytes), sizeof(r));
}
