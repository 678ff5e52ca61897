package aggregate

import (
	"slices"

	"ttmem/aggregate/addresses"
)

// A Buffer refers to a buffer of a State, and stays valid after the buffer is freed. The
// zero value refers to none. It takes 8 bytes, a Held about 200.
type Buffer struct{ b *buffer }

// Buffer returns the live buffer of that id; zero if there is none.
func (s *State) Buffer(pid int, id uint64) Buffer {
	p := s.known(pid)
	if p == nil {
		return Buffer{}
	}
	return Buffer{p.buffers.get(id)}
}

// Held returns what is known of the buffer; nil for the zero value.
func (b Buffer) Held() *Held {
	if b.b == nil {
		return nil
	}
	h := b.b.held()
	return &h
}

// Addresses returns the addresses of the buffer in each bank.
func (b Buffer) Addresses() addresses.Block { return b.b.block() }

func (b *buffer) held() Held {
	return Held{
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
