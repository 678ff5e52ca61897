package cores

import (
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestSets(t *testing.T) {
	sets := new(Sets)
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

// TestTheFullestCoreIsNamed whether buffers on single cores, circular buffers or both fill it.
func TestTheFullestCoreIsNamed(t *testing.T) {
	sets := new(Sets)
	at := func(x uint16) *Set { return sets.Of([]event.CoreRange{{X0: x, X1: x}}) }
	var load Load
	places := []Place{{at(3), 0, 100}}
	check := func(loaded, both Core) {
		t.Helper()
		core, _ := load.Fullest()
		qt.Check(t, qt.Equals(core, loaded))
		qt.Check(t, qt.Equals(FullestOf(places, &load), both))
	}
	check(Core{}, Core{3, 0})
	load.Add(at(0), 10)
	check(Core{}, Core{3, 0})
	load.Add(at(3), 5)
	check(Core{}, Core{3, 0})
	load.Add(at(1), 200)
	check(Core{1, 0}, Core{1, 0})
	_, most := load.Fullest()
	qt.Check(t, qt.Equals(most, 200))
}
