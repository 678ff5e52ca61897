/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The few kernel types and fields that ttmem reads. CO-RE adapts the offsets to those of
 * the running kernel, so that no other kernel headers are needed to build. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)
#define offsetof(type, member) __builtin_offsetof(type, member)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_CONS_POS = 2,
};

/* The registers of the target at a probe: x86-64's own order, which is ABI. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
};

typedef struct {
	unsigned long pgd;
} pgd_t;

typedef struct {
	s64 counter;
} atomic64_t;

typedef struct {
	u64 ctx_id;
	atomic64_t tlb_gen;
} mm_context_t;

struct mm_struct {
	pgd_t *pgd;
	mm_context_t context;
};

/* two words that may be read at any address */
struct timespec64 {
	long tv_sec;
	long tv_nsec;
};

struct thread_struct {
	unsigned long fsbase;
};

typedef struct {
	u32 val;
} kuid_t;

struct ns_common {
	unsigned int inum;
};

struct user_namespace {
	struct user_namespace *parent;
	int level; /* 0: the host's */
	kuid_t owner;
	struct ns_common ns;
};

struct cred {
	struct user_namespace *user_ns;
};

struct task_struct {
	int tgid;
	int exit_code;
	struct signal_struct *signal;
	struct mm_struct *mm;
	const struct cred *cred;
	struct thread_struct thread;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop
