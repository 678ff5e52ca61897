package lives

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// play returns the lives of the buffers of process 7, which has allocator 1 of chip 0. The nth event is moment n.
func play(events ...event.Event) *Lives {
	l := New()
	for i := range events {
		e := &events[i]
		e.TimeNs, e.PID, e.Devices = uint64(i+1), 7, []int{0}
		l.Apply(e)
	}
	l.End()
	return l
}

func born(id, address uint64) event.Event {
	return event.Event{Kind: event.Alloc, Allocator: 1, BufferID: id, Address: address, BytesPerBank: 64, Banks: 12, SizeBytes: 640, Stack: at("alloc")}
}

func run(name string, uses ...uint32) event.Event {
	return event.Event{Kind: event.ProgramRun, ProgramID: 1, Uses: &event.Uses{Arguments: uses}, Stack: at(name)}
}

func at(name string) *event.Stack {
	return event.StackOf([]event.Frame{{Kind: event.Native, Name: name}})
}

// TestALife has its uses, and how it ended.
func TestALife(t *testing.T) {
	l := play(
		born(1, 0x100000), born(2, 0x200000), run("a", 0x100000), run("b", 0x100000),
		event.Event{Kind: event.Owner, BufferID: 1, Cause: "x", Message: "bf16"},
		event.Event{Kind: event.Free, BufferID: 1, Reason: event.ReasonExplicit},
		run("c", 0x200000), event.Event{Kind: event.DeviceClose, Allocator: 1}, run("d"),
	)
	qt.Assert(t, qt.HasLen(l.All, 2))
	one, two := &l.All[0], &l.All[1]
	qt.Check(t, qt.DeepEquals([]Moment{one.Born, one.First().At, one.Last().At, one.Idle(), one.End}, []Moment{1, 3, 4, 6, 6}))
	qt.Check(t, qt.Equals(one.Uses, 2))
	qt.Check(t, qt.DeepEquals([]uint32{one.BornRun, one.Last().Run, one.EndRun}, []uint32{0, 2, 2}))
	qt.Check(t, qt.DeepEquals([]bool{one.Unfreed, two.Unfreed}, []bool{false, true}))
	qt.Check(t, qt.Equals(two.End, 8))
	qt.Check(t, qt.IsTrue(one.IsKnown() && two.IsKnown()))
	qt.Check(t, qt.Equals(l.Owner(0), memory.Owner{Path: "x", Tensor: "bf16"}))
	s := l.Fullest(event.DRAM)
	qt.Check(t, qt.DeepEquals([]uint64{s.Peak, s.Banks, uint64(s.PeakAt), s.PeakNs}, []uint64{128, 12, 2, 2}))
	qt.Check(t, qt.IsNil(l.Fullest(event.L1)))
	qt.Check(t, qt.DeepEquals([]uint64{l.Runs, l.Known}, []uint64{4, 4}))
}

// TestALifeBeforeTheRecording comes from its checkpoint: what used it before is not known.
func TestALifeBeforeTheRecording(t *testing.T) {
	s := aggregate.New()
	before := born(1, 0x100000)
	before.TimeNs, before.PID, before.Devices = 1, 7, []int{0}
	s.Apply(&before)
	l := play(*s.Checkpoint(), run("a", 0x100000), event.Event{Kind: event.Free, BufferID: 1})
	qt.Assert(t, qt.HasLen(l.All, 1))
	qt.Check(t, qt.IsTrue(l.All[0].IsBefore()))
	qt.Check(t, qt.IsFalse(l.All[0].IsKnown()))
	qt.Check(t, qt.Equals(l.Fullest(event.DRAM).PeakAt, 1))
	qt.Check(t, qt.IsNil(l.Fullest(event.DRAM).PeakStack)) // no allocation made it
	qt.Check(t, qt.Equals(l.All[0].Uses, 1))
	qt.Check(t, qt.Equals(l.Fullest(event.DRAM).Peak, 64))
}

// TestWhatMayBeUsedIsUsed: an address of buffers of two allocators counts for both.
func TestWhatMayBeUsedIsUsed(t *testing.T) {
	other := born(2, 0x100000)
	other.Allocator = 2
	l := play(born(1, 0x100000), other, run("a", 0x100000))
	qt.Check(t, qt.DeepEquals([]uint32{l.All[0].Uses, l.All[1].Uses}, []uint32{1, 1}))
}

// TestUsesAreNotKnown while a run is not recorded, events are lost, or a trace from before is replayed.
func TestUsesAreNotKnown(t *testing.T) {
	for _, e := range []event.Event{
		{Kind: event.ProgramRun}, {Kind: event.ProgramRun, Uses: &event.Uses{Partial: true}}, {Kind: event.Lost, Count: 1}, {Kind: event.TraceReplay, ProgramID: 1},
	} {
		free := event.Event{Kind: event.Free, BufferID: 1, Reason: event.ReasonExplicit}
		for want, events := range map[bool][]event.Event{false: {born(1, 0x100000), e, free}, true: {e, born(1, 0x100000), free, e}} {
			l := play(events...)
			qt.Check(t, qt.Equals(l.All[0].IsKnown(), want), qt.Commentf("%v", e.Kind))
		}
	}
}

// TestALowAddressIsNotSeen: before 0.72, the first addresses of DRAM are too low.
func TestALowAddressIsNotSeen(t *testing.T) {
	l := play(born(1, 0x20), born(2, event.LeastUsed), run("a", event.LeastUsed), event.Event{Kind: event.Free, BufferID: 1}, event.Event{Kind: event.Free, BufferID: 2})
	qt.Check(t, qt.DeepEquals([]bool{l.All[0].IsKnown(), l.All[1].IsKnown()}, []bool{false, true}))
}

// TestTheCallOfAnOperation ends with an event of another one, or when a place of it comes again.
func TestTheCallOfAnOperation(t *testing.T) {
	inner := at("ttnn::relu")
	again := func(e event.Event) event.Event { e.Stack = inner; return e }
	l := play(again(born(1, 0x100000)), again(run("", 0x100000)), again(run("", 0x100000)), run("b"))
	qt.Check(t, qt.Equals(l.All[0].Uses, 2)) // each event is a call of its own
	qt.Check(t, qt.Equals(l.All[0].Idle(), 3))
	l = play(born(1, 0x100000), run("alloc", 0x100000), run("b"))
	qt.Check(t, qt.Equals(l.All[0].Uses, 0)) // the same call writes it
	qt.Check(t, qt.Equals(l.All[0].Idle(), 2))
}
