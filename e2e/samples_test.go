package e2e

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// checkSamples checks for a program that was traced that each peak is the largest of its samples, that
// none is above the capacity, and that the operation with most of L1 had the peak if a program ran then.
func checkSamples(t *testing.T, events []event.Event) {
	t.Helper()
	s := aggregate.New()
	type place struct {
		chip   int
		region event.Region
	}
	most, ran := make(map[place]uint64), make(map[int]uint64)
	s.OnRun(func(r memory.ProgramRun) {
		at := place{r.Device, event.L1}
		most[at], ran[r.Device] = max(most[at], r.Bytes), max(ran[r.Device], r.Bytes)
	})
	for i := range events {
		e := &events[i]
		s.Apply(e)
		if e.Kind != event.Alloc || int(e.Region) >= event.BankedRegions {
			continue
		}
		for _, id := range e.Devices {
			at := place{id, e.Region}
			most[at] = max(most[at], s.Level(id, e.Region))
		}
	}
	s.Advance(s.Now() + 1e9)
	overlap := s.Snapshot().OverlapCount > 0
	for _, p := range s.RegionPeaks() {
		about := qt.Commentf("chip %d, %s", p.Device, p.Region)
		qt.Check(t, qt.Equals(p.Bytes, most[place{p.Device, p.Region}]), about)
		qt.Check(t, qt.IsTrue(p.CapacityBytes == 0 || p.Bytes <= p.CapacityBytes), about)
		var sum uint64
		for _, h := range p.Holders {
			sum += h.Bytes
		}
		for _, g := range p.Programs {
			sum += g.Bytes
		}
		if overlap {
			sum -= assignedAgain(events, &p)
		}
		qt.Check(t, qt.Equals(sum, p.Bytes), about)
	}
	operations, others := s.Operations()
	of := make(map[int]uint64)
	for _, op := range operations {
		of[op.Peak.Device] = max(of[op.Peak.Device], op.Peak.Bytes())
	}
	for id, bytes := range of {
		qt.Check(t, qt.IsTrue(others > 0 || bytes <= ran[id]), qt.Commentf("chip %d", id))
	}
	if len(ran) == 1 && others == 0 { // an operation of a mesh names one of its chips
		for id, bytes := range ran {
			qt.Check(t, qt.Equals(of[id], bytes), qt.Commentf("chip %d", id))
		}
	}
}

// assignedAgain is how many bytes several allocators had assigned at a peak, beyond the first one: its
// buffers have them, and the peak counts them once.
func assignedAgain(events []event.Event, p *memory.RegionPeak) uint64 {
	s := aggregate.New()
	for i := range events {
		if events[i].TimeNs > p.TimeNs {
			break
		}
		s.Apply(&events[i])
	}
	region := regionOf(s.Snapshot(), p.Device, p.Region)
	if p.Region == event.L1 {
		return region.OverlapBytesPerBank
	}
	return region.OverlapBytesPerBank * uint64(region.Banks)
}
