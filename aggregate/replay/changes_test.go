package replay

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/lives"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// An n150 is a device as ttnn 0.81 opens it with the sizes of L1_SMALL and of the trace region in each bank.
func n150(small, trace uint64) memory.Capacities {
	return memory.Capacities{
		event.DRAM:    {Banks: 12, Base: 1048640, BytesPerBank: 1072693184 - trace},
		event.Trace:   {Banks: 12, Base: 1<<30 - trace, BytesPerBank: trace},
		event.L1:      {Banks: 64, Base: 105824, BytesPerBank: 1393312 - small},
		event.L1Small: {Banks: 64, Base: 0x16e000 - small, BytesPerBank: small},
	}
}

// TestOn has the sizes that the library has on a mock of the board.
func TestOn(t *testing.T) {
	for _, c := range []struct {
		board                 string
		small, trace          uint64
		dram, l1, traceOnThat event.Capacity
	}{
		{"n300", 0, 0, event.Capacity{Banks: 12, Base: 0x100040, BytesPerBank: 1072693184}, event.Capacity{Banks: 64, BytesPerBank: 1393312}, event.Capacity{}},
		{"p150", 0, 0, event.Capacity{Banks: 8, Base: 0x100080, BytesPerBank: 4277141376}, event.Capacity{Banks: 110, BytesPerBank: 1461120}, event.Capacity{}},
		{"p150", 32768, 835584, event.Capacity{Banks: 8, Base: 0x100080, BytesPerBank: 4275888000}, event.Capacity{Banks: 110, BytesPerBank: 1428352}, event.Capacity{BytesPerBank: 1253376}},
		{"p100", 32768, 835584, event.Capacity{Banks: 7, Base: 0x100080, BytesPerBank: 4275707776}, event.Capacity{Banks: 110, BytesPerBank: 1428352}, event.Capacity{BytesPerBank: 1433600}},
		{"n150:64", 0, 0, event.Capacity{Banks: 12, Base: 0x100040, BytesPerBank: 1072693184}, event.Capacity{Banks: 56, BytesPerBank: 1393312}, event.Capacity{}},
		{"n150:80", 32768, 0, event.Capacity{Banks: 12, Base: 0x100040, BytesPerBank: 1072693184}, event.Capacity{Banks: 72, BytesPerBank: 1360544}, event.Capacity{}},
		{"p150:140", 0, 0, event.Capacity{Banks: 8, Base: 0x100080, BytesPerBank: 4277141376}, event.Capacity{Banks: 130, BytesPerBank: 1461120}, event.Capacity{}},
		{"p150:130", 0, 0, event.Capacity{Banks: 8, Base: 0x100080, BytesPerBank: 4277141376}, event.Capacity{Banks: 120, BytesPerBank: 1461120}, event.Capacity{}},
	} {
		w := with(on(t, c.board))
		got, doubt := w.sizes(7, n150(c.small, c.trace))
		qt.Check(t, qt.Equals(doubt, ""))
		qt.Check(t, qt.Equals(got.Capacities[event.DRAM], c.dram), qt.Commentf("%s", c.board))
		qt.Check(t, qt.Equals(got.Capacities[event.L1].Banks, c.l1.Banks))
		qt.Check(t, qt.Equals(got.Capacities[event.L1].BytesPerBank, c.l1.BytesPerBank))
		qt.Check(t, qt.Equals(got.Capacities[event.L1Small].BytesPerBank, c.small))
		qt.Check(t, qt.Equals(got.Capacities[event.Trace].BytesPerBank, c.traceOnThat.BytesPerBank))
	}
	of := n150(0, 0)
	of[event.L1].Base += 32
	_, doubt := with(on(t, "p150")).sizes(7, of)
	qt.Check(t, qt.StringContains(doubt, "where L1 begins on p150"))
	of = n150(0, 0)
	of[event.L1].Banks = 60 // a sub-device's
	_, doubt = with(on(t, "n150:80")).sizes(7, of)
	qt.Check(t, qt.StringContains(doubt, "is not known for this device"))
	of[event.L1].Banks = 56 // of a harvested one
	got, doubt := with(on(t, "p150")).sizes(7, of)
	qt.Check(t, qt.Equals(doubt, ""))
	qt.Check(t, qt.Equals(got.Capacities[event.L1].Banks, 110))
	_, doubt = with(on(t, "p150")).sizes(7, memory.Capacities{})
	qt.Check(t, qt.StringContains(doubt, "board is not known"))
}

func on(t *testing.T, board string) Change {
	b, err := ParseBoard(board)
	qt.Assert(t, qt.IsNil(err))
	return On(b)
}

// TestInterleaved has the bytes that the library reserves for tensors of rows in each bank.
func TestInterleaved(t *testing.T) {
	for _, c := range []struct {
		on          *chip
		region      event.Region
		banks       uint64
		pages, page uint64
		want        uint64
	}{
		{wormhole, event.DRAM, 12, 1000, 80, 8064}, {wormhole, event.DRAM, 12, 1000, 10, 2688}, {wormhole, event.DRAM, 12, 256, 2048, 45056},
		{wormhole, event.L1, 64, 1000, 80, 1280}, {wormhole, event.L1, 64, 1000, 10, 256}, {wormhole, event.L1, 64, 333, 200, 1248},
		{wormhole, event.L1, 64, 3, 80, 96}, {wormhole, event.L1, 64, 7, 10000, 10016},
		{blackhole, event.DRAM, 8, 1000, 80, 16000}, {blackhole, event.DRAM, 8, 333, 200, 10752}, {blackhole, event.DRAM, 7, 256, 2048, 75776},
		{blackhole, event.L1, 110, 1000, 80, 832}, {blackhole, event.L1, 110, 1000, 10, 192}, {blackhole, event.L1, 110, 7, 10000, 10048},
	} {
		e := &event.Event{SizeBytes: c.pages * c.page, PageSizeBytes: c.page}
		qt.Check(t, qt.Equals(interleaved(e, e.SizeBytes, c.region, c.banks, c.on), c.want), qt.Commentf("%+v", c))
	}
}

// tiled is a script on an n150, whose allocations have pages of one tile.
func tiled(whatIfs ...*WhatIf) *script {
	s := &script{Replay: New(whatIfs...)}
	s.start(false)
	e := device(1, 64, "")
	e.Open.Capacities = n150(0, 0)
	s.Apply(e)
	return s
}

// tiles are pages in each of 64 banks of L1, or in all of 12 banks of DRAM.
func tiles(pages uint64, name string) func(*event.Event) {
	return func(e *event.Event) { e.PageSizeBytes, e.SizeBytes, e.Stack = 2048, pages*2048, at(name) }
}

// TestMove: the bytes of each bank follow from the pages; where these are not known, nothing is.
func TestMove(t *testing.T) {
	down := with(Move(selects("a"), event.DRAM))
	both := with(on(t, "p150"), Move(selects("a"), event.DRAM))
	s := tiled(down, both)
	top := uint64(0x16e000 / kib)
	a := s.alloc(event.L1, top-8, 8, tiles(256, "a"))
	s.alloc(event.L1, top-16, 8, tiles(256, "b"))
	moved := s.process(7).live[a.BufferID].changed
	qt.Check(t, qt.Equals(moved[0].region, event.DRAM))
	qt.Check(t, qt.Equals(moved[0].start, 0x100040))
	qt.Check(t, qt.Equals(moved[0].end-moved[0].start, 45056))
	qt.Check(t, qt.Equals(moved[1].start, 0x100080))
	qt.Check(t, qt.Equals(moved[1].end-moved[1].start, 65536))
	qt.Check(t, qt.Equals(down.Most[event.L1], 8*kib))
	qt.Check(t, qt.Equals(both.Most[event.L1], 6*kib))
	s.free(a)
	qt.Check(t, qt.Equals(s.process(7).allocator(1).changed[0].spaces[event.DRAM].bytes, 0))

	big := func(e *event.Event) { tiles(1<<20, "a")(e); e.BytesPerBank = 32 << 20 }
	s.OnFailure = func(f *Failure) { // the failed allocation moves, too
		qt.Check(t, qt.Equals(f.With(0), Verdict{Fits: true, Address: 0x100040}))
	}
	failed := &event.Event{Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Allocator: 1, Region: event.L1, Reason: event.ReasonOutOfMemory}
	big(failed)
	s.Apply(failed)
	qt.Check(t, qt.Equals(s.FailuresPredicted, 1))
	qt.Check(t, qt.Equals(down.Doubt, ""))
	s.alloc(event.L1, top-8, 8, tiles(256, "a"), func(e *event.Event) { e.Layout = event.HeightSharded })
	qt.Check(t, qt.StringContains(down.Doubt, "is sharded"))
	qt.Check(t, qt.Equals(s.Whole(0), Verdict{Fits: true, Doubt: down.Doubt}))
}

// A tape is events that are played twice.
type tape []*event.Event

func (l *tape) play(handle func(*event.Event)) error {
	for _, e := range *l {
		handle(e)
	}
	return nil
}

func (l *tape) add(kind event.Kind, id, address, bytes uint64, name string) {
	*l = append(*l, &event.Event{
		Kind: kind, PID: 7, Devices: []int{0}, Allocator: 1, Region: event.L1, BufferID: id, TimeNs: id, Address: address * kib, BytesPerBank: bytes * kib,
		Stack: at(name), Reason: event.ReasonOutOfMemory,
	})
}

// TestFirst: what is allocated first lies at the top, and what failed may fit there.
func TestFirst(t *testing.T) {
	l := &tape{{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)}, device(1, 64, "")}
	l.add(event.Alloc, 1, 64, 16, "a")
	l.add(event.Alloc, 2, 48, 16, "b")
	l.add(event.Free, 1, 64, 16, "a")
	l.add(event.Alloc, 3, 72, 8, "b")
	l.add(event.AllocFailed, 4, 0, 36, "c")
	l.add(event.Free, 2, 48, 16, "b")
	firstB, firstC, firstA := with(First(selects("b"))), with(First(selects("c"))), with(First(selects("a")), Without(selects("b")))
	r, asked := New(firstB, firstC, firstA), 0
	r.OnFailure = func(f *Failure) {
		asked++
		// b is at 64 and 56, which leaves 40 in one piece
		qt.Check(t, qt.Equals(f.With(0), Verdict{Fits: true, Address: 20 * kib}))
		qt.Check(t, qt.Equals(f.With(1), Verdict{Fits: true, Address: 44 * kib}))
		qt.Check(t, qt.Equals(f.With(2), Verdict{Fits: true, Address: 44 * kib}))
	}
	qt.Assert(t, qt.IsNil(r.Play(l.play)))
	qt.Check(t, qt.Equals(asked, 1))
	qt.Check(t, qt.Equals(r.FailuresPredicted, 1))
	qt.Check(t, qt.Equals(firstA.LeftOut, 2))
	// beside a and c there is no room for the first b
	qt.Check(t, qt.DeepEquals([]uint64{firstB.Failed, firstC.Failed, firstA.Failed}, []uint64{0, 1, 0}))
	c := r.process(7).allocator(1).changed
	qt.Check(t, qt.Equals(c[0].spaces[event.L1].bytes, 8*kib))
	qt.Check(t, qt.Equals(c[1].spaces[event.L1].bytes, 8*kib))
	qt.Check(t, qt.Equals(len(c[0].early)+len(c[1].early), 0))
}

// TestClearCacheAt frees the buffers of the cache once. If a program of it runs again, what it allocates is not known.
func TestClearCacheAt(t *testing.T) {
	l := &tape{{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)}, device(1, 64, "")}
	l.add(event.Alloc, 1, 64, 16, "table")
	l.add(event.ProgramRun, 0, 0, 0, "op")
	l.add(event.Alloc, 2, 16, 48, "a")
	l.add(event.AllocFailed, 3, 0, 16, "here")
	cleared, empty := with(ClearCacheAt(selects("a"), selects("table"))), with(ClearCacheAt(selects("a"), selects("nothing")))
	r, verdicts := New(cleared, empty), []Verdict{}
	r.OnFailure = func(f *Failure) { verdicts = append(verdicts, f.With(0), f.With(1)) }
	qt.Assert(t, qt.IsNil(r.Play(l.play)))
	l = new(tape)
	l.add(event.ProgramRun, 0, 0, 0, "op")
	l.add(event.AllocFailed, 4, 0, 16, "here")
	qt.Assert(t, qt.IsNil(r.Play(l.play)))
	again := "a program of the cleared cache runs again, and would allocate its buffers again"
	qt.Check(t, qt.DeepEquals(verdicts, []Verdict{{Fits: true, Address: 64 * kib}, {}, {Doubt: again}, {}}))
}

// TestReach is the smallest size of a region with which all fits: one byte less, and something fails.
func TestReach(t *testing.T) {
	l := &tape{{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)}, device(1, 64, "")}
	alloc := func(region event.Region, id, address uint64) {
		l.add(event.Alloc, id, address, 4, "a")
		(*l)[len(*l)-1].Region = region
		(*l)[len(*l)-1].SizeBytes = 12 * 4 * kib
	}
	alloc(event.L1Small, 1, 92)
	alloc(event.L1Small, 2, 88)
	alloc(event.Trace, 3, 1088)
	l.add(event.Free, 1, 0, 0, "a")
	alloc(event.L1Small, 4, 92)
	recorded := New()
	qt.Assert(t, qt.IsNil(recorded.Play(l.play)))
	qt.Check(t, qt.Equals(recorded.Reach[event.L1Small], 8*kib))
	qt.Check(t, qt.Equals(recorded.Size[event.L1Small], 16*kib))
	qt.Check(t, qt.Equals(recorded.TraceBytes, 48*kib))
	r := New(with(Set(L1SmallSize, 8*kib, 0), Set(TraceRegionSize, 48*kib, 0)), with(Set(L1SmallSize, 8*kib-64, 0)), with(Set(TraceRegionSize, 0, 0)))
	qt.Assert(t, qt.IsNil(r.Play(l.play)))
	qt.Check(t, qt.DeepEquals([]bool{r.Whole(0).Fits, r.Whole(1).Fits, r.Whole(2).Fits}, []bool{true, false, false}))
}

// TestFirstIsImpossible for the results of operations. It is not known for a device that was open before.
func TestFirstIsImpossible(t *testing.T) {
	for name, want := range map[string]string{
		"a": "the device was open before the recording began", "device_operation::launch": "the result of an operation cannot be allocated before its inputs",
	} {
		l := new(tape)
		if name != "a" {
			*l = append(*l, device(1, 64, ""))
		}
		l.add(event.Alloc, 1, 64, 16, name)
		l.add(event.AllocFailed, 2, 0, 64, name)
		r, failed := New(with(First(selects(name)))), Verdict{}
		r.OnFailure = func(f *Failure) { f.Doubt = ""; failed = f.With(0) }
		qt.Assert(t, qt.IsNil(r.Play(l.play)))
		qt.Check(t, qt.Equals(r.Whole(0).Doubt, want))
		qt.Check(t, qt.Equals(failed.Doubt, want))
	}
}

// TestFree: what is allocated after the last use of a buffer goes to its place, and what failed may fit. The operation that
// uses a buffer has to return first.
func TestFree(t *testing.T) {
	l := &tape{{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)}, device(1, 64, "")}
	run := func(name string, at ...uint32) {
		l.add(event.ProgramRun, 0, 0, 0, name)
		(*l)[len(*l)-1].Uses = &event.Uses{Arguments: at}
	}
	l.add(event.Alloc, 1, 64, 16, "a")
	l.add(event.Alloc, 2, 56, 8, "b")
	run("op", 64*kib)
	l.add(event.Alloc, 3, 48, 8, "op") // beside a
	run("op", 48*kib)
	l.add(event.Alloc, 4, 32, 16, "b") // in the place of a
	l.add(event.AllocFailed, 5, 0, 32, "c")
	run("op", 56*kib)
	l.add(event.Free, 1, 0, 0, "a")
	free := func(name string) *WhatIf {
		return with(Free(func(_ int, b *lives.Life) bool { return selects(name)(b.Stack) }))
	}
	a, b := free("a"), free("b")
	r := New(a, b)
	r.OnFailure = func(f *Failure) {
		qt.Check(t, qt.Equals(f.With(0), Verdict{Fits: true, Address: 16 * kib}))
		qt.Check(t, qt.Equals(f.With(1), Verdict{Fits: true, Address: 16 * kib})) // the second b is never used
	}
	qt.Assert(t, qt.IsNil(r.Play(l.play)))
	qt.Check(t, qt.Equals(r.FailuresPredicted, 1))
	qt.Check(t, qt.DeepEquals([]uint64{a.Early, b.Early}, []uint64{1, 2}))
	qt.Check(t, qt.DeepEquals([]uint64{r.Most[event.L1], a.Most[event.L1]}, []uint64{48 * kib, 32 * kib}))

	(*l)[9] = &event.Event{Kind: event.ProgramRun, PID: 7, Devices: []int{0}} // not recorded what it uses
	r = New(free("a"))
	r.OnFailure = func(f *Failure) {
		qt.Check(t, qt.StringContains(f.With(0).Doubt, "is used after its last known use"))
	}
	qt.Assert(t, qt.IsNil(r.Play(l.play)))
}
