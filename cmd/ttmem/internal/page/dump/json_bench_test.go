package dump

import (
	"fmt"
	"io"
	"testing"
	"time"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// BenchmarkLargeDocument writes the document of 100,000 buffers from 1000 call stacks.
func BenchmarkLargeDocument(b *testing.B) {
	const live, stacks = 100_000, 1000
	s := aggregate.New()
	s.Apply(&event.Event{Kind: event.ProcessStart, TimeNs: 1, PID: 7, UID: 1 << 30, Start: &event.Start{Command: "python3 model.py"}})
	var sites []*event.Stack
	for i := range stacks {
		var frames []event.Frame
		for j := range 5 {
			frames = append(frames,
				event.Frame{Kind: event.Native, Name: fmt.Sprintf("ttnn::operations::binary<%d>::invoke(std::vector<int> const&)", j), Module: "_ttnncpp.so", Address: 4096},
				event.Frame{Kind: event.Python, Name: "forward", File: "/home/anna/models/attention.py", Line: 1 + i + j})
		}
		sites = append(sites, event.StackOf(frames))
	}
	for id := range uint64(live) {
		s.Apply(&event.Event{
			Kind: event.Alloc, TimeNs: 2 + id, PID: 7, TID: 7, Comm: "python3", Devices: []int{0, 1}, Allocator: 1, Region: event.DRAM, BufferID: id,
			Stack: sites[id%stacks], Address: 1 << 10 * id, SizeBytes: 12 << 10, PageSizeBytes: 1 << 10, BytesPerBank: 1 << 10, Banks: 12,
		})
	}
	snap := s.Snapshot()
	l := New(s, snap.TimeNs, alloc.Namer{Snap: snap})
	add := page.NewSupplement(page.NewClock(time.Unix(1_800_000_000, 0), 1), snap)
	b.ReportAllocs()
	for b.Loop() {
		if err := document.Write(io.Discard, l.Document(), add); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*live), "ns/buffer")
}
