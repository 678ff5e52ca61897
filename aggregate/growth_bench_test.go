package aggregate_test

import (
	"runtime"
	"testing"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// BenchmarkGrowth: each event allocates or frees one of a million buffers, of a thousand
// stacks. A live buffer may take 250 bytes.
func BenchmarkGrowth(b *testing.B) {
	const live = 1_000_000
	stacks := make([]*event.Stack, 1000)
	for i := range stacks {
		stacks[i] = event.StackOf([]event.Frame{{Kind: event.Python, Name: "f", Line: i}})
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	g := aggregate.NewGrowth(aggregate.GrowthOptions{})
	devices := []int{0}
	now := uint64(1)
	alloc := func(id uint64) {
		now++
		g.Apply(&event.Event{
			TimeNs: now, Kind: event.Alloc, PID: 1, BufferID: id, Devices: devices,
			BytesPerBank: 2048, Banks: 12, Stack: stacks[id%uint64(len(stacks))],
		})
	}
	for id := range uint64(live) {
		alloc(id)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	id := uint64(0)
	for b.Loop() {
		now++
		g.Apply(&event.Event{TimeNs: now, Kind: event.Free, PID: 1, BufferID: id, Reason: event.ReasonExplicit})
		alloc(id + live)
		id++
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/live, "B/buffer")
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	runtime.KeepAlive(g)
}
