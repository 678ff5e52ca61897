package aggregate_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// calledBy has the event come from a call stack of one function.
func calledBy(name string, e event.Event) event.Event {
	e.Stack = event.StackOf([]event.Frame{{Kind: event.Python, Name: name, File: "model.py", Line: 3}})
	return e
}

// wants is a request for memory that failed.
func wants(time uint64, pid int, perBank uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.AllocFailed, PID: pid, Allocator: 5, Region: event.L1, Devices: devices,
		SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64, Reason: event.ReasonOutOfMemory,
	}
}

// failed is the one failure of a state.
func failed(t *testing.T, s *aggregate.State) *memory.Failure {
	t.Helper()
	list := s.Snapshot().Failures
	qt.Assert(t, qt.HasLen(list, 1))
	return &list[0]
}

func names(list []memory.Blame) (names []string) {
	for _, l := range list {
		names = append(names, l.Stack.Frames()[0].Name)
	}
	return names
}

// TestAFragmentedRequestBlamesTheFewestBytes: L1 is 100 to 1100, with three holes of
// 200, 100 and 150 bytes.
func TestAFragmentedRequestBlamesTheFewestBytes(t *testing.T) {
	s := after(
		opened(7, 5, 0),
		calledBy("weights", lies(1, 7, 1, 300, 400, 0)),
		calledBy("cache", lies(2, 7, 2, 800, 50, 0)), calledBy("cache", lies(3, 7, 3, 850, 20, 0)),
		calledBy("mask", lies(4, 7, 4, 870, 80, 0)),
		lies(5, 8, 9, 100, 200, 0), // another process's allocator is another
		calledBy("forward", wants(6, 7, 260, 0)),
	)
	f := failed(t, s)
	qt.Check(t, qt.Equals(analyze.CauseOf(f), analyze.Fragmented))
	e := f.Evidence
	qt.Check(t, qt.DeepEquals(e.FreeSpace, memory.FreeSpace{FreeBytesPerBank: 450, LargestFreeBytesPerBank: 200}))
	qt.Check(t, qt.DeepEquals([2]uint64{e.From, e.To}, [2]uint64{700, 960}))
	qt.Check(t, qt.DeepEquals(e.Blocking, memory.Blame{BytesPerBank: 150, Count: 3, Address: 800, End: 950}))
	qt.Check(t, qt.DeepEquals(names(e.Blockers), []string{"mask", "cache"}))
	qt.Check(t, qt.Equals(e.Blockers[1].BytesPerBank, 70))
	qt.Check(t, qt.DeepEquals(names(e.Holders), []string{"weights", "mask", "cache"}))
	qt.Check(t, qt.DeepEquals(e.Live, memory.Blame{BytesPerBank: 550, Count: 4, Address: 300, End: 950}))
}

func TestCausesOfAFailedRequest(t *testing.T) {
	for _, c := range []struct {
		perBank uint64
		want    analyze.Cause
		place   [2]uint64
	}{
		{1001, analyze.TooLarge, [2]uint64{}},
		{1000, analyze.TooLittle, [2]uint64{100, 1100}},
		{701, analyze.TooLittle, [2]uint64{100, 801}},
		{700, analyze.Fragmented, [2]uint64{100, 800}},
		{300, analyze.Unexplained, [2]uint64{}},
	} {
		s := after(opened(7, 5, 0), lies(1, 7, 1, 400, 100, 0), lies(1, 7, 2, 600, 200, 0), wants(2, 7, c.perBank, 0))
		f := failed(t, s)
		qt.Check(t, qt.Equals(analyze.CauseOf(f), c.want), qt.Commentf("%d", c.perBank))
		qt.Check(t, qt.DeepEquals([2]uint64{f.Evidence.From, f.Evidence.To}, c.place), qt.Commentf("%d", c.perBank))
	}
}

// TestThePlaceIsTheCheapest compares it with all places that there are.
func TestThePlaceIsTheCheapest(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := after(opened(7, 5, 0))
		var owner [1101]int
		id := 0
		for at := uint64(100) + r.Uint64N(60); at < 1080; {
			size := 1 + r.Uint64N(min(100, 1100-at))
			id++
			e := lies(1, 7, uint64(id), at, size, 0)
			s.Apply(&e)
			for a := at; a < at+size; a++ {
				owner[a] = int(size)<<8 | id
			}
			at += size + r.Uint64N(80)
		}
		bytes := 50 + r.Uint64N(600)
		e := wants(2, 7, bytes, 0)
		s.Apply(&e)
		f := failed(t, s)
		if v := analyze.CauseOf(f); v != analyze.Fragmented && v != analyze.TooLittle {
			continue
		}
		best := uint64(1 << 20)
		for start := uint64(100); start+bytes <= 1100; start++ {
			var cost uint64
			last := 0
			for a := start; a < start+bytes; a++ {
				if o := owner[a]; o != 0 && o != last {
					cost += uint64(o >> 8)
					last = o
				}
			}
			best = min(best, cost)
		}
		found := f.Evidence
		qt.Assert(t, qt.Equals(found.To-found.From, bytes), qt.Commentf("seed %d", seed))
		qt.Assert(t, qt.Equals(found.Blocking.BytesPerBank, best), qt.Commentf("seed %d", seed))
	}
}

// TestOfAsManyBytesTheFewestAndNewestBuffersAreInTheWay: of old weights and large buffers
// that lie side by side and have the same bytes.
func TestOfAsManyBytesTheFewestAndNewestBuffersAreInTheWay(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  [][3]uint64 // id, address, size
		want [2]uint64
	}{
		{"fewest", [][3]uint64{{1, 100, 100}, {2, 200, 100}, {3, 300, 100}, {4, 400, 300}, {5, 700, 300}}, [2]uint64{700, 1000}},
		{"newest", [][3]uint64{{1, 100, 300}, {9, 400, 300}, {3, 700, 300}}, [2]uint64{400, 700}},
		{"fewest before newest", [][3]uint64{{1, 100, 300}, {7, 400, 150}, {8, 550, 150}, {9, 700, 300}, {10, 1000, 50}}, [2]uint64{700, 1000}},
	} {
		events := []event.Event{opened(7, 5, 0)}
		for _, b := range c.lie {
			events = append(events, lies(1, 7, b[0], b[1], b[2], 0))
		}
		e := failed(t, after(append(events, wants(2, 7, 300, 0))...)).Evidence
		qt.Check(t, qt.DeepEquals([2]uint64{e.From, e.To}, c.want), qt.Commentf("%s", c.name))
	}
}

// clashing is a program whose buffers end at 600, and tensors from 400 on.
func clashing() []event.Event {
	static := func(address, size uint64, kind event.StaticKind) event.Event {
		e := cb(2, 7, 3, address, size, 1, 1, 0)
		e.StaticKind = kind
		return e
	}
	other := cb(2, 7, 4, 100, 900, 1, 1, 0) // of another program
	other.StaticKind = event.DataflowBuffer
	return []event.Event{
		opened(7, 5, 0),
		calledBy("high", lies(1, 7, 1, 900, 200, 0)), calledBy("low", lies(1, 7, 2, 400, 50, 0)), calledBy("middle", lies(1, 7, 3, 500, 200, 0)),
		static(100, 200, event.DataflowBuffer), static(300, 250, event.DataflowBuffer), static(550, 50, event.Scratchpad),
		static(600, 300, event.CircularBuffer), other,
		calledBy("softmax", event.Event{
			TimeNs: 3, Kind: event.AllocFailed, PID: 7, Region: event.CB, Devices: []int{0}, ProgramID: 3,
			StaticKind: event.DataflowBuffer, Reason: event.ReasonStaticClash,
		}),
	}
}

func TestAClashBlamesTheLowestTensors(t *testing.T) {
	f := failed(t, after(clashing()...))
	qt.Check(t, qt.Equals(analyze.CauseOf(f), analyze.Clash))
	e := f.Evidence
	qt.Check(t, qt.Equals(e.Region, event.L1))
	qt.Check(t, qt.DeepEquals([3]uint64{e.Lowest, e.From, e.To}, [3]uint64{400, 100, 600}))
	qt.Check(t, qt.DeepEquals(names(e.Blockers), []string{"low", "middle"}))
	qt.Check(t, qt.Equals(e.Blocking.BytesPerBank, 250))
	var ends []uint64
	for i := range e.Statics {
		ends = append(ends, e.Statics[i].End())
	}
	qt.Check(t, qt.DeepEquals(ends, []uint64{600, 550}))
}

// TestEvidenceIsKeptOverACheckpoint: also where all of it is gone by then.
func TestEvidenceIsKeptOverACheckpoint(t *testing.T) {
	for _, gone := range []bool{false, true} {
		for _, events := range [][]event.Event{
			clashing(),
			{
				opened(7, 5, 0), calledBy("weights", lies(1, 7, 1, 300, 400, 0)), calledBy("cache", lies(2, 7, 2, 800, 50, 0)),
				calledBy("forward", wants(6, 7, 310, 0)),
			},
		} {
			s := after(events...)
			if gone {
				s.Apply(&event.Event{TimeNs: 9, Kind: event.ProcessExit, PID: 7})
			} else {
				s.Apply(&event.Event{TimeNs: 9, Kind: event.Free, PID: 7, BufferID: 2, Reason: event.ReasonExplicit})
			}
			restored := restored(t, s)
			want, got := failed(t, s), failed(t, restored)
			qt.Assert(t, qt.IsNotNil(got.Evidence))
			qt.Check(t, qt.Equals(analyze.CauseOf(got), analyze.CauseOf(want)))
			qt.Check(t, qt.DeepEquals(described(got.Evidence), described(want.Evidence)))
			qt.Check(t, qt.Equals(restored.Snapshot().Anomalies, s.Snapshot().Anomalies))
		}
	}
}

// described is evidence with the names of its stacks in place of them.
func described(e *memory.Evidence) any {
	c := *e
	c.Holders, c.Blockers = withoutStacks(e.Holders), withoutStacks(e.Blockers)
	return []any{c, names(e.Holders), names(e.Blockers)}
}

func withoutStacks(list []memory.Blame) (without []memory.Blame) {
	for _, l := range list {
		l.Stack = nil
		without = append(without, l)
	}
	return without
}

// The figures of the library's message are right, whatever ttmem counts.
func TestTheFiguresOfTheMessage(t *testing.T) {
	said := wants(2, 7, 950, 0)
	said.Message = "Out of Memory: Not enough space to allocate 60800 B L1 buffer across 64 banks, where each bank needs to store 950 B, " +
		"but bank size is 900 B (allocated: 60 B, free: 840 B, largest free block: 700 B)."
	s := after(opened(7, 5, 0), lies(1, 7, 1, 400, 50, 0), said)
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		f := failed(t, s)
		qt.Check(t, qt.Equals(analyze.CauseOf(f), analyze.TooLarge))
		e := f.Evidence
		qt.Check(t, qt.IsTrue(e.Said))
		qt.Check(t, qt.DeepEquals(
			[]uint64{e.Capacity.BytesPerBank, e.AllocatedBytesPerBank, e.FreeBytesPerBank, e.LargestFreeBytesPerBank}, []uint64{900, 60, 840, 700},
		))
		qt.Check(t, qt.DeepEquals(e.Counted, &event.BankState{CapacityBytes: 1000, AllocatedBytes: 50, FreeBytes: 950, LargestFreeBytes: 650}))
	}
	said.Message = strings.NewReplacer("900 B", "1000 B", "60 B, free: 840 B", "50 B, free: 950 B", "700 B", "650 B").Replace(said.Message)
	e := failed(t, after(opened(7, 5, 0), lies(1, 7, 1, 400, 50, 0), said)).Evidence
	qt.Check(t, qt.IsTrue(e.Said))
	qt.Check(t, qt.IsNil(e.Counted))
}

// An allocator that gave up a part of L1 has the rest, and those of sub-devices have that part.
func TestSubDevicesHaveAPartOfL1(t *testing.T) {
	l1 := func(now, allocator uint64, banks uint32, base, bytes uint64, cause string) event.Event {
		e := opened(7, allocator, 0)
		e.TimeNs, e.Cause, e.Open.Capacities[event.L1] = now, cause, event.Capacity{Banks: banks, BytesPerBank: bytes, Base: base}
		return e
	}
	local := func(now, allocator, id, address uint64) event.Event {
		e := lies(now, 7, id, address, 50, 0)
		e.Allocator, e.Banks = allocator, 32
		return e
	}
	whole := l1(1, 5, 64, 100, 1000, "")
	s := after(whole, lies(2, 7, 1, 1000, 100, 0), l1(3, 5, 64, 300, 800, "sub-device manager"), wants(4, 7, 900, 0))
	l1Now := func() [3]uint64 {
		u := s.Snapshot().Devices[0].Regions.L1
		return [3]uint64{u.BytesPerBank, u.CapacityBytesPerBank, u.FreeBytesPerBank}
	}
	qt.Check(t, qt.DeepEquals(l1Now(), [3]uint64{100, 800, 700}))
	qt.Check(t, qt.Equals(s.AllocatorSpace(7, 5, event.L1).FreeBytesPerBank, 700))
	qt.Check(t, qt.HasLen(s.Buffers(), 1)) // nothing was freed
	f := failed(t, s)
	qt.Check(t, qt.Equals(analyze.CauseOf(f), analyze.TooLarge))
	qt.Check(t, qt.Equals(f.Evidence.SubDevicesPerBank, 200))

	// buffers of two sub-devices are at the same address, on different cores
	for _, e := range []event.Event{l1(5, 6, 32, 100, 200, ""), local(6, 6, 2, 250), l1(7, 4, 32, 100, 200, ""), local(8, 4, 3, 250)} {
		s.Apply(&e)
	}
	qt.Check(t, qt.DeepEquals(l1Now(), [3]uint64{150, 1000, 850}))
	qt.Check(t, qt.Equals(s.AllocatorSpace(7, 5, event.L1).FreeBytesPerBank, 700))
	qt.Check(t, qt.Equals(s.AllocatorSpace(7, 6, event.L1).FreeBytesPerBank, 150))
	qt.Check(t, qt.HasLen(s.Snapshot().Overlaps, 0))
	for _, allocator := range []uint64{4, 6} {
		s.Apply(&event.Event{TimeNs: 9, Kind: event.DeviceClose, PID: 7, Allocator: allocator, Devices: []int{0}})
	}
	back := l1(10, 5, 64, 100, 1000, "sub-device manager")
	s.Apply(&back)
	qt.Check(t, qt.DeepEquals(l1Now(), [3]uint64{100, 1000, 900}))
}

// TestFailuresExamineABoundedNumberOfBuffers: a program can fail thousands of times a second, and a recording can claim
// that they were seconds apart.
func TestFailuresExamineABoundedNumberOfBuffers(t *testing.T) {
	const live, failures = 10_000, 300
	s := after(opened(7, 5, 0), opened(8, 5, 0), lies(1, 8, 1, 300, 100, 0))
	for id := range uint64(live) {
		e := lies(1, 7, id, 300, 100, 0)
		s.Apply(&e)
	}
	fail := func(ns uint64, pid int) bool {
		e := wants(ns, pid, 260, 0)
		s.Apply(&e)
		list := s.Snapshot().Failures
		return list[len(list)-1].Evidence != nil
	}
	examined := 0
	for i := range uint64(failures) {
		if fail(2+i, 7) {
			examined++
		}
	}
	qt.Check(t, qt.Equals(examined, quota.Allocations/live))
	qt.Check(t, qt.IsTrue(fail(1000, 8))) // another user's
	mark := func(ns uint64) {
		for range live {
			s.Apply(&event.Event{TimeNs: ns, Kind: event.Mark, Cause: "a mark"})
		}
	}
	mark(1000)
	qt.Check(t, qt.IsFalse(fail(1_000_000, 7))) // a millisecond has room for a tenth of them
	for second := range uint64(100) {           // time without other events
		if fail((1+second)*1e9, 7) {
			examined++
		}
	}
	qt.Check(t, qt.IsTrue(examined <= quota.Allocations/live+1), qt.Commentf("%d", examined))
	qt.Assert(t, qt.IsNil(s.Restore(s.Checkpoint().State))) // which does not make room either
	for range 2 {
		fail(200e9, 7)
	}
	qt.Check(t, qt.IsFalse(fail(300e9, 7)))
	mark(300e9)
	qt.Check(t, qt.IsTrue(fail(400e9, 7))) // time and other events
}
