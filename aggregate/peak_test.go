package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

func peaksOf(events ...event.Event) *aggregate.State {
	p := aggregate.New()
	for i := range events {
		p.Apply(&events[i])
	}
	return p
}

func TestAPeakWithinAnOperationKeepsWhatIsFreedWithIt(t *testing.T) {
	// stack 1 holds two; the operation of stack 2 has a temporary, and its result
	p := peaksOf(wormhole(1, 7, 1, 0),
		from(1, tensor(2, 7, 1, 0)), from(1, tensor(3, 7, 2, 0)),
		from(2, tensor(4, 7, 3, 0)), from(2, tensor(5, 7, 4, 0)), free(6, 7, 3), free(7, 7, 1))
	peaks := p.RegionPeaks()
	qt.Assert(t, qt.HasLen(peaks, 1))
	qt.Check(t, qt.Equals(peaks[0].TimeNs, 5))
	qt.Check(t, qt.Equals(peaks[0].Bytes, 4*540672))
	qt.Check(t, qt.Equals(peaks[0].CapacityBytes, 12*wormholeDRAM))
	var counts []uint64
	for _, h := range peaks[0].Holders {
		counts = append(counts, h.Count)
	}
	qt.Check(t, qt.DeepEquals(counts, []uint64{2, 2}))
}

func TestL1IsBuffersAndCircularBuffersOfEachCore(t *testing.T) {
	inL1 := tensor(3, 7, 1, 0)
	inL1.Region, inL1.BytesPerBank, inL1.Banks = event.L1, 2048, 64
	other := from(3, cb(5, 7, 2, 1500, 100, 0, 0, 0))
	other.StaticKind = event.DataflowBuffer
	p := peaksOf(wormhole(1, 7, 1, 0),
		from(1, cb(2, 7, 1, 1000, 300, 1, 1, 0)), from(2, inL1),
		from(3, cb(4, 7, 2, 1000, 500, 0, 0, 0)), other,
		endCBs(6, 7, 2), free(7, 7, 1))
	peaks := p.RegionPeaks()
	qt.Assert(t, qt.HasLen(peaks, 1))
	l1 := peaks[0]
	qt.Check(t, qt.Equals(l1.Region, event.L1))
	qt.Check(t, qt.Equals(l1.TimeNs, 5))
	qt.Check(t, qt.Equals(l1.Bytes, 2048+600))
	qt.Check(t, qt.Equals(l1.StaticBytes, 600))
	qt.Check(t, qt.Equals(l1.CapacityBytes, wormholeL1))
	qt.Check(t, qt.IsTrue(slices.Equal(l1.Programs, []memory.PeakProgram{
		{PID: 7, ProgramID: 2, Kind: event.CircularBuffer, Stack: stacks[3], Count: 1, Bytes: 500},
		{PID: 7, ProgramID: 2, Kind: event.DataflowBuffer, Stack: stacks[3], Count: 1, Bytes: 100},
	})), qt.Commentf("%+v", l1.Programs))
}

func TestWhatWasThereBeforeTheAttachIsApart(t *testing.T) {
	before := tensor(1, 7, 1, 0)
	before.BeforeAttach = true
	holders := peaksOf(before, tensor(2, 7, 2, 0)).RegionPeaks()[0].Holders
	qt.Assert(t, qt.HasLen(holders, 2))
	qt.Check(t, qt.IsTrue(holders[0].BeforeAttach != holders[1].BeforeAttach))
}

// TestWhatWasThereBeforeTheAttachDidNotRise: the tracer reads what a process has from its
// memory, some time after it began.
func TestWhatWasThereBeforeTheAttachDidNotRise(t *testing.T) {
	before := func(e event.Event) event.Event {
		e.BeforeAttach = true
		return e
	}
	start := func(now uint64, pid int) event.Event {
		return event.Event{TimeNs: now, Kind: event.ProcessStart, PID: pid, Start: &event.Start{AttachedLate: true}}
	}
	const read = 100e6
	p := peaksOf(start(1, 7), before(wormhole(read, 7, 1, 0)), before(tensor(read, 7, 1, 0)), before(tensor(read, 7, 2, 0)),
		before(cb(read, 7, 1, 1000, 300, 1, 1, 0)), free(2*read, 7, 1), before(tensor(2*read, 7, 3, 0)),
		start(10e9, 8), before(tensor(11e9, 8, 1, 0)), before(tensor(11e9, 8, 2, 1)))
	dram, other := p.RegionPeaks()[0], p.RegionPeaks()[1]
	qt.Check(t, qt.Equals(dram.Timeline.BeginNs, 1))
	at := func(l *memory.Timeline, ns uint64) memory.Span { return l.Spans(12e9)[l.Column(ns, 12e9, 1024)] }
	// the third was there too, although it was read after the program went on
	qt.Check(t, qt.Equals(at(dram.Timeline, 1), memory.Span{Min: 2 * 540672, Max: 2 * 540672}))
	qt.Check(t, qt.Equals(at(dram.Timeline, 2*read), memory.Span{Min: 2 * 540672, Max: 2 * 540672}))
	qt.Check(t, qt.Equals(at(other.Timeline, 1), memory.Span{})) // long after the beginning
	qt.Check(t, qt.Equals(dram.Bytes, 3*540672))
}

// TestAUserHasThePeaksThatRootHas: of chip 0, which only this user has used, all call sites, and
// of chip 1 the own ones, beside the sum of others.
func TestAUserHasThePeaksThatRootHas(t *testing.T) {
	start := func(pid, uid int) event.Event {
		return event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid}
	}
	all := peaksOf(start(7, 1000), start(8, 2000), wormhole(1, 7, 1, 0, 1), wormhole(1, 8, 1, 1),
		from(1, tensor(2, 7, 1, 0)), from(2, tensor(3, 7, 2, 0)), from(1, tensor(4, 7, 3, 1)), from(3, tensor(5, 8, 1, 1)),
		from(3, cb(6, 7, 1, 1000, 300, 1, 1, 0)), endCBs(7, 7, 1), free(7, 7, 1), free(8, 8, 1),
		event.Event{TimeNs: 9, Kind: event.ProcessExit, PID: 7}, start(9, 1000), from(1, tensor(10, 9, 1, 0)))
	mine := aggregate.New()
	mine.Apply(all.Freeze(func(uid int) bool { return uid == 1000 })())
	check := func() {
		t.Helper()
		want, got := all.RegionPeaks(), mine.RegionPeaks()
		qt.Assert(t, qt.HasLen(want, 3))
		qt.Assert(t, qt.HasLen(got, 3))
		for i := range want[:2] { // of chip 0
			want[i].Timeline, want[i].StaticTimeline = nil, nil
			got[i].Timeline, got[i].StaticTimeline = nil, nil
			qt.Check(t, qt.Equals(fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i])))
		}
		qt.Check(t, qt.DeepEquals([]uint64{got[2].TimeNs, got[2].Bytes, got[2].OthersBytes}, []uint64{5, 2 * 540672, 540672}))
		qt.Check(t, qt.IsNil(got[2].Earlier))
		qt.Assert(t, qt.HasLen(got[2].Holders, 1))
		qt.Check(t, qt.Equals(got[2].Holders[0].Stack, stacks[1]))
		qt.Check(t, qt.HasLen(want[2].Holders, 2))
		for i, d := range all.Snapshot().Devices {
			own := mine.Snapshot().Devices[i].Regions.DRAM
			qt.Check(t, qt.Equals(own.PeakBytes, d.Regions.DRAM.PeakBytes))
			qt.Check(t, qt.Equals(own.PeakTimeNs, d.Regions.DRAM.PeakTimeNs))
		}
	}
	check()
	for id := range uint64(4) {
		e := from(2, tensor(11+id, 9, 10+id, 0))
		all.Apply(&e)
		mine.Apply(&e)
	}
	check()

	// without other users it is all as it was
	alone := peaksOf(start(7, 1000), wormhole(1, 7, 1, 0), from(1, tensor(2, 7, 1, 0)), from(1, tensor(3, 7, 2, 0)), free(4, 7, 1))
	mine = aggregate.New()
	mine.Apply(alone.Freeze(func(uid int) bool { return uid == 1000 })())
	qt.Check(t, qt.Equals(fmt.Sprintf("%+v", mine.RegionPeaks()[0].Timeline), fmt.Sprintf("%+v", alone.RegionPeaks()[0].Timeline)))
	begin, restored := mine.Since()
	qt.Check(t, qt.Equals(begin, 1))
	qt.Check(t, qt.IsFalse(restored))
}

// TestAUserHasTheOwnPartOfSharedPeaks at any time, and what others had as one sum. While only this
// user allocates, that stays so.
func TestAUserHasTheOwnPartOfSharedPeaks(t *testing.T) {
	const pid = 2
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 11))
		all, now := aggregate.New(), uint64(0)
		step := func(own bool, states ...*aggregate.State) {
			e := fullEvent(r, now)
			now += r.Uint64N(4)
			if own {
				e.PID = pid
			}
			if e.PID > 0 && (e.Kind == event.ProcessExit || e.Kind == event.ProcessStart) {
				e = event.Event{TimeNs: e.TimeNs, Kind: event.ProcessStart, PID: e.PID, UID: 1000 + e.PID}
			}
			for _, s := range states {
				s.Apply(&e)
			}
		}
		for one := range 3 {
			all.Apply(&event.Event{Kind: event.ProcessStart, PID: 1 + one, UID: 1001 + one})
		}
		for range r.IntN(300) {
			step(false, all)
		}
		mine := aggregate.New()
		mine.Apply(all.Freeze(func(uid int) bool { return uid == 1000+pid })())
		comment := qt.Commentf("seed %d, time %d", seed, now)
		want, got := all.RegionPeaks(), mine.RegionPeaks()
		qt.Assert(t, qt.HasLen(got, len(want)), comment)
		for i, peak := range want {
			var others uint64
			own := slices.DeleteFunc(peak.Holders, func(h memory.SiteAmount) bool {
				if h.PID != pid {
					others += h.Bytes
				}
				return h.PID != pid
			})
			qt.Check(t, qt.Equals(got[i].OthersBytes-got[i].OthersStaticBytes, others), comment)
			qt.Check(t, qt.Equals(fmt.Sprintf("%+v", got[i].Holders), fmt.Sprintf("%+v", own)), comment)
			if got[i].OthersStaticBytes > 0 { // else more than one core may be the fullest
				own := slices.DeleteFunc(peak.Programs, func(p memory.PeakProgram) bool { return p.PID != pid })
				qt.Check(t, qt.Equals(fmt.Sprintf("%+v", got[i].Programs), fmt.Sprintf("%+v", own)), comment)
			}
			rest := func(p memory.RegionPeak) string {
				line, static := p.Timeline, p.StaticTimeline
				p.OthersBytes, p.OthersStaticBytes, p.Holders, p.Programs, p.Timeline, p.StaticTimeline = 0, 0, nil, nil, nil, nil
				return fmt.Sprintf("%+v %+v %+v", p, *line, *static)
			}
			qt.Check(t, qt.Equals(rest(got[i]), rest(peak)), comment)
		}
		for range 100 {
			step(true, all, mine)
		}
		got = mine.RegionPeaks()
		for _, peak := range all.RegionPeaks() {
			if peak.Region != event.L1 { // where circular buffers of several users use the same space
				at := slices.IndexFunc(got, func(p memory.RegionPeak) bool { return p.Device == peak.Device && p.Region == peak.Region })
				qt.Assert(t, qt.Not(qt.Equals(at, -1)), qt.Commentf("seed %d, chip %d %s %+v\n%+v", seed, peak.Device, peak.Region, peak.Holders, got))
				qt.Check(t, qt.DeepEquals([]uint64{got[at].TimeNs, got[at].Bytes}, []uint64{peak.TimeNs, peak.Bytes}), comment)
			}
		}
	}
}

// TestAPeakBeforeSomebodyJoinedIsOnlyKnownToHaveBeen, where only some processes are shown.
func TestAPeakBeforeSomebodyJoinedIsOnlyKnownToHaveBeen(t *testing.T) {
	first := peaksOf(wormhole(1, 7, 1, 0),
		from(1, tensor(2, 7, 1, 0)), from(1, tensor(3, 7, 2, 0)), from(2, tensor(4, 7, 3, 0)), free(5, 7, 1), free(6, 7, 2))
	p := aggregate.New()
	p.Apply(aggregate.OfProcesses(first.Checkpoint(), []int{7}))
	begin, restored := p.Since()
	qt.Check(t, qt.IsTrue(restored))
	qt.Check(t, qt.Equals(begin, 6))
	next := from(1, tensor(8, 7, 4, 0))
	p.Apply(&next)
	peak := p.RegionPeaks()[0]
	qt.Check(t, qt.DeepEquals(peak.Earlier, &memory.EarlierPeak{TimeNs: 4, Bytes: 3 * 540672, CapacityBytes: 12 * wormholeDRAM}))
	qt.Check(t, qt.Equals(peak.Bytes, 2*540672))
	qt.Check(t, qt.Equals(peak.TimeNs, 8))
	qt.Check(t, qt.HasLen(peak.Holders, 2))
	qt.Check(t, qt.Equals(peak.Timeline.BeginNs, 6))
	qt.Check(t, qt.Equals(peak.Timeline.Spans(8)[0].Min, 540672))
}

// TestPeaksForgetWhatIsOver has a million stacks that each allocate for a moment.
func TestPeaksForgetWhatIsOver(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p := peaksOf(wormhole(1, 7, 1, 0), from(1, tensor(2, 7, 0, 0)), from(1, tensor(3, 7, 1, 0)), free(4, 7, 1))
	before := heap()
	alloc, end := tensor(5, 7, 2, 0), free(6, 7, 2)
	for id := range uint64(1_000_000) {
		alloc.TimeNs, end.TimeNs = 5+2*id, 6+2*id
		alloc.Stack = event.NewStack(id+100, nil)
		p.Apply(&alloc)
		p.Apply(&end)
	}
	grown := int64(heap()) - int64(before)
	qt.Check(t, qt.IsTrue(grown < 4<<20), qt.Commentf("%d bytes more", grown))
	peak := p.RegionPeaks()[0]
	qt.Check(t, qt.Equals(peak.TimeNs, 3))
	qt.Check(t, qt.HasLen(peak.Holders, 1))
	runtime.KeepAlive(p)
}
