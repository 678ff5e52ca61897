/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What all users share, and each user's limits: the ring buffer, the table of objects, the state
 * of threads, the tables of processes and of losses. */
#pragma once

/* A user with all processes. For root, a single process, as root's containers run anything, or what runs
 * in a user namespace that root made. */
struct user {
	u64 lap;	  /* of the ring buffer */
	u64 lap_bytes;	  /* written in that lap, beyond the common half */
	u32 objects;	  /* entries in the table of objects */
	u32 threads;	  /* entries in the table of unwinders */
	u32 processes;	  /* entries in the table of processes that hits added */
	u32 losses;	  /* entries added to the table of losses since it was last taken out */
	u64 lost_taken;	  /* the value of lost_taken when these were counted */
	u64 period_ns;	  /* when the present minute began: see may_add */
	u32 stacks;	  /* entries added in it to the table of stacks */
	u32 use_places;	  /* and to that of places of what programs use */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct user);
} users SEC(".maps");

enum user_kind {
	PROCESS_OF_ROOT = 1,   /* with the process's id */
	NAMESPACE_OF_ROOT = 2, /* with the namespace's number */
};
/* as the kernel limits it */
#define NESTED_NAMESPACES 33

/* Returns whose share the running thread uses. A user may have thousands of other users' ids in
 * namespaces: they count as the owner of the outermost one below the host's. */
static __always_inline u64 find_user_id(void)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	u32 uid = bpf_get_current_uid_gid(), inum = 0;
	struct user_namespace *ns = NULL;
	const struct cred *cred = NULL;
	int level = 0;

	/* as memory: see space_of() */
	bpf_probe_read_kernel(&cred, sizeof(cred), &task->cred);
	bpf_probe_read_kernel(&ns, sizeof(ns), &cred->user_ns);
	bpf_probe_read_kernel(&level, sizeof(level), &ns->level);
	if (level > 0) {
		for (u32 i = 0; i < NESTED_NAMESPACES && level > 1; i++, level--)
			bpf_probe_read_kernel(&ns, sizeof(ns), &ns->parent);
		bpf_probe_read_kernel(&uid, sizeof(uid), &ns->owner.val);
		bpf_probe_read_kernel(&inum, sizeof(inum), &ns->ns.inum);
		if (!uid)
			return (u64)NAMESPACE_OF_ROOT << 32 | inum;
	}
	return uid ? uid : (u64)PROCESS_OF_ROOT << 32 | bpf_get_current_pid_tgid() >> 32;
}

/* Global, so that the verifier checks the walk once. */
__noinline u64 user_id(void)
{
	return find_user_id();
}

static const struct user new_user;

static __always_inline struct user *find_user(u64 id)
{
	struct user *u = bpf_map_lookup_elem(&users, &id);

	if (u)
		return u;
	bpf_map_update_elem(&users, &id, &new_user, BPF_NOEXIST);
	return bpf_map_lookup_elem(&users, &id);
}

#define PERIOD_NS (60 * 1000000000ull)

/* Counts an entry that a user adds to a table in which old entries make room for new ones; false if the user has
 * added enough in this minute. */
static __always_inline bool may_add(struct user *u, u32 *added, u32 most, u64 now)
{
	if (now - u->period_ns > PERIOD_NS) {
		u->period_ns = now;
		u->stacks = u->use_places = 0;
	}
	if (*added >= most)
		return false;
	__sync_fetch_and_add(added, 1);
	return true;
}

static const struct loss no_loss;

/* Counts a loss of the running process. Once a user's share of the table is full, one row counts
 * all further processes. Global, so that the verifier checks it once. */
__noinline int count_lost(u32 cause)
{
	struct loss_key k = {
		.exec_id = this_exec_id(), .tgid = bpf_get_current_pid_tgid() >> 32, .cause = cause,
	};
	struct loss *l = bpf_map_lookup_elem(&lost, &k);
	struct user *u;
	u64 user;

	if (!l) {
		user = user_id();
		u = find_user(user);
		if (u && u->lost_taken != lost_taken) {
			u->lost_taken = lost_taken;
			u->losses = 0;
		}
		if (u && u->losses >= LOSSES_A_USER) {
			k.exec_id = k.tgid = 0;
			k.uid = user >> 32 ? 0 : user;
			k.cause = LOST_OF_USER;
		}
		if (!bpf_map_update_elem(&lost, &k, &no_loss, BPF_NOEXIST) && u)
			__sync_fetch_and_add(&u->losses, 1);
		l = bpf_map_lookup_elem(&lost, &k);
	}
	if (l) {
		l->time_ns = bpf_ktime_get_ns();
		__sync_fetch_and_add(&l->count, 1);
	} else {
		__sync_fetch_and_add(&lost_unattributed, 1);
	}
	__sync_fetch_and_add(&lost_records, 1);
	return 0;
}

/* The ring buffer. All may fill one half of it: a noisy program loses records only if the reader
 * stays behind for long. The second half is shared equally in each lap, so that quiet users always
 * find room; a lap is the time in which the reader consumes half a ring. */
#define SHARED_BYTES (RING_BYTES / 2)
u64 ring_lap;
u32 ring_users; /* users who have written beyond the first half */

__noinline int within_share(u32 bytes)
{
	u64 now = bpf_ringbuf_query(&records, BPF_RB_CONS_POS) / SHARED_BYTES + 1;
	struct user *u = find_user(find_user_id()); /* inline: the calls are as deep as the verifier allows */

	if (!u)
		return 0;
	if (ring_lap != now) {
		ring_lap = now;
		ring_users = 0;
	}
	if (u->lap != now) {
		u->lap = now;
		u->lap_bytes = 0;
		__sync_fetch_and_add(&ring_users, 1);
	}
	/* Twice the users, because later users find the parts of earlier ones taken. The number is
	 * 0 for a moment if two hits begin a lap. */
	if ((u->lap_bytes + bytes) * 2 * (ring_users ?: 1) > SHARED_BYTES)
		return 0;
	__sync_fetch_and_add(&u->lap_bytes, bytes);
	return 1;
}

/* Returns whether the running process may write a record. */
static __always_inline bool may_write(u32 bytes)
{
	return bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) < SHARED_BYTES || within_share(bytes);
}

/* Linux 6.10 and later. Weak, so that the object loads without them. */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* Copies a complete record to the ring; false if there is no room. The reader takes records in their
 * order, and so all wait for one that is being written. So no record is written while its contents
 * are read, and the kernel preempts no thread meanwhile if a program can forbid it. */
static __always_inline bool write_record(void *record, u64 bytes, u64 flags)
{
	long failed;

	if (bpf_preempt_disable)
		bpf_preempt_disable();
	failed = bpf_ringbuf_output(&records, record, bytes, flags);
	if (bpf_preempt_enable)
		bpf_preempt_enable();
	return !failed;
}

/* Sends the first bytes of a record within the share of its user, without counting a loss. Waking the
 * reader costs more than everything else together. The reader polls every few milliseconds instead; no
 * target fills the buffer in that time. */
static __always_inline bool try_send(void *record, u64 bytes, u64 most)
{
	if (!may_write(bytes))
		return false;
	/* Linux 6.1's verifier loses the limit of a saved value */
	barrier_var(bytes);
	return bytes <= most && write_record(record, bytes, BPF_RB_NO_WAKEUP);
}

static __always_inline bool send(void *record, u64 bytes, u64 most)
{
	bool sent = try_send(record, bytes, most);

	if (!sent)
		count_lost(LOST_RING_FULL);
	return sent;
}

/* Sends a record that is on the stack. */
#define SEND(record) send(&(record), sizeof(record), sizeof(record))
/* Returns the size of a record that ends with n items of a list. */
#define SIZE_WITH(record, list, n) \
	(offsetof(typeof(*(record)), list) + (u64)(n) * sizeof((record)->list[0]))
/* Sends a record that ends with n items of a list. */
#define SEND_WITH(record, list, n) send(record, SIZE_WITH(record, list, n), sizeof(*(record)))

/* For records that user space has to handle at once. They are not limited by the user's share,
 * because the state of a process depends on them. cause: what a lost one counts as. */
static __always_inline void send_now(void *record, u64 bytes, u32 cause)
{
	if (!write_record(record, bytes, BPF_RB_FORCE_WAKEUP))
		count_lost(cause);
}

/* Adds the running process to the table of processes; false if there is no room for it. */
static __noinline bool add_process(u32 tgid)
{
	struct process p = {.user = user_id(), .exec_id = this_exec_id()};
	struct user *u = find_user(p.user);

	if (!u || u->processes >= PROCESSES_A_USER) {
		count_lost(LOST_TOO_MANY_PROCESSES);
		return false;
	}
	if (bpf_map_update_elem(&processes, &tgid, &p, BPF_NOEXIST)) {
		if (bpf_map_lookup_elem(&processes, &tgid)) /* by another thread */
			return true;
		count_lost(LOST_MAP_FULL);
		return false;
	}
	__sync_fetch_and_add(&u->processes, 1);
	return true;
}

/* Removes a process from the table. */
static __always_inline void remove_process(u32 tgid, u64 user)
{
	struct user *u;

	if (bpf_map_delete_elem(&processes, &tgid))
		return;
	u = bpf_map_lookup_elem(&users, &user);
	if (u && u->processes)
		__sync_fetch_and_sub(&u->processes, 1);
}

/* Objects that user space knows. */
enum object_kind {
	OBJECT_ALLOCATOR, /* value: its device */
	/* value: the chip's id: another chip's Device may later lie at the address of a closed one */
	OBJECT_DEVICE,
	OBJECT_PROGRAM, /* that holds circular buffers, dataflow buffers or kernels; value: its id */
	OBJECT_CODE,	/* of Python; value: its id, and above it the size of the code in bytes */
};
struct object_key {
	u32 tgid;
	u32 exec_id; /* its low bits */
	u64 object; /* its address, and its kind from bit OBJECT_KIND on */
};
enum object_limit {
	OBJECT_KIND = 60,
	MAX_OBJECTS = 524288,
	OBJECTS_A_USER = MAX_OBJECTS / 4,
};
struct object {
	u64 value;
	u64 user;
	u32 holds; /* of a program: PROGRAM_*; of code: the process's forgotten_code when it was reported */
	u32 tgid;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OBJECTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct object_key);
	__type(value, struct object);
} objects SEC(".maps");

/* Returns the key of an object of the running process. */
static __always_inline struct object_key key_of(enum object_kind kind, u64 address)
{
	return (struct object_key){
		.tgid = bpf_get_current_pid_tgid() >> 32,
		.exec_id = this_exec_id(),
		.object = address | (u64)kind << OBJECT_KIND,
	};
}

/* Finds an object by a key outside the stack, although Linux 6.1 wants the key on the stack. */
static __noinline struct object *find_object(const struct object_key *k)
{
	struct object_key key = *k;

	return bpf_map_lookup_elem(&objects, &key);
}

/* Adds an object, unless another thread has; 0 if there is no room for it. The key may be anywhere in
 * memory. Global, like the next ones, so that the verifier checks it once. */
__noinline int add_object(const struct object_key *k, u64 value, u32 holds)
{
	struct object o = {.value = value, .user = user_id(), .holds = holds};
	struct user *u = find_user(o.user);
	struct object_key key;

	if (!k)
		return false;
	key = *k;
	o.tgid = key.tgid;
	if (!u || u->objects >= OBJECTS_A_USER) {
		count_lost(LOST_TOO_MANY_OBJECTS);
		return false;
	}
	if (!bpf_map_update_elem(&objects, &key, &o, BPF_NOEXIST)) {
		__sync_fetch_and_add(&u->objects, 1);
		return true;
	}
	if (bpf_map_lookup_elem(&objects, &key))
		return true;
	count_lost(LOST_MAP_FULL);
	return false;
}

/* Changes an object that is known; 0 if there is none. Once another thread has removed an object, the
 * kernel gives its place to any other one at once. So nothing is written through a pointer to it, and what
 * is read is used only if it belongs to the same process. */
__noinline int change_object(const struct object_key *k, u64 value, u32 holds)
{
	struct object o = {.value = value, .holds = holds};
	struct object_key key;
	struct object *known;

	if (!k)
		return false;
	key = *k;
	known = bpf_map_lookup_elem(&objects, &key);
	if (!known)
		return false;
	o.tgid = key.tgid;
	o.user = known->user;
	barrier();
	return known->tgid == key.tgid && !bpf_map_update_elem(&objects, &key, &o, BPF_EXIST);
}

/* Adds an object or changes it; false if there is no room for it. */
static __always_inline bool put_object(const struct object_key *k, u64 value, u32 holds)
{
	return change_object(k, value, holds) || add_object(k, value, holds);
}

/* Removes an object; 0 if there was none. */
__noinline int remove_object(const struct object_key *k)
{
	struct object_key key;
	struct object *o;
	struct user *u;
	u64 user;

	if (!k)
		return false;
	key = *k;
	o = bpf_map_lookup_elem(&objects, &key);
	if (!o)
		return false;
	user = o->user;
	barrier(); /* see change_object */
	if (o->tgid != key.tgid || bpf_map_delete_elem(&objects, &key))
		return false;
	u = bpf_map_lookup_elem(&users, &user);
	if (u && u->objects)
		__sync_fetch_and_sub(&u->objects, 1);
	return true;
}

/* The process whose programs `on_ended` removes too; 0: none. */
u32 forget_programs;

/* How many objects `on_ended` removes at most: the thread that runs it is not preempted on every kernel. */
#define REMOVED_AT_ONCE 2048

/* Returns whether enough objects were removed. */
static long remove_if_ended(void *map, const struct object_key *k, void *value, u32 *removed)
{
	struct object_key copy = *k;
	struct process *p = bpf_map_lookup_elem(&processes, &copy.tgid);

	if (p && (u32)p->exec_id == copy.exec_id &&
	    (copy.tgid != forget_programs || copy.object >> OBJECT_KIND != OBJECT_PROGRAM))
		return 0;
	*removed += remove_object(&copy);
	return *removed >= REMOVED_AT_ONCE;
}

/* Users stay while they use anything, and until the lap in which they wrote has ended. A process of root
 * that has ended does not come again. */
static long remove_if_idle(void *map, const u64 *id, struct user *u, void *none)
{
	u64 copy = *id;
	u32 tgid = copy;
	bool ended = copy >> 32 == PROCESS_OF_ROOT && !bpf_map_lookup_elem(&processes, &tgid);

	if (!u->objects && !u->threads && !u->processes && (ended || u->lap != ring_lap) &&
	    (!u->losses || u->lost_taken != lost_taken))
		bpf_map_delete_elem(&users, &copy);
	return 0;
}

/* Removes the objects of ended programs. User space runs it after some have ended, until it returns that
 * none is left. */
SEC("raw_tp")
int on_ended(void *ctx)
{
	u32 removed = 0;

	bpf_for_each_map_elem(&objects, remove_if_ended, &removed, 0);
	if (removed >= REMOVED_AT_ONCE)
		return 1;
	bpf_for_each_map_elem(&users, remove_if_idle, NULL, 0);
	return 0;
}
