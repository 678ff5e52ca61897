/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Devices: the chips of a Device or MeshDevice, and the banks of its allocator. A device is
 * reported once, when it is created or first seen. */
#pragma once

/* Reads a bank of the allocator of u's record. Global, so that the verifier checks it once. */
__noinline int read_bank(struct unwinder *u, u32 library, u32 type)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	struct bank_info *b;
	u64 manager = 0, at = 0;
	struct memory *m;

	if (!u || !l || type >= BUFFER_TYPES || l->managers[type] == NO_FIELD)
		return 0;
	m = &u->memory;
	b = &u->record.device.banks[type];
	if (!read_word(m, u->record.device.allocator + l->managers[type], &manager))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (!manager)
		return 0;
	if (!read_half(m, manager + l->manager_banks, &b->banks) ||
	    !read_half(m, manager + l->manager_alignment, &b->alignment_bytes))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (!follow(m, manager, &l->manager_size, &at) || !read_word(m, at, &b->bytes_per_bank)) {
		b->bytes_per_bank = 0; /* a region without banks has no free list */
		return 0;
	}
	if (l->list_base && !read_word(m, at + l->list_base, &b->base))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (l->list_alignment && !read_word(m, at + l->list_alignment, &b->block_alignment_bytes))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (l->list_shrunk && !read_word(m, at + l->list_shrunk, &b->shrunk_bytes))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (b->base)
		b->base += b->shrunk_bytes;
	return 0;
}

/* The number of entries for one call. The verifier checks each step of a caller, but a global function only
 * once. */
#define ENTRIES_A_CALL 64

/* Adds the chip of an entry of a mesh's vector to u's record, unless it belongs to another host. Global,
 * so that the verifier checks it once instead of for each entry. */
__noinline int read_chip(struct unwinder *u, u32 library, u64 entry)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 chip = 0;
	u8 local = 1;
	u32 id = 0, n;

	if (!u || !l)
		return 0;
	if (l->mesh_local != NO_FIELD &&
	    (bpf_probe_read_user(&local, 1, (void *)(entry + l->mesh_local)) || local != 1))
		return 0;
	if (!read_word(&u->memory, entry, &chip) || !read_half(&u->memory, chip + l->chip_id, &id)) {
		count_lost(LOST_DEVICE_UNREADABLE);
		return 0;
	}
	n = u->record.device.h.count;
	if (n >= MAX_CHIPS) {
		count_lost(LOST_TOO_MANY_CHIPS);
		return 0;
	}
	u->record.device.chips[n] = id;
	u->record.device.h.count = n + 1;
	return 1;
}

/* Adds the chips of the next entries, and returns where the rest begins. */
__noinline u64 read_chips(struct unwinder *u, u32 library, u64 entry, u64 end)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);

	if (!u || !l)
		return end;
	for (u32 i = 0; i < ENTRIES_A_CALL && entry + 8 <= end; i++) {
		read_chip(u, library, entry);
		entry += l->mesh_stride;
	}
	return entry;
}

/* Reports a device to user space; 0 if there was no room for the record. */
__noinline int report_device(struct unwinder *u, u32 library, u64 bias)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 vtable = 0, at, entry = 0, end = 0;
	struct device_record *r;
	struct memory *m;

	if (!u || !l)
		return 0;
	m = &u->memory;
	r = &u->record.device;
	for (u32 type = 0; type < BUFFER_TYPES; type++) {
		__builtin_memset(&r->banks[type], 0, sizeof(r->banks[type]));
		if (r->allocator)
			read_bank(u, library, type);
	}
	if (!read_word(m, r->device, &vtable))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (vtable == bias + l->device_vtable) {
		r->h.count = 1;
		if (!read_half(m, r->device + l->chip_id, (u32 *)&r->chips[0]))
			count_lost(LOST_DEVICE_UNREADABLE);
	} else if (vtable == bias + l->mesh_vtable) {
		r->h.flags |= DEVICE_MESH;
		if (l->mesh_impl != NO_FIELD && !read_word(m, r->device + l->mesh_impl, &r->impl))
			count_lost(LOST_DEVICE_UNREADABLE);
		if (!follow(m, r->device, &l->mesh_devices, &at) || !read_word(m, at, &entry) ||
		    !read_word(m, at + 8, &end))
			count_lost(LOST_DEVICE_UNREADABLE);
		for (u32 i = 0; i < MAX_ENTRIES / ENTRIES_A_CALL && entry + 8 <= end; i++)
			entry = read_chips(u, library, entry, end);
		if (entry + 8 <= end)
			count_lost(LOST_TOO_MANY_CHIPS);
	} else {
		count_lost(LOST_DEVICE_UNREADABLE);
	}
	return SEND_WITH(r, chips, r->h.count);
}

/* Reports a device, with its allocator unless that is 0. */
static __always_inline bool report(struct unwinder *u, u32 library, u64 bias, u64 device, u64 allocator, u32 flags)
{
	struct device_record *r;

	if (!u) {
		count_lost(LOST_NO_THREAD_STATE);
		return false;
	}
	r = &u->record.device;
	fill_header(&r->h, RECORD_DEVICE, library);
	r->h.flags = flags;
	r->device = device;
	r->impl = 0;
	r->allocator = allocator;
	return report_device(u, library, bias);
}

/* Reports a device unless user space knows it. For a mesh, the word in the place of a Device's
 * id does not matter: at worst the mesh is reported again. Global, so that the verifier checks it once. */
__noinline int report_unknown(struct unwinder *u, u32 library, u64 bias, u64 device)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	struct recent *last = last_hit();
	struct object_key k;
	struct object *known;
	u32 id = 0;
	u64 pair;

	if (!l)
		return 0;
	if (!read_half(u ? &u->memory : NULL, device + l->chip_id, &id))
		count_lost(LOST_DEVICE_UNREADABLE);
	pair = pair_of(bpf_get_current_pid_tgid() >> 32, device, id);
	if (last && last->device == pair)
		return 0;
	k = key_of(OBJECT_DEVICE, device);
	known = bpf_map_lookup_elem(&objects, &k);
	if (known && known->value == id) {
		if (last)
			last->device = pair;
		return 0;
	}
	if (put_object(&k, id, 0) && !report(u, library, bias, device, 0, 0))
		remove_object(&k); /* try again later */
	return 0;
}

/* Reports a device before a record refers to it. */
static __always_inline void ensure_device(const struct hit *h, u64 device)
{
	if (device)
		report_unknown(h->u, h->library, h->bias, device);
}

/* Returns whether user space knows a device and its allocator. */
static __always_inline bool knows_allocator(const struct hit *h, u64 device, u64 allocator)
{
	u64 pair = pair_of(h->tgid, device, allocator);
	struct recent *last = last_hit();
	struct object_key k;
	struct object *known;

	if (last && last->allocator == pair)
		return true;
	k = key_of(OBJECT_ALLOCATOR, allocator);
	known = bpf_map_lookup_elem(&objects, &k);
	if (!known || known->value != device)
		return false;
	if (last)
		last->allocator = pair;
	return true;
}

HANDLER void ensure_allocator(const struct hit *h, u64 device, u64 allocator, u32 flags)
{
	struct object_key k = key_of(OBJECT_ALLOCATOR, allocator);

	if (!put_object(&k, device, 0))
		return;
	if (!report(h->u, h->library, h->bias, device, allocator, flags))
		remove_object(&k);
}

/* SubDeviceManagerTracker(IDevice *, unique_ptr<Allocator> &&, …): the device has an allocator
 * now, without any buffers yet. */
HANDLER void device_ready(const struct hit *h)
{
	u64 allocator = 0;

	if (!read_word(memory_of(h), h->ctx->dx, &allocator) || !allocator) {
		count_lost(LOST_DEVICE_UNREADABLE);
		return;
	}
	ensure_allocator(h, h->ctx->si, allocator, DEVICE_READY);
}

/* Allocator::deallocate_buffers(): all of its buffers are freed. */
HANDLER void allocator_clear(const struct hit *h)
{
	struct object_key k = key_of(OBJECT_ALLOCATOR, h->ctx->di), d;
	struct object *known = bpf_map_lookup_elem(&objects, &k);
	struct clear_record r = {.allocator = h->ctx->di};

	__sync_fetch_and_add(&cache_epoch, 1);
	if (known) {
		d = key_of(OBJECT_DEVICE, known->value);
		remove_object(&d);
		remove_object(&k);
	}
	fill_header(&r.h, RECORD_CLEAR, h->library);
	SEND(r);
}

/* AllocatorImpl::shrink_allocator_size(BufferType &, bytes, bottom_up) and reset_allocator_size(
 * BufferType &): the banks change, unless the function throws. The next allocation reports what they
 * are then. */
HANDLER void banks_change(const struct hit *h, bool shrink)
{
	struct object_key k = key_of(OBJECT_ALLOCATOR, h->ctx->di);
	struct banks_record r = {.allocator = h->ctx->di, .bytes = shrink ? h->ctx->dx : 0};

	if (!read_half(memory_of(h), h->ctx->si, &r.type)) {
		count_lost(LOST_DEVICE_UNREADABLE);
		return;
	}
	__sync_fetch_and_add(&cache_epoch, 1);
	remove_object(&k);
	fill_header(&r.h, RECORD_BANKS, h->library);
	r.h.flags = shrink ? BANKS_SHRINK : 0;
	SEND(r);
}
