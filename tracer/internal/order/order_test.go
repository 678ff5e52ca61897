package order

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestOrder(t *testing.T) {
	var o Queue
	for i, at := range []uint64{5, 3, 9, 3, 7} {
		o.Push(&event.Event{TimeNs: at, BufferID: uint64(i)})
	}
	var got []uint64
	take := func(e *event.Event) { got = append(got, e.TimeNs*10+e.BufferID) }
	o.Release(7, take)
	qt.Check(t, qt.DeepEquals(got, []uint64{31, 33, 50})) // events of the same time stay in order of arrival
	o.Push(&event.Event{TimeNs: 8, BufferID: 5})
	o.Release(^uint64(0), take)
	qt.Check(t, qt.DeepEquals(got[3:], []uint64{74, 85, 92}))
}
