package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// A Buffer is a live buffer, or one that was live.
type Buffer struct {
	PID, TID int
	// Comm is the name of the allocating thread.
	Comm string
	// BufferID is unique within the process. Object and Allocator are the addresses of the
	// library's Buffer and its allocator.
	BufferID, Object, Allocator uint64
	// Devices are its chips. They must not be modified.
	Devices []int
	Region  event.Region
	Layout  event.Layout
	// PerCore marks a buffer that the hybrid allocator placed on single cores: Cores, which
	// are nil if they are not known and must not be modified.
	PerCore bool
	Cores   []event.CoreRange
	// Address is its address in each bank; 0 for one on single cores that is not known to
	// have the same address on all of them.
	Address uint64
	// SizeBytes is its size on each chip.
	SizeBytes     uint64
	PageSizeBytes uint64
	// BytesPerBank is what it occupies of each of Banks banks on each chip, or of each of
	// its Cores.
	BytesPerBank uint64
	Banks        uint32
	// SinceNs is when it was allocated, or discovered at a late attach.
	SinceNs      uint64
	BeforeAttach bool
	// Stack is its call stack; nil if that is not known.
	Stack *event.Stack
}

// Scattered reports whether the buffer is on single cores and not known to have the same
// address on all of them.
func (h *Buffer) Scattered() bool { return h.PerCore && h.Address == 0 }

// AllocatedBytes returns what the buffer occupies of all its banks on each chip.
func (h *Buffer) AllocatedBytes() uint64 { return h.BytesPerBank * uint64(h.Banks) }

// Complete sets the fields of a Free that only the Alloc of the buffer has: its chips, and
// what it occupies of their banks.
func (s *State) Complete(e *event.Event) {
	p := s.known(e.PID)
	if e.Kind != event.Free || p == nil {
		return
	}
	if b := p.buffers.get(e.BufferID); b != nil {
		e.Devices, e.BytesPerBank, e.Banks = b.set.ids, b.perBank, b.banks
	}
}

// Buffers returns all live buffers, in order of process and time.
func (s *State) Buffers() []Buffer {
	var all []Buffer
	for _, p := range s.byPID() {
		all = append(all, p.list(func(*buffer) bool { return true })...)
	}
	return all
}

// BuffersOf returns the live buffers of a process, in order of time.
func (s *State) BuffersOf(pid int) []Buffer {
	p := s.known(pid)
	if p == nil {
		return nil
	}
	return p.list(func(*buffer) bool { return true })
}

// BuffersIn returns the live buffers of one allocator of a process, in order of time.
func (s *State) BuffersIn(pid int, allocator uint64) []Buffer {
	p := s.known(pid)
	if p == nil {
		return nil
	}
	return p.list(func(b *buffer) bool { return b.allocator == allocator })
}

// list returns the buffers that are wanted, in order of time.
func (p *process) list(wanted func(*buffer) bool) []Buffer {
	var list []Buffer
	for _, b := range p.inOrder(wanted) {
		list = append(list, b.view())
	}
	return list
}

// inOrder returns the buffers that are wanted, in order of time.
func (p *process) inOrder(wanted func(*buffer) bool) []*buffer {
	var list []*buffer
	for _, number := range sortedKeys(p.buffers.pages) {
		for _, b := range p.buffers.pages[number] {
			if b != nil && wanted(b) {
				list = append(list, b)
			}
		}
	}
	// ids go up with time within a process, so that they are nearly in order by now
	slices.SortFunc(list, func(a, b *buffer) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
	})
	return list
}

// WithHolders returns the snapshot with the Holders of what each process has live, and with
// this State's totals of them. Its cost is that of the call sites. The snapshot may be of
// another State with the same processes.
func (s *State) WithHolders(snap *Snapshot) *Snapshot {
	with := *snap
	with.Processes = slices.Clone(snap.Processes)
	for i := range with.Processes {
		view := &with.Processes[i]
		if p := s.known(view.PID); p != nil && view.Exit == nil {
			view.Live = p.liveView(p.liveHolders())
		}
	}
	return &with
}

// liveHolders returns the holders of what the process has live.
func (p *process) liveHolders() map[holderKey]*holder {
	holders := make(map[holderKey]*holder)
	for _, set := range p.sets {
		for _, first := range set.sites {
			for c := range first.all() {
				if c.live.Count > 0 {
					addHolder(holders, unfreedShare{unfreedKey{region: c.region}, c.holder(c.live)})
				}
			}
		}
	}
	return collapse(holders, shownHolders)
}

// liveView returns what the process has live, with the holders if there are any.
func (p *process) liveView(holders map[holderKey]*holder) []RegionTotal {
	var list []RegionTotal
	for region, t := range p.live {
		if t.Count > 0 {
			list = append(list, RegionTotal{
				Region: event.Region(region).String(), Buffers: t.Count, SizeBytes: t.size, AllocatedBytes: t.Bytes,
				Holders: listHolders(holders, unfreedKey{region: event.Region(region)}),
			})
		}
	}
	return list
}

// byPID returns the processes in order of their ids.
func (s *State) byPID() []*process {
	list := make([]*process, 0, len(s.processes))
	for _, pid := range sortedKeys(s.processes) {
		list = append(list, s.processes[pid])
	}
	return list
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

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
	view := Buffer{
		PID: b.set.process.pid, TID: int(b.tid), Comm: b.comm,
		BufferID: b.id, Object: b.object, Allocator: b.allocator,
		Devices: slices.Clip(b.set.ids), Region: b.region, Layout: b.layout,
		Address: b.address, SizeBytes: b.size, PageSizeBytes: b.pageSize,
		BytesPerBank: b.perBank, Banks: b.banks, SinceNs: b.since,
		BeforeAttach: b.before, Stack: b.stack, PerCore: b.perCore,
	}
	if b.cores != nil {
		view.Cores = b.cores.Ranges()
	}
	return view
}

// ProcessesOf returns the ids of the running processes of a user, in no order.
func (s *State) ProcessesOf(uid int) (pids []int) {
	for pid, p := range s.processes {
		if p.name.about.UID == uid {
			pids = append(pids, pid)
		}
	}
	return pids
}
