package aggregate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// owned is an Owner of process 7, which started at 1.
func owned(time, id uint64, path string) event.Event {
	return event.Event{TimeNs: time, Kind: event.Owner, PID: 7, TID: 7, BufferID: id, Cause: path, Message: "bf16[1,32] TILE", Count: 1}
}

// ownersOf are the live buffers with their owners: "1 2=model.wq".
func ownersOf(s *aggregate.State) string {
	var list []string
	for _, b := range s.Buffers() {
		text := fmt.Sprint(b.BufferID)
		if b.Owner.Path != "" {
			text += "=" + b.Owner.Path
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

func started(pid int, ns uint64) event.Event {
	return event.Event{TimeNs: ns, Kind: event.ProcessStart, PID: pid}
}

func TestABufferKeepsTheNewestOwner(t *testing.T) {
	s := after(started(7, 1), wormhole(2, 7, 0, 0), tensor(3, 7, 1, 0), tensor(3, 7, 2, 0), tensor(3, 7, 3, 0),
		owned(4, 1, "a"), owned(4, 2, "b"), owned(4, 3, "c"), owned(4, 9, "freed"))
	qt.Check(t, qt.Equals(ownersOf(s), "1=a 2=b 3=c"))
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		for _, e := range []event.Event{owned(5, 1, "x"), owned(5, 2, ""), free(6, 7, 3), tensor(7, 7, 3, 0)} {
			s.Apply(&e)
		}
		qt.Check(t, qt.Equals(ownersOf(s), "1=x 2 3"))
		close := event.Event{TimeNs: 8, Kind: event.DeviceClose, PID: 7, Devices: []int{0}}
		again := tensor(9, 7, 1, 0)
		s.Apply(&close)
		s.Apply(&again)
		qt.Check(t, qt.Equals(ownersOf(s), "1"))
	}
}

// TestACompletedFreeHasTheOwner: also one that the end of the device or the process implies.
func TestACompletedFreeHasTheOwner(t *testing.T) {
	s := aggregate.New()
	var ended []string
	apply := s.Completed(func(e *event.Event) {
		if e.Kind == event.Free {
			ended = append(ended, fmt.Sprintf("%d=%s %s", e.BufferID, e.Cause, e.Message))
		}
	})
	for _, e := range []event.Event{
		started(7, 1), wormhole(2, 7, 0, 0), tensor(3, 7, 1, 0), tensor(3, 7, 2, 0), tensor(3, 7, 3, 0),
		owned(4, 1, "a"), owned(4, 2, "b"), owned(5, 2, "x"), free(6, 7, 1), {TimeNs: 7, Kind: event.ProcessExit, PID: 7},
	} {
		apply(&e)
	}
	qt.Check(t, qt.DeepEquals(ended, []string{"1=a bf16[1,32] TILE", "2=x bf16[1,32] TILE", "3= "}))
}

// TestALaterOwnerIsOfTheSameBuffer: of the same process, and of one that is live.
func TestALaterOwnerIsOfTheSameBuffer(t *testing.T) {
	s := after(started(7, 1), wormhole(2, 7, 0, 0), tensor(3, 7, 1, 0), tensor(3, 7, 2, 0), tensor(3, 7, 3, 0), owned(4, 1, "a"), owned(4, 2, "b"))
	other := owned(50, 2, "of another process")
	other.Count = 40
	for _, e := range []event.Event{owned(9, 1, "x"), owned(9, 4, "y"), other, owned(10, 2, ""), owned(9, 3, "c"), started(7, 40)} {
		s.ApplyLater(&e)
	}
	qt.Check(t, qt.Equals(ownersOf(s), "1=x 2=b 3=c"))
	qt.Check(t, qt.Equals(s.Now(), 4))
}
