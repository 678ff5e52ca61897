package aggregate_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// steps are what there is from a time on.
type steps []struct{ time, bytes uint64 }

// span is the least and the most that there was from one time to another, not
// included, with what was there right before.
func (s steps) span(from, to uint64) memory.Span {
	var now, least, most uint64
	begun := false
	for _, step := range s {
		if step.time >= to {
			break
		}
		if step.time >= from {
			if !begun {
				least, most, begun = now, now, true
			}
			least, most = min(least, step.bytes), max(most, step.bytes)
		}
		now = step.bytes
	}
	if !begun {
		return memory.Span{Min: now, Max: now}
	}
	return memory.Span{Min: least, Max: most}
}

func TestAnySpanOfATimelineHasItsLeastAndMost(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := aggregate.New()
		var all steps
		now, bytes := uint64(1000), uint64(0)
		open := wormhole(now, 7, 1, 0)
		p.Apply(&open)
		live := make(map[uint64]uint64)
		for range 300 {
			now += r.Uint64N(1 << r.UintN(34))
			id := r.Uint64N(20)
			if old, ok := live[id]; ok {
				end := free(now, 7, id)
				p.Apply(&end)
				bytes -= old
				delete(live, id)
			} else {
				e := tensor(now, 7, id, 0)
				e.BytesPerBank, e.Banks = 1+r.Uint64N(1<<20), 1 // reserved in all 12
				p.Apply(&e)
				bytes += 12 * e.BytesPerBank
				live[id] = 12 * e.BytesPerBank
			}
			all = append(all, struct{ time, bytes uint64 }{now, bytes})
		}
		now += r.Uint64N(1 << 34)
		peak := p.RegionPeaks()[0]
		line := peak.Timeline
		spans := line.Spans(now)
		qt.Assert(t, qt.IsTrue(len(spans) > 512 && len(spans) <= 1024), qt.Commentf("%d", len(spans)))
		for i, got := range spans {
			from := line.BeginNs + uint64(i)*line.StepNs()
			qt.Assert(t, qt.Equals(got, all.span(from, from+line.StepNs())), qt.Commentf("seed %d, span %d", seed, i))
		}
		checkColumns(t, line, now, peak)
	}
}

// checkColumns checks that columns show all that spans do, and the peak where it was.
func checkColumns(t *testing.T, line *memory.Timeline, end uint64, peak memory.RegionPeak) {
	t.Helper()
	spans := line.Spans(end)
	for _, n := range []int{1, 7, 80, 200, 512} {
		columns := line.Columns(end, n)
		qt.Assert(t, qt.HasLen(columns, n))
		qt.Assert(t, qt.Equals(columns[line.Column(peak.TimeNs, end, n)].Max, peak.Bytes))
		for i, s := range spans {
			c := columns[line.Column(line.BeginNs+uint64(i)*line.StepNs(), end, n)]
			qt.Assert(t, qt.IsTrue(c.Min <= s.Min && s.Max <= c.Max))
		}
	}
}

func TestATimelineThatIsShortHasFewColumns(t *testing.T) {
	line := peaksOf(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0), free(4, 7, 1)).RegionPeaks()[0].Timeline
	qt.Check(t, qt.DeepEquals(line.Columns(5, 80), []memory.Span{
		{}, {Max: 540672}, {Min: 540672, Max: 540672}, {Max: 540672}, {},
	}))
}

func TestALongSilenceIsWhatWasBefore(t *testing.T) {
	line := peaksOf(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0), event.Event{TimeNs: 1 << 50, Kind: event.Lost}).RegionPeaks()[0].Timeline
	spans := line.Spans(1 << 50)
	qt.Check(t, qt.Equals(spans[0], memory.Span{Max: 540672}))
	for _, s := range spans[1:] {
		qt.Assert(t, qt.Equals(s, memory.Span{Min: 540672, Max: 540672}))
	}
}

func TestTwoTimelinesHaveTheLeastAndTheMostOfEither(t *testing.T) {
	// one is of many short spans still, and the other has gone on
	p := peaksOf(wormhole(1, 7, 1, 0, 1), tensor(100, 7, 1, 0), tensor(200, 7, 2, 0, 1), free(300, 7, 1), tensor(1<<20, 7, 3, 1), free(1<<21, 7, 3))
	peaks := p.RegionPeaks()
	const end = 1 << 22
	one, other := peaks[0].Timeline, peaks[1].Timeline
	both := one.With(other, end)
	qt.Check(t, qt.Equals(both.StepNs(), other.StepNs()))
	spans := both.Spans(end)
	for i, s := range spans {
		a, b := one.Spans(end)[i], other.Spans(end)[i]
		qt.Assert(t, qt.Equals(s, memory.Span{Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}))
	}
	qt.Check(t, qt.Equals(spans[both.Column(3<<19, end, 1024)], memory.Span{Min: 540672, Max: 2 * 540672}))
	next := tensor(end+1, 7, 4, 0)
	p.Apply(&next)
	qt.Check(t, qt.Equals(both.Spans(end)[len(spans)-1].Max, 540672)) // it is a copy
}

func TestTimelinesBeginAnewWithWhatIsLive(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0), tensor(3, 7, 2, 0), free(4, 7, 2))
	s.RestartTimelines()
	for _, e := range []event.Event{wormhole(5, 8, 1, 1), tensor(5, 8, 1, 1), free(6, 7, 1)} {
		s.Apply(&e)
	}
	lines := s.Timelines()
	qt.Assert(t, qt.HasLen(lines, 2))
	qt.Check(t, qt.DeepEquals(lines[0].Timeline.Spans(6), []memory.Span{{Min: 540672, Max: 540672}, {Min: 540672, Max: 540672}, {Max: 540672}}))
	qt.Check(t, qt.DeepEquals(lines[1].Timeline.Spans(6), []memory.Span{{}, {Max: 540672}, {Min: 540672, Max: 540672}}))
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.DRAM.PeakBytes, 2*540672))
}

// TestTimelinesAreSmall: however long a program runs, those of a chip's DRAM and L1 take
// no more than 48 KiB.
func TestTimelinesAreSmall(t *testing.T) {
	const chips, limit = 64, 56 << 10
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := aggregate.New()
	for i := range uint64(1 << 12) {
		for id := range chips {
			dram, l1 := tensor(i<<30, 7, i<<8|uint64(id)<<1, id), tensor(i<<30, 7, i<<8|uint64(id)<<1|1, id)
			l1.Region = event.L1
			for _, e := range []event.Event{dram, l1, free(i<<30+1, 7, dram.BufferID), free(i<<30+1, 7, l1.BufferID)} {
				s.Apply(&e)
			}
		}
	}
	each := (heap() - before) / chips
	t.Logf("%d bytes for each chip", each)
	qt.Check(t, qt.IsTrue(each < limit), qt.Commentf("%d bytes", each))
	runtime.KeepAlive(s)
}
