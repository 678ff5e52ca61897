package byid

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestTableEqualsMap makes the same random changes to a Table and a map.
func TestTableEqualsMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var table Table[uint64]
	want := make(map[uint64]uint64)
	for step := range 20_000 {
		id := r.Uint64N(300)
		switch _, ok := want[id]; {
		case !ok:
			v := id
			table.Put(id, &v)
			want[id] = id
		case r.IntN(2) == 0:
			table.Remove(id)
			delete(want, id)
		}
		if step%500 == 0 {
			odd := func(id uint64) bool { return id%2 == 1 }
			before := len(want)
			maps.DeleteFunc(want, func(id, _ uint64) bool { return odd(id) })
			table.RemoveAll(before-len(want), func(v *uint64) bool { return odd(*v) })
		}
		if step%250 == 0 {
			qt.Assert(t, qt.Equals(table.Len(), len(want)))
			qt.Assert(t, qt.DeepEquals(values(slices.Collect(table.Sorted())), slices.Sorted(maps.Keys(want))))
			all := values(slices.Collect(table.All()))
			slices.Sort(all)
			qt.Assert(t, qt.DeepEquals(all, slices.Sorted(maps.Keys(want))))
		}
		_, ok := want[id]
		qt.Assert(t, qt.Equals(table.Get(id) != nil, ok))
	}
	table.RemoveAll(table.Len(), func(*uint64) bool { return true })
	qt.Assert(t, qt.HasLen(slices.Collect(table.All()), 0))
}

func values(list []*uint64) (all []uint64) {
	for _, v := range list {
		all = append(all, *v)
	}
	return all
}
