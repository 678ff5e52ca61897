package aggregate_test

import (
	"math/rand/v2"
	"testing"

	"ttmem/aggregate"
)

// manyBuffers is a state of which 800,000 buffers live, of a process that freed half
// as many in between: neither the memory nor the table are as if they were new.
func manyBuffers() *aggregate.State {
	const live = 800_000
	s, r := aggregate.New(), rand.New(rand.NewPCG(1, 6))
	alloc := tensor(0, 7, 0, 0)
	held := make([]uint64, 0, live)
	for now := uint64(0); len(held) < live; now++ {
		alloc.TimeNs, alloc.BufferID = now, now
		s.Apply(&alloc)
		if held = append(held, now); now%3 == 0 {
			i, last := r.IntN(len(held)), len(held)-1
			end := free(now, 7, held[i])
			s.Apply(&end)
			held[i], held = held[last], held[:last]
		}
	}
	return s
}

// BenchmarkFreeze is for how long the state must not change.
func BenchmarkFreeze(b *testing.B) {
	s := manyBuffers()
	b.ReportAllocs()
	for b.Loop() {
		s.Freeze(nil)
	}
}
