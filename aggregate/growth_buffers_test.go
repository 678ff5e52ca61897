package aggregate

import (
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestBuffersAreFoundByTheirIDs: as in a map, whichever come and go.
func TestBuffersAreFoundByTheirIDs(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 6))
		var table growthBuffers
		model := make(map[uint64]uint64)
		site := &growthSite{}
		var ids []uint64
		for range 64 {
			ids = append(ids, r.Uint64(), ^uint64(0)-r.Uint64N(40), r.Uint64N(40), 1_000_000+r.Uint64N(400)*8)
		}
		for n := range uint64(20_000) {
			id := ids[r.IntN(len(ids))]
			b := table.get(id)
			bytes, there := model[id]
			qt.Assert(t, qt.Equals(b != nil, there))
			switch {
			case there:
				qt.Assert(t, qt.Equals(b.bytes, bytes))
				table.remove(id)
				delete(model, id)
			case r.IntN(300) < 200+int(n/100)%100:
				table.put(growthBuffer{site: site, id: id, bytes: n})
				model[id] = n
			}
			qt.Assert(t, qt.Equals(table.count, len(model)))
		}
		seen := 0
		for b := range table.all() {
			qt.Assert(t, qt.Equals(b.bytes, model[b.id]))
			table.remove(b.id)
			seen++
		}
		qt.Check(t, qt.Equals(seen, len(model)))
		qt.Check(t, qt.Equals(table.used, 0))
		qt.Check(t, qt.Equals(len(table.list) <= len(ids), true))
	}
}

// TestMemoryOfFreedBuffersIsGivenBack: a process that once had many buffers keeps few.
func TestMemoryOfFreedBuffersIsGivenBack(t *testing.T) {
	var table growthBuffers
	site := &growthSite{}
	const many = 4 * leastShrunk
	for id := range uint64(many) {
		table.put(growthBuffer{site: site, id: id, bytes: id})
	}
	for id := range uint64(many) {
		if id%100 != 0 {
			table.remove(id)
		}
	}
	table.put(growthBuffer{site: site, id: many, bytes: many})
	qt.Check(t, qt.IsTrue(cap(table.list) < leastShrunk))
	qt.Check(t, qt.IsTrue(len(table.pages) < leastShrunk))
	for id := uint64(0); id < many; id += 100 {
		qt.Assert(t, qt.Equals(table.get(id).bytes, id))
	}
	qt.Check(t, qt.Equals(table.get(many).bytes, many))
	qt.Check(t, qt.IsNil(table.get(1)))
	qt.Check(t, qt.Equals(table.count, many/100+2))
}
