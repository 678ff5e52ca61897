/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Devices: the chips of a Device or MeshDevice, and the banks of its allocator. A device is
 * reported once, when it is created or first seen. */
#pragma once

static __always_inline void read_bank(const struct layout *l, u64 allocator, u32 type,
				      struct bank_info *b)
{
	u64 manager = 0, at = 0;

	__builtin_memset(b, 0, sizeof(*b));
	if (type >= BUFFER_TYPES || l->managers[type] == NO_FIELD)
		return;
	if (!read_u64(allocator + l->managers[type], &manager))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (!manager)
		return;
	if (!read_u32(manager + l->manager_banks, &b->banks) ||
	    !read_u32(manager + l->manager_alignment, &b->alignment_bytes))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (!follow(manager, &l->manager_size, &at) || !read_u64(at, &b->bytes_per_bank)) {
		b->bytes_per_bank = 0; /* a region without banks has no free list */
		return;
	}
	if (l->list_base && !read_u64(at + l->list_base, &b->base))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (l->list_alignment &&
	    !read_u64(at + l->list_alignment, &b->block_alignment_bytes))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (l->list_shrunk && !read_u64(at + l->list_shrunk, &b->shrunk_bytes))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (b->base)
		b->base += b->shrunk_bytes;
}

/* Returns the id of the chip in an entry of a mesh's vector. It is negative for a chip of another
 * host, or if it cannot be read. Global, so that the verifier checks it once instead of for each
 * entry. */
__noinline s64 read_chip(u32 library, u64 entry)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	u64 chip = 0;
	u8 local = 1;
	u32 id = 0;

	if (!l)
		return -1;
	if (l->mesh_local != NO_FIELD &&
	    (bpf_probe_read_user(&local, 1, (void *)(entry + l->mesh_local)) || local != 1))
		return -1;
	if (!read_u64(entry, &chip) || !read_u32(chip + l->chip_id, &id)) {
		count_lost(LOST_DEVICE_UNREADABLE);
		return -1;
	}
	return id;
}

/* Reports a device to user space; 0 if there was no room for the record. */
__noinline int report_device(u32 library, u64 bias, u64 device, u64 allocator, u32 flags)
{
	struct layout *l = bpf_map_lookup_elem(&layouts, &library);
	struct device_record *r;
	u64 vtable = 0, at, entry = 0, end = 0;

	if (!l)
		return 0;
	r = RESERVE(struct device_record, RECORD_DEVICE, library);
	if (!r)
		return 0;
	r->device = device;
	r->impl = 0;
	r->allocator = allocator;
	r->h.flags = flags;
	for (u32 type = 0; type < BUFFER_TYPES; type++) {
		if (allocator)
			read_bank(l, allocator, type, &r->banks[type]);
		else
			__builtin_memset(&r->banks[type], 0, sizeof(r->banks[type]));
	}
	if (!read_u64(device, &vtable))
		count_lost(LOST_DEVICE_UNREADABLE);
	if (vtable == bias + l->device_vtable) {
		r->h.count = 1;
		if (!read_u32(device + l->chip_id, (u32 *)&r->chips[0]))
			count_lost(LOST_DEVICE_UNREADABLE);
	} else if (vtable == bias + l->mesh_vtable) {
		r->h.flags |= DEVICE_MESH;
		if (l->mesh_impl != NO_FIELD && !read_u64(device + l->mesh_impl, &r->impl))
			count_lost(LOST_DEVICE_UNREADABLE);
		if (!follow(device, &l->mesh_devices, &at) || !read_u64(at, &entry) ||
		    !read_u64(at + 8, &end))
			count_lost(LOST_DEVICE_UNREADABLE);
		for (u32 i = 0; i < MAX_CHIPS; i++) {
			if (entry + 8 > end)
				break;
			r->chips[i] = read_chip(library, entry);
			r->h.count = i + 1;
			entry += l->mesh_stride;
		}
	} else {
		count_lost(LOST_DEVICE_UNREADABLE);
	}
	send(r);
	return 1;
}

/* Reports a device before a record refers to it. For a mesh, the word in the place of a Device's
 * id does not matter: at worst the mesh is reported again. */
static __always_inline void ensure_device(const struct hit *h, u64 device)
{
	struct object_key k = key_of(OBJECT_DEVICE, device);
	struct object *known;
	u32 id = 0;

	if (!device)
		return;
	if (!read_u32(device + h->l->chip_id, &id))
		count_lost(LOST_DEVICE_UNREADABLE);
	known = bpf_map_lookup_elem(&objects, &k);
	if (known && known->value == id)
		return;
	if (known)
		known->value = id;
	else if (!add_object(&k, id, 0))
		return;
	if (!report_device(h->library, h->bias, device, 0, 0))
		remove_object(&k); /* try again later */
}

static __always_inline void ensure_allocator(const struct hit *h, u64 device, u64 allocator,
					     u32 flags)
{
	u64 pair = pair_of(h->tgid, device, allocator);
	struct recent *last = last_hit();
	struct object_key k;
	struct object *known;

	if (last && last->allocator == pair && !flags)
		return;
	k = key_of(OBJECT_ALLOCATOR, allocator);
	known = bpf_map_lookup_elem(&objects, &k);
	if (known && known->value == device && !flags) {
		if (last) {
			last->process = this_process(h->tgid);
			last->allocator = pair;
		}
		return;
	}
	if (known)
		known->value = device;
	else if (!add_object(&k, device, 0))
		return;
	if (!report_device(h->library, h->bias, device, allocator, flags))
		remove_object(&k);
}

/* SubDeviceManagerTracker(IDevice *, unique_ptr<Allocator> &&, …): the device has an allocator
 * now, without any buffers yet. */
HANDLER void device_ready(const struct hit *h)
{
	u64 allocator = 0;

	if (!read_u64(h->ctx->dx, &allocator) || !allocator) {
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
	struct clear_record *r;

	__sync_fetch_and_add(&cache_epoch, 1);
	if (known) {
		d = key_of(OBJECT_DEVICE, known->value);
		remove_object(&d);
		remove_object(&k);
	}
	/* only now: Linux 6.1's verifier would take a check of r in between for a second one */
	r = RESERVE(struct clear_record, RECORD_CLEAR, h->library);
	if (!r)
		return;
	r->allocator = h->ctx->di;
	send(r);
}

/* AllocatorImpl::shrink_allocator_size(BufferType &, bytes, bottom_up) and reset_allocator_size(
 * BufferType &): the banks change, unless the function throws. The next allocation reports what they
 * are then. */
HANDLER void banks_change(const struct hit *h, bool shrink)
{
	struct object_key k = key_of(OBJECT_ALLOCATOR, h->ctx->di);
	struct banks_record *r;
	u32 type;

	if (!read_u32(h->ctx->si, &type)) {
		count_lost(LOST_DEVICE_UNREADABLE);
		return;
	}
	__sync_fetch_and_add(&cache_epoch, 1);
	remove_object(&k);
	r = RESERVE(struct banks_record, RECORD_BANKS, h->library);
	if (!r)
		return;
	r->allocator = h->ctx->di;
	r->h.flags = shrink ? BANKS_SHRINK : 0;
	r->bytes = shrink ? h->ctx->dx : 0;
	r->type = type;
	r->pad = 0;
	send(r);
}
