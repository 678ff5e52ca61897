package service

import (
	"maps"
	"slices"
	"unsafe"

	"ttmem/tracer/event"
)

// batchBytes is how many bytes are collected before they are passed on to followers.
const batchBytes = 1 << 20

// A batch is events in order. Followers share it; it does not change once they
// have it.
type batch struct {
	events []event.Event
	users  []eventUser // of each event
	bytes  int
	of     map[int]int // bytes of each user's events
}

func newBatch() *batch { return &batch{of: make(map[int]int)} }

// add copies the event of a user, with the list of its cores, which the tracer reuses.
func (b *batch) add(e *event.Event, user eventUser) {
	b.events, b.users = append(b.events, *e), append(b.users, user)
	if e.Cores != nil {
		b.events[len(b.events)-1].Cores = slices.Clone(e.Cores)
	}
	n := int(unsafe.Sizeof(*e)) + len(e.Message) + len(e.Started().Command) + len(e.Cores)*int(unsafe.Sizeof(event.CoreRange{}))
	if u := e.Uses; u != nil {
		n += int(unsafe.Sizeof(*u)) + 4*(len(u.Arguments)+len(u.Statics))
	}
	b.bytes += n
	b.of[user.sharer] += n
}

// count returns how many events a batch has, with those that were lost before.
func (b *batch) count() (n int) {
	for i := range b.events {
		if e := &b.events[i]; e.Kind == event.Lost {
			n += int(e.Count)
		} else {
			n++
		}
	}
	return n
}

const (
	// missed is why events of one user are lost to a reader: the others' are not.
	missed = "the reader was too slow"
	// mostKept is how many events are kept of those on which later ones depend.
	mostKept = 256
)

// isKept reports whether later events depend on an event. Those of no process are few.
func isKept(e *event.Event) bool {
	switch e.Kind {
	case event.ProcessStart, event.ProcessExit, event.DeviceOpen, event.DeviceClose, event.Lost:
		return true
	}
	return e.PID == 0
}

// without returns the batch without the events of a user, and with the losses of that user's processes.
func (b *batch) without(sharer int) *batch {
	rest, lost, kept := newBatch(), make(map[int]uint64), 0
	users := make(map[int]eventUser)
	lose := func(pid int, atNs uint64) {
		if n := lost[pid]; n > 0 {
			rest.add(&event.Event{Kind: event.Lost, TimeNs: atNs, PID: pid, TID: pid, Count: n, Cause: missed}, users[pid])
			delete(lost, pid)
		}
	}
	for i := range b.events {
		e := &b.events[i]
		if b.users[i].sharer == sharer {
			if !isKept(e) || kept == mostKept {
				lost[e.PID]++
				users[e.PID] = b.users[i]
				continue
			}
			kept++
			if e.Kind == event.ProcessExit {
				lose(e.PID, e.TimeNs)
			}
		}
		rest.add(e, b.users[i])
	}
	for _, pid := range slices.Sorted(maps.Keys(lost)) {
		lose(pid, b.events[len(b.events)-1].TimeNs)
	}
	return rest
}
