package source

import (
	"errors"
	"io"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// BenchmarkRead reads a recording: its events only, with a State, and as Play does it.
//
// In Play another goroutine decodes the next events, a fifth of the work. An event has 264 bytes. When it had
// 528, this was 0.7 to 1.1 times as fast as one after the other; now it takes no more processor time.
func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.ttmem")
	header := recording.NewHeader()
	f, err := recording.Create(path, recording.FileOptions{Header: &header})
	qt.Assert(b, qt.IsNil(err))
	var stacks []*event.Stack
	for i := range 200 {
		stacks = append(stacks, pagetest.Stack("add", "Model.step", i))
	}
	const events = 400_000
	for i := range uint64(events / 2) {
		e := event.Event{
			TimeNs: i * 5000, Kind: event.Alloc, PID: 7, BufferID: i, Object: 0x7f0000000000 + i%5000*0x1c0, Allocator: 1,
			Address: i % 4096 << 11, Devices: []int{0}, Banks: 12, SizeBytes: i % 41 << 15, PageSizeBytes: 2048, BytesPerBank: i % 41 << 12,
			Stack: stacks[i%uint64(len(stacks))],
		}
		f.Add(&e)
		if i >= 5000 {
			e.Kind, e.BufferID, e.Reason, e.Stack = event.Free, i-5000, event.ReasonExplicit, nil
			f.Add(&e)
		}
		if f.Full() {
			qt.Assert(b, qt.IsNil(f.Flush()))
		}
	}
	qt.Assert(b, qt.IsNil(f.Close(recording.End{})))

	defer debug.SetGCPercent(debug.SetGCPercent(PlayGarbage)) // as a Recording does
	inTurn := func(b *testing.B, handle func(*event.Event)) {
		f, err := Open(path)
		qt.Assert(b, qt.IsNil(err))
		defer f.Close()
		var e event.Event
		for err = f.Next(&e); err == nil; err = f.Next(&e) {
			handle(&e)
		}
		qt.Assert(b, qt.IsTrue(errors.Is(err, io.EOF)))
	}
	for name, read := range map[string]func(b *testing.B){
		"events": func(b *testing.B) { inTurn(b, func(*event.Event) {}) },
		"state":  func(b *testing.B) { inTurn(b, aggregate.New().Apply) },
		"play": func(b *testing.B) {
			f, err := Open(path)
			qt.Assert(b, qt.IsNil(err))
			defer f.Close()
			_, err = f.Play(b.Context(), aggregate.New().Apply)
			qt.Assert(b, qt.IsNil(err))
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				read(b)
			}
			b.ReportMetric(float64(b.N)*events/b.Elapsed().Seconds()/1e6, "Mevents/s")
		})
	}
}
