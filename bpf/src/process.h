/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Processes: fork, exec and exit. Perf events report their mappings (tracer/host/watch.go): not
 * every kernel has a BPF hook for these. */
#pragma once

/* Flags of struct process. User space sets all but the last. */
enum process_flag {
	PROCESS_FOLLOW = 1, /* trace its children as well */
	PROCESS_LATE = 2,   /* it may have compiled programs before the attach */
	/* not kept: user space has dropped code objects of Python, and so all are reported again */
	PROCESS_FORGET_CODE = 4,
	/* A thread other than its first one has executed a program: for the kernel, probes that were
	 * placed before are those of a thread that has ended. */
	PROCESS_NEW_LEADER = 8,
};

/* A thread's process and the exec_id of its program; 0: the thread has ended. */
struct program_of {
	u64 exec_id;
	u32 tgid;
	u32 pad;
};

/* Lists the programs of threads, for processes that user space finds. */
SEC("iter/task")
int list_programs(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct program_of p = {};

	if (!task)
		return 0;
	p.tgid = task->tgid;
	p.exec_id = exec_id_of(task);
	bpf_seq_write(ctx->meta->seq, &p, sizeof(p));
	return 0;
}

/* Changes the entry of a process for user space. args: its tgid, the exec_id of the program that is
 * meant, flags to set, and the slot of its space, if that changes. It changes the entry in place, because
 * an exec may do so at the same time. Returns whether the process runs that program. */
SEC("raw_tp")
int change_process(const u64 *args)
{
	u32 tgid = args[0], flags = args[2], space = args[3];
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);

	if (!p || p->exec_id != args[1])
		return 0;
	if (flags & PROCESS_FORGET_CODE) {
		__sync_fetch_and_add(&p->forgotten_code, 1);
		__sync_fetch_and_add(&code_deaths, 1);
	}
	__sync_fetch_and_or(&p->flags, flags & ~PROCESS_FORGET_CODE);
	if (space && p->space != space) {
		p->inherited = 0;
		__sync_lock_test_and_set(&p->space, space);
	}
	if (p->exec_id == args[1])
		return 1;
	__sync_fetch_and_and(&p->flags, ~PROCESS_LATE); /* it has executed another program meanwhile */
	p->space = 0;
	return 0;
}

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
	copy.flags &= ~PROCESS_NEW_LEADER;
	copy.exec_id = exec_id_of(child);
	s = copy.space ? space_at(copy.space) : NULL;
	if (s && !copy.inherited)
		copy.inherited = s->generation;
	if (bpf_map_update_elem(&processes, &to, &copy, BPF_ANY))
		count_lost(LOST_MAP_FULL);
	return 0;
}

/* exec_id: of the program that ended or, after an exec, of the new one. */
static __always_inline int process_ended(u8 kind, u64 exec_id, s32 exit_code)
{
	struct process_record r = {.exit_code = exit_code};

	fill_header(&r.h, kind, 0);
	r.h.exec_id = exec_id; /* at its exit, a process has no address space any more */
	send_now(&r, sizeof(r), LOST_RING_FULL);
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
	bpf_map_delete_elem(&homes, &tgid);
	if (old_tid != tgid)
		__sync_fetch_and_or(&p->flags, PROCESS_NEW_LEADER); /* before who reads the exec_id needs it */
	p->exec_id = this_exec_id(); /* first: see change_process */
	__sync_fetch_and_and(&p->flags, ~PROCESS_LATE);
	p->inherited = 0;
	__sync_lock_test_and_set(&p->space, 0);
	__sync_fetch_and_add(&cache_epoch, 1);
	return process_ended(RECORD_EXEC, p->exec_id, 0);
}

NO_PROGRAMS(after_exit);

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct process *p;
	u64 exec_id;

	KEEP_THREAD_STACK(ctx, (s32)tgid < 0, after_exit);
	drop_unwinders(bpf_get_current_pid_tgid());
	/* the last thread of a process sets the count to 0 before it gets here */
	if (task->signal->live.counter > 0)
		return 0;
	p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p)
		return 0;
	exec_id = p->exec_id;
	remove_process(tgid, p->user);
	bpf_map_delete_elem(&homes, &tgid);
	__sync_fetch_and_add(&cache_epoch, 1);
	return process_ended(RECORD_EXIT, exec_id,
			     task->signal->group_exit_code ?: task->exit_code);
}
