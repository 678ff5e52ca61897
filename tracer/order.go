package tracer

import (
	"container/heap"

	"ttmem/tracer/event"
)

// holdBackNs is how long an event waits for one that happened before it and
// comes after it: the kernel takes the time before it reserves the record, and
// another CPU may be quicker in between.
const holdBackNs = 10e6

// ordered puts events in the order of their times.
type ordered struct {
	events eventHeap
	pushed uint64
}

type queued struct {
	event event.Event
	// order of arrival, which decides between events of one time
	arrival uint64
}

func (o *ordered) push(e event.Event) {
	heap.Push(&o.events, queued{e, o.pushed})
	o.pushed++
}

// release gives what happened before a time to handle, oldest first.
func (o *ordered) release(before uint64, handle func(*event.Event)) {
	for len(o.events) > 0 && o.events[0].event.TimeNs < before {
		q := heap.Pop(&o.events).(queued)
		handle(&q.event)
	}
}

type eventHeap []queued

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].event.TimeNs != h[j].event.TimeNs {
		return h[i].event.TimeNs < h[j].event.TimeNs
	}
	return h[i].arrival < h[j].arrival
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(queued)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = queued{}
	*h = old[:len(old)-1]
	return last
}
