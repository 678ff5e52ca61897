package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// TestMomentsOfALogCountFromTheCheckpoint: a recording that begins with a checkpoint, as that of a
// failure after a quiet night, counts its times from there in all views.
func TestMomentsOfALogCountFromTheCheckpoint(t *testing.T) {
	const second = 1_000_000_000
	s := aggregate.New()
	s.Apply(&event.Event{TimeNs: 5 * second, Kind: event.ProcessStart, PID: 7, Comm: "python"})
	s.Apply(&event.Event{TimeNs: 6 * second, Kind: event.Alloc, PID: 7, Devices: []int{0}, BufferID: 1, SizeBytes: 64, BytesPerBank: 64, Banks: 1, Allocator: 1})
	path := writeEvents(t, "failure.ttmem", []event.Event{
		*s.Checkpoint(),
		{TimeNs: 106 * second, Kind: event.Alloc, PID: 7, Devices: []int{0}, BufferID: 2, SizeBytes: 64, BytesPerBank: 64, Banks: 1, Allocator: 1, Address: 64},
		{TimeNs: 107 * second, Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Reason: event.ReasonOutOfMemory, SizeBytes: 1 << 30, Message: "no room"},
	})
	for _, test := range []struct {
		args     string
		lists    []string
		excludes []string
	}{
		{"log FILE", []string{"100.000000", "101.000000"}, nil},
		{"log FILE --from failure", []string{"alloc_failed"}, []string{" alloc "}},
		{"log FILE --from 100.5s", []string{"alloc_failed"}, []string{" alloc "}},
		{"log FILE --from 99s --to 100.5s", []string{" alloc "}, []string{"alloc_failed"}},
	} {
		out, errs, status := runOnStreams(t, false, strings.Fields(strings.Replace(test.args, "FILE", path, 1)))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", test.args, errs))
		for _, want := range test.lists {
			qt.Check(t, qt.StringContains(out, want), qt.Commentf("%s", test.args))
		}
		for _, other := range test.excludes {
			qt.Check(t, qt.Not(qt.StringContains(out, other)), qt.Commentf("%s", test.args))
		}
	}
	out, _, _ := runOnStreams(t, false, []string{"dump", path, "--at", "100.5s", "--json"})
	qt.Check(t, qt.Equals(strings.Count(out, `"buffer_id"`), 2))
}

// TestViewsCountTheSameEvents: what is written says how many events of the recording that is.
func TestViewsCountTheSameEvents(t *testing.T) {
	events := sharedHost(anna, anna)
	path := writeEvents(t, "run.ttmem", events)
	for _, args := range []string{"html FILE -o OUT", "export FILE --to sqlite -o OUT", "export FILE --to perfetto -o OUT"} {
		words := strings.Fields(strings.NewReplacer("FILE", path, "OUT", filepath.Join(t.TempDir(), "out")).Replace(args))
		_, errs, status := runOnStreams(t, false, words)
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		qt.Check(t, qt.StringContains(errs, fmt.Sprintf("%d events", len(events))), qt.Commentf("%s", args))
	}
}
