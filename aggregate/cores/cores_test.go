package cores

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestSets(t *testing.T) {
	sets := make(Sets)
	square := []event.CoreRange{{X0: 1, Y0: 1, X1: 2, Y1: 2}, {X0: 2, Y0: 2, X1: 3, Y1: 2}}
	set := sets.Of(square)
	qt.Check(t, qt.Equals(set.Len(), 5))
	qt.Check(t, qt.IsTrue(set.Has(Core{3, 2})))
	qt.Check(t, qt.IsFalse(set.Has(Core{3, 1})))
	qt.Check(t, qt.DeepEquals(set.Ranges(), square))
	qt.Check(t, qt.Equals(sets.Of(slices.Clone(square)), set))
	for name, ranges := range map[string][]event.CoreRange{
		"none":             nil,
		"backwards":        {{X0: 2, X1: 1}},
		"a failed read":    {{X1: 65535, Y1: 65535}},
		"too many in all":  {{X1: 63, Y1: 63}, {X1: 1}},
		"backwards, later": {{X1: 1}, {Y0: 2, Y1: 1}},
	} {
		qt.Check(t, qt.IsNil(sets.Of(ranges)), qt.Commentf(name))
	}
	_, ok := sets.Place(&event.Event{Cores: square, Address: ^uint64(0), SizeBytes: 2})
	qt.Check(t, qt.IsFalse(ok))
}

// TestUsageEqualsACountOfEachByte adds and removes random places on a grid of cores.
func TestUsageEqualsACountOfEachByte(t *testing.T) {
	const side, size = 3, 40
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		sets := make(Sets)
		var usage Usage
		var live []Place
		for range 200 {
			if len(live) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(live))
				usage.Remove(live[i])
				live = slices.Delete(live, i, i+1)
			} else {
				x, y := uint16(r.IntN(side)), uint16(r.IntN(side))
				start := r.Uint64N(size)
				p := Place{sets.Of([]event.CoreRange{{X0: x, Y0: y, X1: side - 1, Y1: y}}), start, start + r.Uint64N(size-start)}
				usage.Add(p)
				live = append(live, p)
			}
			var sum, most uint64
			fullest, found := Core{}, false
			for y := range uint16(side) {
				for x := range uint16(side) {
					var bytes uint64
					for address := range uint64(size) {
						if slices.ContainsFunc(live, func(p Place) bool {
							return p.Set.Has(Core{x, y}) && p.Start <= address && address < p.End
						}) {
							bytes++
						}
					}
					if sum += bytes; bytes > most {
						most, fullest, found = bytes, Core{x, y}, true
					}
				}
			}
			at, ok := usage.Fullest()
			qt.Assert(t, qt.DeepEquals([]any{usage.Max(), usage.Bytes(), at, ok}, []any{most, sum, fullest, found}))
		}
	}
}

// TestTheFullestCoreIsNamed whether buffers on single cores, circular buffers or both fill it.
func TestTheFullestCoreIsNamed(t *testing.T) {
	sets := make(Sets)
	at := func(x uint16) *Set { return sets.Of([]event.CoreRange{{X0: x, X1: x}}) }
	var load Load
	var usage Usage
	usage.Add(Place{at(3), 0, 100})
	qt.Check(t, qt.Equals(TopOf(&load, &usage), Top{Core{}, 100, 100}), qt.Commentf("any core is right"))
	load.Add(at(0), 10)
	qt.Check(t, qt.Equals(TopOf(&load, &usage), Top{Core{3, 0}, 100, 100}))
	load.Add(at(3), 5)
	qt.Check(t, qt.Equals(TopOf(&load, &usage), Top{Core{3, 0}, 105, 100}))
	load.Add(at(1), 200)
	qt.Check(t, qt.Equals(TopOf(&load, &usage), Top{Core{1, 0}, 200, 0}))
}
