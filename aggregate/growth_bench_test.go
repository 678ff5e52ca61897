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

// BenchmarkGrowthOfShortProcesses: each of them allocates and frees at a hundred stacks
// of its own, a thousand processes an iteration.
func BenchmarkGrowthOfShortProcesses(b *testing.B) {
	const processes, pairs = 1000, 100
	devices := []int{0}
	events := 0
	for b.Loop() {
		g := aggregate.NewGrowth(aggregate.GrowthOptions{})
		now := uint64(0)
		apply := func(e event.Event) {
			now++
			e.TimeNs = now
			g.Apply(&e)
			events++
		}
		id := uint64(0)
		for pid := range processes {
			for range pairs {
				id++
				apply(event.Event{Kind: event.Alloc, PID: pid, BufferID: id, Devices: devices, BytesPerBank: 2048, Banks: 12, Stack: &event.Stack{ID: id}})
				apply(event.Event{Kind: event.Free, PID: pid, BufferID: id, Reason: event.ReasonExplicit})
			}
			apply(event.Event{Kind: event.ProcessExit, PID: pid})
		}
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}
