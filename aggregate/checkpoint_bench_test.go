package aggregate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"ttmem/aggregate"
)

const liveBuffers = 800_000

// manyBuffers returns a State with 800,000 live buffers of a process that freed half as many
// in between: neither the memory nor the table are as if they were new.
func manyBuffers() *aggregate.State {
	s, r := aggregate.New(), rand.New(rand.NewPCG(1, 6))
	alloc := tensor(0, 7, 0, 0)
	live := make([]uint64, 0, liveBuffers)
	for now := uint64(0); len(live) < liveBuffers; now++ {
		alloc.TimeNs, alloc.BufferID = now, now
		s.Apply(&alloc)
		if live = append(live, now); now%3 == 0 {
			i, last := r.IntN(len(live)), len(live)-1
			end := free(now, 7, live[i])
			s.Apply(&end)
			live[i], live = live[last], live[:last]
		}
	}
	return s
}

// BenchmarkCheckpoint writes 800,000 live buffers. During the freeze the state must not
// change; the rest runs beside it.
func BenchmarkCheckpoint(b *testing.B) {
	s := manyBuffers()
	b.ReportAllocs()
	var freeze time.Duration
	bytes, count := 0, 0
	for b.Loop() {
		begun := time.Now()
		write := s.Freeze(nil)
		freeze += time.Since(begun)
		bytes += len(write().State.Data)
		count++
	}
	b.ReportMetric(freeze.Seconds()*1000/float64(count), "ms/freeze")
	b.ReportMetric(float64(bytes)/float64(count)/liveBuffers, "bytes/buffer")
}
