/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The offsets of fields in the objects of a tt-metal library. tracer/internal/heap/library.go fills them in
 * with the results of tracer/layout. */
#pragma once

enum layout_limit {
	MAX_LIBRARIES = 64,
	NO_FIELD = 0xffffffff, /* stands for a missing offset */
};
#define MAX_CHAIN 4
/* tt-metal's types of cores with kernels of their own: Tensix, active and idle Ethernet, … */
#define MAX_CORE_TYPES 8
/* TensorMemoryLayout: this and the following have a shard per core */
#define SHARDED 2

/* A path of loads: every offset but the last is added and dereferenced, the last one is
 * added. */
struct chain {
	u32 length;
	u32 offset[MAX_CHAIN];
};

/* A function: its first address in the file, and the first address after it. */
struct code {
	u64 start, end;
};

struct layout {
	/* Buffer → the object with the fields; NO_FIELD: the Buffer itself */
	u32 buffer_impl;
	/* offset of the BUFFER_WINDOW in the object with the fields */
	u32 window;
	/* offsets in that window */
	u32 status, hooked, device, allocator, sharding, type, size, page_size, address, owns_data;
	/* offset in the object with the fields */
	u32 unique_id;
	/* of a Buffer on single cores: a flag, and its addresses by core; or NO_FIELD */
	u32 per_core, per_core_addresses;
	/* The registers that hold size, page size and shards at PROBE_BANK_SHARDS, by their
	 * numbers in instructions. */
	u32 shard_size, shard_page, shard_count;
	/* deallocate_impl gets the impl first and the Buffer second */
	u32 dealloc_has_impl;

	/* Addresses in the file: a hit's address minus this is the load bias. */
	u64 probe_address[MAX_PROBES];
	u64 device_vtable, mesh_vtable;
	/* Functions that identify a failure when they are on the stack. */
	struct code allocate, validate_cbs, validate_dfbs;
	u32 chip_id;			/* in Device */
	u32 mesh_stride;
	u32 mesh_local; /* offset of the "local" byte in an entry, or NO_FIELD */
	u32 pad;
	struct chain mesh_devices; /* MeshDevice → vector of chips */
	u32 mesh_impl;		   /* MeshDeviceImpl * in MeshDevice, or NO_FIELD */
	u32 pad2;

	u32 managers[BUFFER_TYPES]; /* in the allocator, or NO_FIELD */
	u32 manager_banks;
	u32 manager_alignment;
	struct chain manager_size;
	/* Distance from the free list's size to its base, its alignment and how much it was shrunk; 0:
	 * unknown. */
	s32 list_base, list_alignment, list_shrunk;
	u32 pad3;

	u32 program_id;	    /* in ProgramImpl */
	u32 program_binary; /* begin of the vector of binary words in ProgramImpl */
	/* How to see whether a program is compiled; NO_FIELD: unknown. */
	u32 program_impl; /* ProgramImpl * in Program */
	u32 program_cbs, program_cbs_needed; /* vector, and a flag: no place yet */
	u32 program_dfbs, program_dfbs_needed;
	/* of a CircularBufferAllocator: the vector of its regions, and the size of one */
	u32 allocator_regions, allocator_bytes;
	/* ProgramImpl → vector → bytes of its kernels in L1, u32: the last field of each element */
	struct chain program_text;
	/* What a program uses. In ProgramImpl: a vector of maps of kernels, by core type, or NO_FIELD if what follows
	 * is not known; and a vector of dataflow buffers, or NO_FIELD. */
	u32 program_kernels, program_dataflow_buffers;
	/* in Kernel: the arguments by core, the common ones, and its cores */
	u32 kernel_arguments, kernel_common_arguments, kernel_cores;
	/* in a circular and in a dataflow buffer: whether it lies in a tensor, and the address of that */
	u32 cb_in_tensor, cb_tensor_address, dfb_in_tensor, dfb_address;
	/* MeshBuffer → Buffer *, or NO_FIELD; and whether a write gets a shared_ptr */
	u32 mesh_buffer_backing, write_has_shared;
	u32 mesh_buffer_parts; /* vector of a Buffer for each chip, or NO_FIELD */
	/* the runtime's programs in a Device: a vector of Program *, and one Program *; or NO_FIELD */
	u32 queue_programs, fabric_program;
};
