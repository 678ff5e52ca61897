package aggregate_test

import (
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// BenchmarkProfileSamples is of 100,000 stacks.
func BenchmarkProfileSamples(b *testing.B) {
	p := aggregate.New()
	for id := range uint64(100_000) {
		alloc := tensor(1, 7, id, 0)
		alloc.Stack = event.NewStack(id+1, nil)
		p.Apply(&alloc)
	}
	for b.Loop() {
		p.Profile()
	}
}

// TestAStateIsSmall checks what a million live buffers take, and a buffer each of
// 100,000 stacks besides what the events hold of them.
func TestAStateIsSmall(t *testing.T) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for _, test := range []struct {
		name                    string
		buffers, stacks, limits int
	}{{"live buffer", 1_000_000, 1, 150}, {"stack", 100_000, 100_000, 620}} {
		list := make([]*event.Stack, test.stacks)
		for i := range list {
			list[i] = event.NewStack(uint64(i+1), nil)
		}
		before := heap()
		p := aggregate.New()
		alloc := tensor(1, 7, 0, 0)
		for id := range uint64(test.buffers) {
			alloc.BufferID, alloc.Stack = id, list[id%uint64(test.stacks)]
			p.Apply(&alloc)
		}
		each := (heap() - before) / float64(test.buffers)
		t.Logf("%.0f bytes for each %s", each, test.name)
		qt.Check(t, qt.IsTrue(each <= float64(test.limits)), qt.Commentf("%.0f bytes", each))
		runtime.KeepAlive(p)
		runtime.KeepAlive(list)
	}
}
