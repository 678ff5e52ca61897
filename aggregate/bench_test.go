package aggregate_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// BenchmarkApply allocates and frees buffers beside 100,000 that live, from one call stack
// and from 10,000.
func BenchmarkApply(b *testing.B) {
	for _, stacks := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("%d stacks", stacks), func(b *testing.B) {
			benchmarkPairs(b, stacks, func() func(*event.Event) { return aggregate.New().Apply })
		})
	}
}

// benchmarkPairs allocates and frees buffers beside 100,000 that live, from so many call
// stacks, on one chip and on eight.
func benchmarkPairs(b *testing.B, stacks int, begin func() (apply func(*event.Event))) {
	many := make([]*event.Stack, stacks)
	for i := range many {
		many[i] = event.NewStack(uint64(i+1), nil)
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, bench := range []struct {
		name  string
		chips int
	}{{"one chip", 1}, {"eight chips", 8}} {
		b.Run(bench.name, func(b *testing.B) {
			apply := begin()
			alloc := tensor(1, 7, 0, all[:bench.chips]...)
			var id uint64
			for ; id < 100_000; id++ {
				alloc.BufferID, alloc.Stack = id, many[id%uint64(stacks)]
				apply(&alloc)
			}
			end := event.Event{Kind: event.Free, PID: 7, Reason: event.ReasonExplicit}
			b.ReportAllocs()
			events := 0
			for b.Loop() {
				alloc.BufferID, alloc.Stack, end.BufferID = id, many[id%uint64(stacks)], id-100_000
				alloc.TimeNs, end.TimeNs = id*5000, id*5000+2500
				apply(&alloc)
				apply(&end)
				id++
				events += 2
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkApplyCB compiles programs of which each has 12 circular buffers on
// 64 cores, most of them like an earlier program's, and then ends them.
func BenchmarkApplyCB(b *testing.B) {
	s := aggregate.New()
	events := 0
	for program := uint64(0); b.Loop(); program++ {
		for i := range uint64(12) {
			e := cb(program, 7, program, 100_000+4096*i, 2048+program*512%8192, 7, 7, 0)
			s.Apply(&e)
		}
		events += 12
		if program >= 500 {
			e := endCBs(program, 7, program-500)
			s.Apply(&e)
			events++
		}
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkSnapshot is of a mesh of 32 chips with 500 programs.
func BenchmarkSnapshot(b *testing.B) {
	s := aggregate.New()
	mesh := make([]int, 32)
	for i := range mesh {
		mesh[i] = i
	}
	for program := range uint64(500) {
		e := cb(1, 7, program, 100_000, 2048+program*512%8192, 7, 7, mesh...)
		s.Apply(&e)
		e = kernels(1, 7, program, 1000, 300, mesh...)
		s.Apply(&e)
	}
	for b.Loop() {
		s.Snapshot()
	}
}

// TestALiveBufferIsSmall checks what a million of them take.
func TestALiveBufferIsSmall(t *testing.T) {
	const count, limit = 1_000_000, 250
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := aggregate.New()
	alloc := tensor(0, 7, 0, 0)
	for id := range uint64(count) {
		alloc.BufferID = id
		s.Apply(&alloc)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / count
	t.Logf("%.0f bytes for each of %d live buffers", each, count)
	if each > limit {
		t.Errorf("a live buffer takes %.0f bytes, more than %d", each, limit)
	}
	runtime.KeepAlive(s)
}

// BenchmarkRestore reads 800,000 live buffers.
func BenchmarkRestore(b *testing.B) {
	from := manyBuffers().Checkpoint()
	b.ReportAllocs()
	for b.Loop() {
		aggregate.New().Apply(from)
	}
}

// BenchmarkExit ends a process with a million live buffers, or closes one of its devices.
func BenchmarkExit(b *testing.B) {
	const count = 1_000_000
	exit := event.Event{TimeNs: count, Kind: event.ProcessExit, PID: 7}
	closed := event.Event{TimeNs: count, Kind: event.DeviceClose, PID: 7, Allocator: 1}
	for _, bench := range []struct {
		name               string
		stacks, allocators int
		watched            bool // somebody asks what is free
		last               event.Event
	}{
		{"process of 1 stack", 1, 1, false, exit},
		{"process of 10000 stacks", 10_000, 1, false, exit},
		{"process of 100000 stacks", 100_000, 1, false, exit},
		{"watched process of 10000 stacks", 10_000, 1, true, exit},
		{"only device", 10_000, 1, true, closed},
		{"one device of two", 10_000, 2, true, closed},
	} {
		b.Run(bench.name, func(b *testing.B) {
			stacks := make([]*event.Stack, bench.stacks)
			for i := range stacks {
				stacks[i] = event.NewStack(uint64(i+1), nil)
			}
			var most time.Duration
			var before, after runtime.MemStats
			for b.Loop() {
				s := aggregate.New()
				open := wormhole(1, 7, 1, 0)
				s.Apply(&open)
				alloc := tensor(0, 7, 0, 0)
				for id := range uint64(count) {
					alloc.BufferID, alloc.TimeNs, alloc.Stack = id, id, stacks[id%uint64(bench.stacks)]
					alloc.Allocator, alloc.Address = 1+id%uint64(bench.allocators), 1<<20+id*4096
					s.Apply(&alloc)
				}
				if bench.watched {
					s.Snapshot()
				}
				runtime.ReadMemStats(&before)
				begun := time.Now()
				s.Apply(&bench.last)
				most = max(most, time.Since(begun))
				runtime.ReadMemStats(&after)
			}
			b.ReportMetric(float64(most.Microseconds())/1000, "ms/end")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc), "B/end")
			b.ReportMetric(0, "ns/op")
		})
	}
}
