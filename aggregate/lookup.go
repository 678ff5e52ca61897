package aggregate

import (
	"slices"

	"ttmem/aggregate/addresses"
)

// A BufferRef refers to a buffer of a State, and stays valid after the buffer is freed. The
// zero value refers to none. It takes 8 bytes, a Buffer about 200.
type BufferRef struct{ b *buffer }

// Ref returns a reference to the live buffer with that id; zero if there is none.
func (s *State) Ref(pid int, id uint64) BufferRef {
	p := s.known(pid)
	if p == nil {
		return BufferRef{}
	}
	return BufferRef{p.buffers.get(id)}
}

// Buffer returns what is known of the buffer; nil for the zero value.
func (b BufferRef) Buffer() *Buffer {
	if b.b == nil {
		return nil
	}
	h := b.b.view()
	return &h
}

// Addresses returns the addresses of the buffer in each bank.
func (b BufferRef) Addresses() addresses.Block { return b.b.block() }

func (b *buffer) view() Buffer {
	return Buffer{
		PID: b.set.process.pid, TID: int(b.tid), Comm: b.comm,
		BufferID: b.id, Object: b.object, Allocator: b.allocator,
		Devices: slices.Clip(b.set.ids), Region: b.region, Layout: b.layout,
		Address: b.address, SizeBytes: b.size, PageSizeBytes: b.pageSize,
		BytesPerBank: b.perBank, Banks: b.banks, SinceNs: b.since,
		BeforeAttach: b.before, Stack: b.stack,
	}
}

// ProcessesOf returns the ids of the running processes of a user, in no order.
func (s *State) ProcessesOf(uid int) (pids []int) {
	for pid, p := range s.processes {
		if p.about.UID == uid {
			pids = append(pids, pid)
		}
	}
	return pids
}
