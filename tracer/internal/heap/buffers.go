package heap

// This file reads the live buffers of an allocator.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// Buffer is an allocated buffer that was read from memory. A process may have a million.
type Buffer struct {
	Object, ID, Device, Allocator     uint64
	Address, SizeBytes, PageSizeBytes uint64
	// BytesPerBank and Banks are 0 if they could not be read.
	BytesPerBank uint64
	Banks        uint32
	Region       event.Region
	Layout       event.Layout
	PerCore      bool
}

// Event is the allocation of the buffer, except for thread, time and chips.
func (b *Buffer) Event() event.Event {
	return event.Event{
		Kind: event.Alloc, BeforeAttach: true, Object: b.Object, BufferID: b.ID, Allocator: b.Allocator,
		Address: b.Address, SizeBytes: b.SizeBytes, PageSizeBytes: b.PageSizeBytes,
		BytesPerBank: b.BytesPerBank, Banks: b.Banks, Region: b.Region, Layout: b.Layout, PerCore: b.PerCore,
	}
}

const (
	windowBytes = len(bpf.KernelBufferRecord{}.Window)
	// statusAllocated is the value of Buffer's allocation_status_ while it has memory.
	statusAllocated = 1
	// maxType is the largest BufferType.
	maxType = 4
	// buffersAtOnce is the size of a batch of reads.
	buffersAtOnce = 1 << 14
	// bufferTries is how often a Buffer that looks invalid is read again.
	bufferTries = 20
)

// candidate is the object behind a pointer in the set of live Buffers.
type candidate struct {
	buffer  uint64 // Buffer*
	impl    uint64 // the object with the fields
	window  []byte
	id      uint64
	shards  uint32 // number of banks with shards
	perBank uint64 // bytes in each of these banks; 0: unknown
	perCore bool   // on single cores
	invalid bool   // not a Buffer of the allocator
	empty   bool   // valid, but without memory at present
}

// buffers reads the live buffers of an allocator. The error names missing buffers and
// missing properties. Buffers that are allocated or freed meanwhile may be missing without
// an error.
func (r *reader) buffers(ctx context.Context, allocator uint64, banks *[event.BankedRegions]Bank) ([]Buffer, error) {
	pointers, err := readSet(r.memory, r.objects().at(allocator, "Allocator.allocated_buffers_"), nil)
	if err != nil {
		return nil, fmt.Errorf("the live buffers of the allocator at %#x: %w", allocator, err)
	}
	if r.live += len(pointers); r.live > maxBuffers {
		return nil, errTooMuch
	}
	var list []Buffer
	invalid, total := 0, len(pointers)
	var unknown []error
	for len(pointers) > 0 {
		if err := ctx.Err(); err != nil {
			return list, err
		}
		n := min(len(pointers), buffersAtOnce)
		some := make([]*candidate, n)
		for i, p := range pointers[:n] {
			some[i] = &candidate{buffer: p}
		}
		pointers = pointers[n:]
		remaining, err := r.readCandidates(some, allocator)
		if err != nil {
			return list, err
		}
		invalid += remaining
		some = slices.DeleteFunc(some, func(c *candidate) bool { return c.invalid || c.empty })
		if err := r.setPerBank(some, allocator, banks); errors.Is(err, errUnknownPerBank) {
			unknown = append(unknown, err)
		} else if err != nil {
			return list, err
		}
		if some, err = r.unchanged(some); err != nil {
			return list, err
		}
		for _, c := range some {
			if b, ok := r.bufferOf(c); ok {
				list = append(list, b)
			}
		}
	}
	if invalid > 0 {
		unknown = append(unknown, fmt.Errorf("%d of %d live buffers of the allocator at %#x are not readable", invalid, total, allocator))
	}
	return list, errors.Join(unknown...)
}

// bufferOf builds the Buffer of a candidate; false if it has no device memory.
func (r *reader) bufferOf(c *candidate) (Buffer, bool) {
	var e event.Event
	hooked := r.Fill(&e, c.window)
	b := Buffer{
		Object: c.buffer, ID: c.id,
		Device: word(c.window, int(r.Kernel.Device)), Allocator: word(c.window, int(r.Kernel.Allocator)),
		Address: e.Address, SizeBytes: e.SizeBytes, PageSizeBytes: e.PageSizeBytes, Region: e.Region, Layout: e.Layout,
	}
	if c.perCore { // the cores and the bytes on each are not read
		b.PerCore, b.Address = true, 0
	} else if c.perBank > 0 {
		b.Banks, b.BytesPerBank = c.shards, c.perBank
	}
	return b, !hooked && int(b.Region) < event.BankedRegions
}

// readCandidates reads the objects behind pointers. It reads invalid ones again while they are in
// the set, because they may have been freed and allocated meanwhile. It returns how many remain
// invalid.
func (r *reader) readCandidates(list []*candidate, allocator uint64) (invalid int, err error) {
	all := slices.Clone(list)
	for try := range bufferTries {
		if try > 0 {
			time.Sleep(time.Duration(try) * 100 * time.Microsecond)
		}
		if err := r.readCandidatesOnce(all, allocator); err != nil {
			return 0, err
		}
		all = slices.DeleteFunc(all, func(c *candidate) bool { return !c.invalid })
		if len(all) == 0 {
			return 0, nil
		}
		pointers := make([]uint64, len(all))
		for i, c := range all {
			pointers[i] = c.buffer
		}
		live, err := readSet(r.memory, r.objects().at(allocator, "Allocator.allocated_buffers_"), pointers)
		if err != nil {
			return 0, fmt.Errorf("the live buffers of the allocator at %#x: %w", allocator, err)
		}
		all = slices.DeleteFunc(all, func(c *candidate) bool {
			_, found := slices.BinarySearch(live, c.buffer)
			return !found
		})
	}
	return len(all), nil
}

func (r *reader) readCandidatesOnce(list []*candidate, allocator uint64) error {
	k := &r.Kernel
	for _, c := range list {
		c.invalid, c.empty = false, false
		c.impl = c.buffer
	}
	if k.BufferImpl != bpf.NoField {
		impls, err := r.readOf(list, k.BufferImpl, 8)
		if err != nil {
			return err
		}
		for i, c := range list {
			c.impl = 0
			if impls[i].OK {
				c.impl = word(impls[i].Data, 0)
			}
		}
	}
	return r.readFields(list, func(c *candidate, window []byte, id uint64) {
		c.window, c.id = window, id
		if c.invalid = window == nil; !c.invalid {
			kind := binary.LittleEndian.Uint32(window[k.Type:])
			c.invalid = word(window, int(k.Allocator)) != allocator || kind > maxType || word(window, int(k.Size)) == 0
			c.empty = window[k.Status] != statusAllocated
		}
	})
}

// readFields calls use with the window and the id of each Buffer; nil if they cannot be read.
func (r *reader) readFields(list []*candidate, use func(c *candidate, window []byte, id uint64)) error {
	windows, err := r.readOf(list, r.Kernel.Window, windowBytes)
	if err != nil {
		return err
	}
	ids, err := r.readOf(list, r.Kernel.UniqueId, 8)
	if err != nil {
		return err
	}
	for i, c := range list {
		if window := windows[i].Data; windows[i].OK && ids[i].OK {
			use(c, window, word(ids[i].Data, 0))
		} else {
			use(c, nil, 0)
		}
	}
	return nil
}

// readOf reads some bytes at an offset of each object with a Buffer's fields.
func (r *reader) readOf(list []*candidate, offset uint32, bytes int) ([]host.Piece, error) {
	at := make([]uint64, len(list))
	for i, c := range list {
		at[i] = c.impl + uint64(offset)
	}
	pieces := piecesOf(at, bytes)
	return pieces, r.memory.Read(pieces)
}

// unchanged keeps the candidates that are the same Buffers with the same memory as at the first
// read, so that the reads in between were of these Buffers.
func (r *reader) unchanged(list []*candidate) (same []*candidate, err error) {
	err = r.readFields(list, func(c *candidate, window []byte, id uint64) {
		is := func(field uint32) bool { return word(window, int(field)) == word(c.window, int(field)) }
		if window != nil && id == c.id && window[r.Kernel.Status] == statusAllocated && is(r.Kernel.Address) && is(r.Kernel.Size) {
			same = append(same, c)
		}
	})
	return same, err
}
