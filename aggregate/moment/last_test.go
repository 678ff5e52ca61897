package moment

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// randomEvent is an event of one of three processes on two chips: of any kind that a
// tracer gives.
func randomEvent(r *rand.Rand, now uint64, stacks []*event.Stack) event.Event {
	pid := 100 + r.IntN(3)
	e := event.Event{TimeNs: now, PID: pid, TID: pid + r.IntN(2), Comm: "python", Devices: []int{r.IntN(2)}, Allocator: uint64(1 + r.IntN(2))}
	buffer := func() {
		e.Region, e.BufferID, e.Object = event.Region(r.IntN(2)), r.Uint64N(60), r.Uint64N(100)
		e.Address, e.BytesPerBank, e.Banks = 1024*r.Uint64N(64), 1024, 12
		e.SizeBytes, e.PageSizeBytes = 12*1024, 1024
	}
	switch n := r.IntN(100); {
	case n < 45:
		buffer()
		e.Kind, e.Stack, e.BeforeAttach = event.Alloc, stacks[r.IntN(len(stacks))], r.IntN(9) == 0
	case n < 80:
		buffer()
		e.Kind, e.Reason = event.Free, event.ReasonExplicit
	case n < 82:
		e = event.Event{TimeNs: now, Kind: event.Owner, PID: pid, TID: pid, BufferID: r.Uint64N(60), Message: "bf16[32] TILE"}
		if r.IntN(4) > 0 {
			e.Cause = fmt.Sprint("model.w", now)
		}
	case n < 85:
		e.Kind, e.Region, e.ProgramID, e.StaticKind = event.CBAlloc, event.CB, r.Uint64N(9), event.CircularBuffer
		e.Cores, e.Address, e.SizeBytes = []event.CoreRange{{X1: 3, Y1: 3}}, 1024*r.Uint64N(9), 2048
		e.Stack = stacks[r.IntN(len(stacks))]
	case n < 88:
		e.Kind, e.Region, e.ProgramID = event.CBFree, event.CB, r.Uint64N(9)
	case n < 90:
		e.Kind, e.Region, e.ProgramID, e.SizeBytes, e.BytesPerBank = event.KernelLoad, event.Kernel, r.Uint64N(9), 4096, 64
	case n < 91:
		e.Kind, e.Region, e.ProgramID = event.KernelUnload, event.Kernel, r.Uint64N(9)
	case n < 94:
		e.Open = new(event.Open)
		e.Kind, e.Mesh, e.Open.Board = event.DeviceOpen, true, "n150"
		for i := range e.Open.Capacities {
			e.Open.Capacities[i] = event.Capacity{Banks: 12, BytesPerBank: 1 << 20, Base: 1024}
		}
	case n < 95:
		e.Kind = event.DeviceClose
	case n < 97:
		buffer()
		e.Kind, e.Reason, e.Message = event.AllocFailed, event.ReasonOutOfMemory, "no"
		e.BytesPerBank, e.Stack = 1<<20, stacks[r.IntN(len(stacks))]
	case n < 98:
		e.Start = new(event.Start)
		e.Kind, e.Start.Command, e.UID = event.ProcessStart, fmt.Sprint("run ", now), 1000+pid
	case n < 99:
		e.Kind, e.ExitStatus = event.ProcessExit, r.IntN(3)-1
	default:
		e = event.Event{TimeNs: now, Kind: event.Lost, Cause: "ring buffer full", Count: 2}
		if r.IntN(2) == 0 {
			e = event.Event{TimeNs: now, Kind: event.Mark, Cause: "step", UID: 7}
		}
	}
	return e
}

// randomRecording is a recording of random events with many checkpoints, as ttmem
// record makes it.
func randomRecording(t *testing.T, seed uint64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	var stacks []*event.Stack
	// Of a process that ended 16 places are kept that left something. Of more that left as
	// much, any are.
	for i := range 3 {
		stacks = append(stacks, event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "model.py", Line: i}}))
	}
	path := filepath.Join(t.TempDir(), "x.ttmem")
	state := aggregate.New()
	header := recording.NewHeader()
	f, err := recording.Create(path, recording.FileOptions{
		Header: &header, Checkpoint: func() func() *event.Event { return state.Freeze(nil) }, CheckpointEvents: 200,
	})
	qt.Assert(t, qt.IsNil(err))
	record := state.Completed(func(e *event.Event) { f.Add(e) })
	now := header.MonotonicNs
	for range 500 + r.IntN(4000) {
		e := randomEvent(r, now, stacks)
		record(&e)
		if r.IntN(20) == 0 {
			qt.Assert(t, qt.IsNil(f.Flush()))
		}
		now += 1 + r.Uint64N(3)
	}
	qt.Assert(t, qt.IsNil(f.Close(recording.End{TimeNs: now + 10, HasStacks: true, Taken: 3})))
	return path
}

// pagesOf returns the report and the list of failures of a file.
func pagesOf(t *testing.T, path string, last bool) (text string, events int) {
	t.Helper()
	r, err := Open(path, "")
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	if last {
		qt.Assert(t, qt.IsNil(r.StateOnly()))
	}
	state := aggregate.New()
	state.Begin(r.BeganNs)
	events, err = r.Play(t.Context(), state.Apply)
	qt.Assert(t, qt.IsNil(err))
	state.Advance(r.EndNs())
	snap := state.Snapshot()
	snap.Stacks = r.Stacks()
	var evidence []*memory.Evidence
	for i := range snap.Failures {
		evidence = append(evidence, snap.Failures[i].Evidence)
	}
	all, err := json.MarshalIndent([]any{snap, evidence}, "", " ")
	qt.Assert(t, qt.IsNil(err))
	for _, h := range state.Buffers() {
		site, one := *h.Site, *h.Allocation
		site.Stack, one.CoreSet = nil, nil
		all = fmt.Appendf(all, "\n%+v %+v %v %d %+v", site, one, h.Cores(), h.Allocator, h.Owner)
	}
	return string(all), events
}

func TestTheLastCheckpointEqualsAllEvents(t *testing.T) {
	for seed := range uint64(30) {
		path := randomRecording(t, seed)
		want, all := pagesOf(t, path, false)
		got, some := pagesOf(t, path, true)
		a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d, line %d: got\n%s\nwant\n%s", seed, i, strings.Join(a[max(0, i-20):i+1], "\n"), b[i])
			}
		}
		qt.Assert(t, qt.HasLen(a, len(b)))
		qt.Check(t, qt.IsTrue(some < all), qt.Commentf("%d of %d", some, all))
	}
}

func TestEventsOfAPipeComeOneByOne(t *testing.T) {
	in, out, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer in.Close()
	path := randomRecording(t, 1)
	whole, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	r, err := Open(path, "")
	qt.Assert(t, qt.IsNil(err))
	var first event.Event
	qt.Assert(t, qt.IsNil(r.Next(&first)))
	head := r.Offset() // its first block
	qt.Assert(t, qt.IsNil(r.Close()))
	_, err = out.Write(whole[:head])
	qt.Assert(t, qt.IsNil(err))

	r, err = Open(fmt.Sprintf("/dev/fd/%d", in.Fd()), "")
	qt.Assert(t, qt.IsNil(err))
	came := make(chan struct{}, 1<<20)
	go func() {
		_, _ = r.Play(t.Context(), func(*event.Event) { came <- struct{}{} })
		close(came)
	}()
	<-came // while the writer goes on
	qt.Assert(t, qt.IsNil(out.Close()))
	for range came {
	}
}
