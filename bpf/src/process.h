/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Processes: fork, exec and exit. Perf events report their mappings (tracer/host/watch.go): not
 * every kernel has a BPF hook for these. */
#pragma once

/* Flags of struct process, set by user space. */
enum process_flag {
	PROCESS_FOLLOW = 1, /* trace its children as well */
	PROCESS_LATE = 2,   /* it may have compiled programs before the attach */
};

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	struct process *p, copy;
	struct space *s;

	if (from == to)
		return 0;
	p = bpf_map_lookup_elem(&processes, &from);
	if (!p || !(p->flags & PROCESS_FOLLOW))
		return 0;
	copy = *p;
	copy.user = 0;
	s = copy.space ? space_at(copy.space) : NULL;
	if (s && !copy.inherited)
		copy.inherited = s->generation;
	if (bpf_map_update_elem(&processes, &to, &copy, BPF_ANY))
		count_lost(LOST_MAP_FULL);
	return 0;
}

static __always_inline int process_ended(u8 kind, u32 tgid, s32 exit_code)
{
	struct process_record r = {.exit_code = exit_code};

	fill_header(&r.h, kind, 0);
	send_now(&r, sizeof(r));
	return 0;
}

NO_PROGRAMS(after_exec);

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid)
{
	u32 tgid = task->tgid;
	struct process *p;

	KEEP_THREAD_STACK(ctx, old_tid < 0, after_exec);
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	drop_unwinders(old_tid); /* the thread takes the process's id now */
	bpf_map_delete_elem(&executing, &tgid);
	bpf_map_delete_elem(&homes, &tgid);
	p->space = p->inherited = 0;
	p->flags &= ~PROCESS_LATE;
	__sync_fetch_and_add(&cache_epoch, 1);
	return process_ended(RECORD_EXEC, tgid, 0);
}

NO_PROGRAMS(after_exit);

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct process *p;

	KEEP_THREAD_STACK(ctx, (s32)tgid < 0, after_exit);
	drop_unwinders(bpf_get_current_pid_tgid());
	/* the last thread of a process sets the count to 0 before it gets here */
	if (task->signal->live.counter > 0)
		return 0;
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	remove_process(tgid, p->user);
	bpf_map_delete_elem(&executing, &tgid);
	bpf_map_delete_elem(&homes, &tgid);
	__sync_fetch_and_add(&cache_epoch, 1);
	return process_ended(RECORD_EXIT, tgid,
			     task->signal->group_exit_code ?: task->exit_code);
}
