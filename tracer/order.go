package tracer

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// holdBackNs is how long an event waits for an earlier one that arrives later. The kernel
// reads the clock before it sends the record, so another CPU may overtake.
const holdBackNs = 10e6

// ordered sorts events by time; events of the same time stay in order of arrival. They
// arrive nearly sorted, so sorting a batch costs little more than checking it.
type ordered struct {
	events []event.Event
	// released is the time of the newest event that was released.
	released uint64
}

// push adds an event. What was found late has the time of the newest event that was released.
func (o *ordered) push(e *event.Event) {
	n := len(o.events)
	o.events = slices.Grow(o.events, 1)[:n+1]
	o.events[n] = *e // append copies it twice
	o.events[n].TimeNs = max(e.TimeNs, o.released)
}

// edit calls edit for the events of a process that wait, from a time on.
func (o *ordered) edit(pid int, sinceNs uint64, edit func(*event.Event)) {
	for i := range o.events {
		if e := &o.events[i]; e.PID == pid && e.TimeNs >= sinceNs {
			edit(e)
		}
	}
}

// newest is the time of the last event that arrived; 0 if none waits.
func (o *ordered) newest() uint64 {
	if len(o.events) == 0 {
		return 0
	}
	return o.events[len(o.events)-1].TimeNs
}

// release passes the events before a time to handle, oldest first.
func (o *ordered) release(before uint64, handle func(*event.Event)) {
	for i := 1; i < len(o.events); i++ {
		if o.events[i].TimeNs < o.events[i-1].TimeNs {
			slices.SortStableFunc(o.events, func(a, b event.Event) int { return cmp.Compare(a.TimeNs, b.TimeNs) })
			break
		}
	}
	n, _ := slices.BinarySearchFunc(o.events, before, func(e event.Event, t uint64) int {
		return cmp.Compare(e.TimeNs, t)
	})
	for i := range o.events[:n] {
		o.released = o.events[i].TimeNs
		handle(&o.events[i])
	}
	o.events = slices.Delete(o.events, 0, n)
}
