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

// endsOf are the buffers that ended with their owners: "1=a 6" is one that was freed at 6, and
// "2=b 7!" one that ended with its device or process at 7.
func endsOf(s *aggregate.State) string {
	var list []string
	for _, b := range s.EndedOwned() {
		text := fmt.Sprintf("%d=%s %d", b.BufferID, b.Owner.Path, b.EndNs)
		if b.Unfreed {
			text += "!"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// TestABufferThatEndedKeepsItsOwner: however it ended, and also in a checkpoint of the process.
func TestABufferThatEndedKeepsItsOwner(t *testing.T) {
	s := after(started(7, 1), wormhole(2, 7, 0, 0), tensor(3, 7, 1, 0), tensor(3, 7, 2, 0), tensor(3, 7, 3, 0), tensor(3, 7, 4, 0),
		owned(4, 1, "a"), owned(4, 2, "b"), owned(4, 3, "none"), owned(5, 3, ""), free(6, 7, 1),
		event.Event{TimeNs: 7, Kind: event.DeviceClose, PID: 7, Devices: []int{0}},
		wormhole(8, 7, 0, 0), tensor(9, 7, 5, 0), owned(10, 5, "c"))
	want := "1=a 6, 2=b 7!"
	qt.Check(t, qt.Equals(endsOf(s), want))
	qt.Check(t, qt.Equals(s.EndedOwned()[1].LatestID, 4))
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		for _, e := range []event.Event{{TimeNs: 11, Kind: event.ProcessExit, PID: 7}, started(8, 12)} {
			s.Apply(&e)
		}
		want := want + ", 5=c 11!"
		qt.Check(t, qt.Equals(endsOf(s), want))
		qt.Check(t, qt.Equals(endsOf(restored(t, s)), want))
		only := aggregate.New()
		only.Apply(aggregate.OfProcesses(s.Checkpoint(), []int{8}))
		qt.Check(t, qt.Equals(endsOf(only), ""))
		only.Apply(aggregate.OfProcesses(s.Checkpoint(), []int{7}))
		qt.Check(t, qt.Equals(endsOf(only), want))
		b := s.EndedOwned()[0]
		qt.Check(t, qt.Equals(b.PID, 7))
		qt.Check(t, qt.DeepEquals(b.Devices, []int{0}))
		qt.Check(t, qt.Equals(b.SinceNs, 3))
	}
}

// TestTheNewestOwnersAreKept: memory is bounded.
func TestTheNewestOwnersAreKept(t *testing.T) {
	s := after(started(7, 1), wormhole(2, 7, 0, 0))
	for id := range uint64(40_000) {
		for _, e := range []event.Event{tensor(3+id, 7, 1+id, 0), owned(3+id, 1+id, "a"), free(3+id, 7, 1+id)} {
			s.Apply(&e)
		}
	}
	list := s.EndedOwned()
	qt.Check(t, qt.IsTrue(len(list) >= 1<<14 && len(list) <= 1<<15))
	qt.Check(t, qt.Equals(list[len(list)-1].BufferID, 40_000))
}
