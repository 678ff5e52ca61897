package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// usedIn is what the runs of programs in one moment of uses.py used.
type usedIn struct {
	runs  int
	words []uint64        // all addresses that they have
	used  []memory.Buffer // the live buffers that a State finds
	born  map[uint64]bool // the buffers that were allocated in it, by id
	// moved are the addresses of buffers that the host wrote or read, also through a view
	moved map[event.Kind][]uint64
}

// Each run of a program has the addresses of its operation's tensors: on a cold program cache, and on a warm one, where
// the tensors are others each time. Every buffer that a run uses is one of these, or was allocated by an operation, such
// as the tables that sums and means share: none of the hundreds of other live buffers is used.
func TestUses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version string
		board   rig.Board
		slow    bool
	}{
		{"0.81.1", rig.N150, false}, {"0.81.1", rig.N150, true}, {"0.81.1", rig.P150, false}, {"0.76.0", rig.N150, false},
		{"0.76.0", rig.T3000, false}, {"0.72.0", rig.N150, false}, {"0.68.0", rig.N150, false}, {"0.66.0", rig.N150, false},
	} {
		if !tracetest.Tests(test.version) {
			continue
		}
		name := test.version + " " + string(test.board)
		if test.slow {
			name += " slow dispatch"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{program(t, "uses.py"), "tensors.jsonl"}
			if test.slow {
				args = append(args, "slow")
			}
			run := traceRun(t, setup(t, test.version, "3.10"), test.board, args...)
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			checkUses(t, run)
		})
	}
}

func checkUses(t *testing.T, run traced) {
	moments := usesByMoment(t, run.events)
	text, err := os.ReadFile(filepath.Join(run.dir, "tensors.jsonl"))
	qt.Assert(t, qt.IsNil(err))
	owned := make(map[uint64]bool) // what operations allocated
	kinds, tensors, uses := 0, 0, 0
	for line := range bytes.Lines(text) {
		var op struct {
			Name, Error string
			Tensors     []uint64
			Moved       uint64
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal(line, &op)))
		in := moments[op.Name]
		maps.Copy(owned, in.born)
		if op.Moved != 0 {
			qt.Check(t, qt.DeepEquals(in.moved, map[event.Kind][]uint64{event.BufferWrite: {op.Moved}, event.BufferRead: {op.Moved}}))
			continue
		}
		if op.Error != "" || in.runs == 0 { // a change of shape runs no program
			t.Logf("%s: %d runs %s", op.Name, in.runs, op.Error)
			continue
		}
		kinds++
		for _, address := range op.Tensors {
			tensors++
			qt.Check(t, qt.IsTrue(slices.ContainsFunc(in.used, func(b memory.Buffer) bool { return b.Address == address })),
				qt.Commentf("%s does not use %#x of %#x: %#x", op.Name, address, op.Tensors, in.words))
		}
		for _, b := range in.used {
			uses++
			qt.Check(t, qt.IsTrue(owned[b.BufferID] || slices.Contains(op.Tensors, b.Address)),
				qt.Commentf("%s uses %#x, but has %#x", op.Name, b.Address, op.Tensors))
		}
	}
	t.Logf("%d operations with programs, %d tensors, %d uses", kinds, tensors, uses)
	qt.Check(t, qt.IsTrue(kinds > 200), qt.Commentf("%d", kinds))
}

// TestUsesAreExact: beside 3,000 live buffers, each of 1,000 runs uses the tensors of its operation and no other buffer.
func TestUsesAreExact(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version string
		board   rig.Board
	}{{"0.81.1", rig.N150}, {"0.81.1", rig.P150}, {"0.76.0", rig.N150}, {"0.66.0", rig.N150}} {
		if !tracetest.Tests(test.version) {
			continue
		}
		t.Run(test.version+" "+string(test.board), func(t *testing.T) {
			t.Parallel()
			const live = 3000
			runs := tracetest.Many(1000, 20000)
			run := traceRun(t, setup(t, test.version, "3.10"), test.board, program(t, "uses_exact.py"), "tensors.jsonl", fmt.Sprint(live), fmt.Sprint(runs))
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			checkExactUses(t, run, runs, live)
		})
	}
}

// checkExactUses compares each run after the mark "begin" with the next line of tensors.jsonl.
func checkExactUses(t *testing.T, run traced, runs, live int) {
	text, err := os.ReadFile(filepath.Join(run.dir, "tensors.jsonl"))
	qt.Assert(t, qt.IsNil(err))
	operations := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	qt.Assert(t, qt.HasLen(operations, runs))
	s, begun, uses := aggregate.New(), false, 0
	for i := range run.events {
		e := &run.events[i]
		s.Apply(e)
		if e.Kind == event.Mark {
			begun = e.Cause == "begin"
		}
		if e.Kind != event.ProgramRun || !begun {
			continue
		}
		qt.Assert(t, qt.IsTrue(len(operations) > 0), qt.Commentf("an operation ran more than one program"))
		var op struct {
			Name    string
			Tensors []struct {
				Region  string
				Address uint64
			}
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal(operations[0], &op)))
		operations = operations[1:]
		var want, got []string
		for _, tensor := range op.Tensors {
			want = append(want, fmt.Sprintf("%s %#x", tensor.Region, tensor.Address))
		}
		for _, id := range s.PossibleUses(e.PID) {
			b := s.Buffer(e.PID, id)
			got = append(got, fmt.Sprintf("%v %#x", b.Region, b.Address))
		}
		slices.Sort(want)
		slices.Sort(got)
		qt.Assert(t, qt.DeepEquals(got, slices.Compact(want)), qt.Commentf("%s", op.Name)) // a tensor may be both inputs
		qt.Assert(t, qt.IsTrue(len(s.BuffersOf(e.PID)) >= live))
		uses += len(got)
	}
	qt.Check(t, qt.HasLen(operations, 0))
	t.Logf("%d runs, %d uses", runs, uses)
}

// usesByMoment returns what was used between each mark and the next one.
func usesByMoment(t *testing.T, events []event.Event) map[string]*usedIn {
	s, moments, of := aggregate.New(), make(map[string]*usedIn), new(usedIn)
	runs := make(map[int]uint64) // whose uses are known
	for i := range events {
		e := &events[i]
		s.Apply(e)
		switch e.Kind {
		case event.Mark:
			of = &usedIn{born: make(map[uint64]bool), moved: make(map[event.Kind][]uint64)}
			moments[e.Cause] = of
		case event.Alloc:
			if of.born != nil {
				of.born[e.BufferID] = true
			}
		case event.BufferWrite, event.BufferRead:
			if b := s.Buffer(e.PID, e.BufferID); of.moved != nil && qt.Check(t, qt.IsNotNil(b)) {
				of.moved[e.Kind] = slices.Compact(append(of.moved[e.Kind], b.Address)) // once for each shard on some boards
			}
		case event.ProgramRun:
			qt.Assert(t, qt.IsNotNil(e.Uses))
			qt.Check(t, qt.IsFalse(e.Uses.Partial))
			runs[e.PID]++
			of.runs++
			for _, list := range [][]uint32{e.Uses.Arguments, e.Uses.Statics} {
				for _, at := range list {
					of.words = append(of.words, uint64(at))
				}
			}
			for _, b := range s.BuffersOf(e.PID) {
				if use, _, _ := s.UseOf(e.PID, b.BufferID); use.Last.Run == runs[e.PID] {
					of.used = append(of.used, b)
				}
			}
		}
	}
	qt.Check(t, qt.HasLen(s.Snapshot().AfterFree, 0)) // though many tensors are freed
	return moments
}
