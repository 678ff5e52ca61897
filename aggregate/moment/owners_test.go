package moment

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// ownedRecording is a recording of a process in which two allocations fail. Its owners are searched
// after the first failure, at a mark, and at the end. Another process has its id afterwards, with a
// buffer of the same id. It has a checkpoint after each few events if checkpoints is true.
func ownedRecording(t *testing.T, checkpoints bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "owned.ttmem")
	state := aggregate.New()
	o := recording.FileOptions{Checkpoint: func() func() *event.Event { return state.Freeze(nil) }, CheckpointEvents: 3}
	if !checkpoints {
		o.Checkpoint = nil
	}
	f, err := recording.Create(path, o)
	qt.Assert(t, qt.IsNil(err))
	now, start := uint64(1000), uint64(0)
	add := func(e event.Event) {
		now += 10
		e.TimeNs = now
		if e.PID = 7; e.Kind == event.ProcessStart {
			start = now
		}
		if e.Kind == event.Owner {
			e.Count = start
		}
		if e.Kind == event.Mark {
			e.PID = 0
		}
		f.Add(&e)
		state.Apply(&e)
		qt.Assert(t, qt.IsNil(f.Flush()))
		qt.Assert(t, qt.IsNil(f.Settle()))
	}
	alloc := func(id uint64) {
		add(event.Event{Kind: event.Alloc, BufferID: id, Devices: []int{0}, SizeBytes: 1024, BytesPerBank: 1024, Banks: 1})
	}
	own := func(id uint64, path string) { add(event.Event{Kind: event.Owner, BufferID: id, Cause: path}) }
	failed := event.Event{Kind: event.AllocFailed, Devices: []int{0}, Reason: event.ReasonOutOfMemory, SizeBytes: 1 << 30}
	freed := func(id uint64) { add(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit}) }

	add(event.Event{Kind: event.ProcessStart})
	alloc(1)
	alloc(2)
	alloc(3)
	add(failed)
	own(1, "local x of forward()")
	own(2, "kv_cache[0]")
	freed(2)
	alloc(4)
	add(event.Event{Kind: event.Mark, Cause: "warm"})
	own(1, "model.wq")
	own(4, "kv_cache[0]")
	own(3, "model.wk")
	freed(4)
	own(3, "") // nobody holds it any more
	add(failed)
	add(event.Event{Kind: event.ProcessExit})
	add(event.Event{Kind: event.ProcessStart})
	alloc(3)
	own(3, "of the other process")
	qt.Assert(t, qt.IsNil(f.Close(recording.End{TimeNs: now})))
	return path
}

// TestAMomentHasTheOwnersThatWereFoundLater: of the buffers that were live at it, the newest ones, and
// none of another process.
func TestAMomentHasTheOwnersThatWereFoundLater(t *testing.T) {
	for _, r := range []*Recording{
		{Path: ownedRecording(t, false)}, {Path: ownedRecording(t, true)},
		{Path: ownedRecording(t, true), Whole: true}, {Path: ownedRecording(t, true), PIDs: []int{7}},
	} {
		for text, want := range map[string]string{
			"failure#1": "1=model.wq 2=kv_cache[0] 3=model.wk",
			"peak":      "1=model.wq 2=kv_cache[0] 3=model.wk",
			"warm":      "1=model.wq 3=model.wk 4=kv_cache[0]",
			"failure#2": "1=model.wq 3=",
			"end":       "3=of the other process",
			"20ns":      "1=model.wq 2=kv_cache[0]",
		} {
			at, err := Parse(text)
			qt.Assert(t, qt.IsNil(err))
			var list []string
			err = r.StateAt(at, func(s *State) {
				for _, b := range s.Buffers() {
					list = append(list, fmt.Sprintf("%d=%s", b.BufferID, b.Owner.Path))
				}
			})
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(strings.Join(list, " "), want), qt.Commentf("at %s", text))
		}
	}
}
