package tracer

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// holdBackNs is how long an event waits for one that happened before it and
// comes after it: the kernel takes the time before it reserves the record, and
// another CPU may be quicker in between.
const holdBackNs = 10e6

// ordered puts events in the order of their times; those of one time stay in the
// order in which they came. Events come nearly in order, so that sorting a batch
// costs little more than looking at it.
type ordered struct {
	events []event.Event
	// released is the time of the newest event that was given away.
	released uint64
}

func (o *ordered) push(e event.Event) { o.events = append(o.events, e) }

// newest is the time of the event that came last; 0 where none waits.
func (o *ordered) newest() uint64 {
	if len(o.events) == 0 {
		return 0
	}
	return o.events[len(o.events)-1].TimeNs
}

// release gives what happened before a time to handle, oldest first.
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
