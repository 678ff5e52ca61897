package service

import (
	"context"
	"io"
	"runtime/metrics"
	"testing"
	"time"

	"ttmem/tracer/event"
)

// BenchmarkJoin is somebody who asks for what there is while 800,000 buffers live and
// events come: worst-wait-ms is the longest that the tracer waited to tell of one,
// peak-MiB what the heap had at most, of which before-MiB was there before.
func BenchmarkJoin(b *testing.B) {
	host := newHost()
	host.start(10, 1000)
	stacks := make([]*event.Stack, 300)
	for i := range stacks {
		stacks[i] = event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "model.py", Line: i}})
	}
	alloc := event.Event{
		Kind: event.Alloc, PID: 10, TID: 10, Comm: "python", Devices: []int{0}, Allocator: 7, Region: event.DRAM,
		PageSizeBytes: 2048, Banks: 12,
	}
	add := func(id uint64) {
		alloc.BufferID, alloc.Object, alloc.Address = id, 0x7f0000000000+id*0x1c0, id%5000<<11
		alloc.SizeBytes, alloc.BytesPerBank = (1+id%41)<<15, (1+id%41)<<12
		alloc.Stack = stacks[id%300]
		host.apply(alloc)
	}
	const live = 800_000
	for id := range uint64(live) {
		add(id)
	}

	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		var worst time.Duration
		for id := uint64(live); ; id++ {
			select {
			case <-stop:
				done <- worst
				return
			case <-time.After(time.Millisecond):
			}
			began := time.Now()
			add(id)
			worst = max(worst, time.Since(began))
		}
	}()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	sample := func() uint64 { metrics.Read(heap); return heap[0].Value.Uint64() }
	sampled := make(chan uint64)
	before := sample()
	go func() {
		most := before
		for {
			select {
			case <-stop:
				sampled <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, sample())
			}
		}
	}()
	for b.Loop() {
		if err := host.hub.WriteState(context.Background(), root, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	b.ReportMetric(float64((<-done).Microseconds())/1000, "worst-wait-ms")
	b.ReportMetric(float64(before>>20), "before-MiB")
	b.ReportMetric(float64(<-sampled>>20), "peak-MiB")
}
