package replay

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// batch are the events of a program: "grows" allocates 128 tiles for each 1 of n, "fixed" 64, and "more" n times 64.
func batch(n uint64) *tape {
	e := device(1, 64, "")
	e.Open.Capacities = n150(0, 0)
	l := &tape{{Kind: event.ProcessStart, PID: 7, Start: new(event.Start)}, e}
	address, id := uint64(0x16e000/kib), uint64(0)
	alloc := func(pages uint64, name string) {
		id++
		perBank := (pages + 63) / 64 * 2
		address -= perBank
		l.add(event.Alloc, id, address, perBank, name)
		tiles(pages, name)((*l)[len(*l)-1])
	}
	alloc(64, "fixed")
	for range n {
		alloc(64, "more")
	}
	alloc(128*n, "grows")
	return l
}

// TestGrowth extrapolates each allocation, or the bytes of a call site whose allocations are of another number.
func TestGrowth(t *testing.T) {
	g := NewGrowth([]float64{1, 3})
	for i, n := range []uint64{1, 3} {
		qt.Assert(t, qt.IsNil(batch(n).play(g.Of(i))))
	}
	sites := g.Sites()
	qt.Assert(t, qt.HasLen(sites, 3))
	for i, want := range []struct {
		name         string
		fixed, grows float64
	}{{"grows", 0, 128 * 2048}, {"more", 0, 64 * 2048}, {"fixed", 64 * 2048, 0}} {
		qt.Check(t, qt.Equals(sites[i].Stack.Frames()[0].Name, want.name))
		fixed, grows := sites[i].Line()
		qt.Check(t, qt.Equals(fixed, want.fixed))
		qt.Check(t, qt.Equals(grows, want.grows))
		qt.Check(t, qt.IsTrue(sites[i].IsLinear()))
	}
	// each bank has 1360 KiB: 2 are fixed, 4 n grow, and the three buffers of more take n / 3 pages of 2 KiB each
	same, ten, most, over := with(g.Grow(1, 3)), with(g.Grow(1, 10)), with(g.Grow(1, 225)), with(g.Grow(1, 226))
	r := New(same, ten, most, over)
	qt.Assert(t, qt.IsNil(r.Play(batch(3).play)))
	qt.Check(t, qt.Equals(same.Most, r.Most))
	qt.Check(t, qt.Equals(ten.Most[event.L1], 66*kib))
	qt.Check(t, qt.DeepEquals([]uint64{same.Failed, ten.Failed, most.Failed, over.Failed}, []uint64{0, 0, 0, 1}))
	qt.Check(t, qt.Equals(over.FirstRegion, event.L1))
	qt.Check(t, qt.Equals(over.FirstFailed.Frames()[0].Name, "grows"))
	qt.Check(t, qt.Equals(r.Whole(0), Verdict{Fits: true}))
}

// TestGrowthIsLinear only if all recordings are near the line.
func TestGrowthIsLinear(t *testing.T) {
	for want, peaks := range map[bool][]float64{true: {1000, 2000, 4005}, false: {1000, 2000, 8000}} {
		s := &GrowingSite{values: []float64{1, 2, 4}, Peak: peaks}
		qt.Check(t, qt.Equals(s.IsLinear(), want))
	}
}
