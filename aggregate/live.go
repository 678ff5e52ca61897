package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

// A Buffer is a buffer that is allocated.
type Buffer struct {
	PID, TID int
	// Comm is the name of the thread that allocated it.
	Comm string
	// BufferID is unique within the process, Object is the Buffer's address in
	// it and Allocator its allocator's.
	BufferID, Object, Allocator uint64
	// Devices are the chips that it is on. They must not be modified.
	Devices []int
	Region  event.Region
	Layout  event.Layout
	// Address is where it lies in each bank.
	Address uint64
	// SizeBytes is its size on each chip.
	SizeBytes     uint64
	PageSizeBytes uint64
	// BytesPerBank is what it takes of each of Banks banks on each chip.
	BytesPerBank uint64
	Banks        uint32
	// SinceNs is when it was allocated; for one that was found at a late
	// attach, when it was found.
	SinceNs      uint64
	BeforeAttach bool
	// Stack is where it was allocated; nil where that is not known.
	Stack *event.Stack
}

// AllocatedBytes is what the buffer takes of all its banks on each chip.
func (h *Buffer) AllocatedBytes() uint64 { return h.BytesPerBank * uint64(h.Banks) }

// Complete gives a Free what the buffer's Alloc told of it: the chips, and what it
// took of their banks.
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

// WithHolders is the snapshot with the call stacks that what processes have
// allocated now is from: the Holders of each Live, whose sums are this State's then.
// Its cost is that of the call sites. The snapshot may be another State's that knows the
// same processes.
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

// liveHolders are those of what the process has allocated now.
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

// heldView is what the process has allocated now, with the holders of it if there are any.
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

// byPID are the processes in order of their ids.
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
