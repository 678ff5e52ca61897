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
	users  []int // of each event
	bytes  int
	rest   *batch // see without; nil: not made yet
}

// add copies the event of a user, with the list of its cores, which the tracer reuses.
func (b *batch) add(e *event.Event, user int) {
	b.events, b.users = append(b.events, *e), append(b.users, user)
	if e.Cores != nil {
		b.events[len(b.events)-1].Cores = slices.Clone(e.Cores)
	}
	b.bytes += int(unsafe.Sizeof(*e)) + len(e.Message) + len(e.Started().Command) + len(e.Cores)*int(unsafe.Sizeof(event.CoreRange{}))
	if u := e.Uses; u != nil {
		b.bytes += int(unsafe.Sizeof(*u)) + 4*(len(u.Arguments)+len(u.Statics))
	}
}

// missed is why events of one user are lost to a reader: the others' are not.
const missed = "the reader was too slow"

// isKept reports whether an event stays in a batch's rest. There are few of these, and later events need them.
func isKept(k event.Kind) bool {
	return k == event.ProcessStart || k == event.ProcessExit || k == event.DeviceOpen || k == event.DeviceClose || k == event.Lost
}

// withoutMost returns the batch without the events of the user who has most, and with the losses of that user's processes.
func (b *batch) withoutMost() *batch {
	if b.rest != nil {
		return b.rest
	}
	counts := make(map[int]int)
	for _, user := range b.users {
		counts[user]++
	}
	most := b.users[0]
	for _, user := range slices.Sorted(maps.Keys(counts)) {
		if counts[user] > counts[most] {
			most = user
		}
	}
	b.rest = &batch{}
	lost := make(map[int]uint64)
	lose := func(pid int, atNs uint64) {
		if n := lost[pid]; n > 0 {
			b.rest.add(&event.Event{Kind: event.Lost, TimeNs: atNs, PID: pid, TID: pid, Count: n, Cause: missed}, most)
			delete(lost, pid)
		}
	}
	for i := range b.events {
		e := &b.events[i]
		switch {
		case b.users[i] != most:
		case !isKept(e.Kind):
			lost[e.PID]++
			continue
		case e.Kind == event.ProcessExit:
			lose(e.PID, e.TimeNs)
		}
		b.rest.add(e, b.users[i])
	}
	for _, pid := range slices.Sorted(maps.Keys(lost)) {
		lose(pid, b.events[len(b.events)-1].TimeNs)
	}
	return b.rest
}
