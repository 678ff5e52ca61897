package aggregate

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Complete sets the fields of a Free that only the Alloc of the buffer has: its chips, its bytes
// and the number of its banks.
func (s *State) Complete(e *event.Event) {
	if e.Kind != event.Free {
		return
	}
	if b := s.live(e.PID, e.BufferID); b != nil {
		e.Devices, e.BytesPerBank, e.Banks = b.set.ids, b.BytesPerBank, uint32(b.DataBanks)
	}
}

// Banks returns the number of banks in which the allocator reserved memory for the buffer of an Alloc
// that was applied.
func (s *State) Banks(e *event.Event) uint32 {
	if b := s.live(e.PID, e.BufferID); b != nil {
		return uint32(b.Banks)
	}
	return e.Banks
}

// BufferCount returns the number of live buffers.
func (s *State) BufferCount() (n int) {
	for _, p := range s.processes {
		n += p.buffers.Len()
	}
	return n
}

// EachBuffer yields all live buffers, in order of process and time. One is valid until the next one.
func (s *State) EachBuffer() iter.Seq[*memory.Buffer] {
	return func(yield func(*memory.Buffer) bool) {
		var view memory.Buffer
		for _, p := range s.byPID() {
			for _, b := range p.inOrder(everyBuffer) {
				if view = p.viewOf(b); !yield(&view) {
					return
				}
			}
		}
	}
}

// Buffers returns all live buffers, in order of process and time.
func (s *State) Buffers() []memory.Buffer { return s.list(everyBuffer) }

// BuffersOf returns the live buffers of a process, in order of time.
func (s *State) BuffersOf(pid int) []memory.Buffer { return s.known(pid).list(everyBuffer) }

func everyBuffer(*buffer) bool { return true }

// list returns the selected buffers, in order of process and time.
func (s *State) list(selected func(*buffer) bool) []memory.Buffer {
	var parts [][]memory.Buffer
	for _, p := range s.byPID() {
		parts = append(parts, p.list(selected))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return slices.Concat(parts...)
}

// list returns the selected buffers in order of time; none if p is nil.
func (p *process) list(selected func(*buffer) bool) (list []memory.Buffer) {
	if p == nil {
		return nil
	}
	buffers := p.inOrder(selected)
	list = make([]memory.Buffer, len(buffers))
	for i, b := range buffers {
		list[i] = p.viewOf(b)
	}
	return list
}

// inOrder returns the selected buffers in order of time.
func (p *process) inOrder(selected func(*buffer) bool) (list []*buffer) {
	list = make([]*buffer, 0, p.buffers.Len())
	for b := range p.buffers.Sorted() {
		if selected(b) {
			list = append(list, b)
		}
	}
	// ids go up with time within a process, so that they are nearly in order by now
	slices.SortFunc(list, func(a, b *buffer) int {
		return cmp.Or(cmp.Compare(a.SinceNs, b.SinceNs), cmp.Compare(a.BufferID, b.BufferID))
	})
	return list
}

// byPID returns the processes in order of their ids.
func (s *State) byPID() []*process { return sortedValues(s.processes) }

// byID returns the chips in order of their ids.
func (s *State) byID() []*chip { return sortedValues(s.chips) }

// sortedValues returns the values of a map in order of their keys.
func sortedValues[K cmp.Ordered, V any](m map[K]V) []V {
	list := make([]V, 0, len(m))
	for _, key := range sortedKeys(m) {
		list = append(list, m[key])
	}
	return list
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// Buffer returns the live buffer with that id; nil if there is none.
func (s *State) Buffer(pid int, id uint64) *memory.Buffer {
	b := s.live(pid, id)
	if b == nil {
		return nil
	}
	view := s.known(pid).viewOf(b)
	return &view
}

func (s *State) live(pid int, id uint64) *buffer {
	if p := s.known(pid); p != nil {
		return p.buffers.Get(id)
	}
	return nil
}

func (p *process) viewOf(b *buffer) memory.Buffer {
	return memory.Buffer{Site: &b.Site, Allocation: &b.Allocation, Allocator: b.allocator, Owner: p.owners.known[b.BufferID]}
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
