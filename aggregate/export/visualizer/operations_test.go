package visualizer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// at returns a stack of an operation that was called in a line of model.py; the place tells apart
// the calls inside of the operation.
func at(op string, line int, place string) *event.Stack {
	return event.StackOf(append([]event.Frame{{Kind: event.Native, Name: "tt::" + place}}, pagetest.Stack(op, "forward", line).Frames()...))
}

// TestEventsOfAnOperation: a line is the events of an operation, in the order of the operations.
func TestEventsOfAnOperation(t *testing.T) {
	on := func(id int, e event.Event) event.Event { e.TID = id; return e }
	run := func(program uint64, line int, chips ...int) event.Event {
		return event.Event{Kind: event.ProgramRun, ProgramID: program, Devices: chips, Stack: at("add", line, "run")}
	}
	compile := func(program uint64, line int) event.Event {
		return event.Event{Kind: event.CBAlloc, ProgramID: program, Devices: []int{0}, Stack: at("add", line, "compile")}
	}
	alloc := func(line int, place string) event.Event {
		return event.Event{Kind: event.Alloc, Devices: []int{0}, Stack: at("add", line, place)}
	}
	free := event.Event{Kind: event.Free}
	failed := event.Event{Kind: event.AllocFailed, Devices: []int{0}, Stack: at("add", 1, "output")}
	unknown := event.Event{Kind: event.Alloc, Devices: []int{0}, BeforeAttach: true}
	for name, test := range map[string]struct {
		events []event.Event
		want   string
	}{
		"a program and its result":         {[]event.Event{alloc(1, "output"), compile(1, 1), run(1, 1, 0)}, "alloc cb_alloc program_run"},
		"compiled after the run":           {[]event.Event{run(1, 1, 0), compile(1, 1), compile(1, 1)}, "program_run cb_alloc cb_alloc"},
		"compiled before anything else":    {[]event.Event{compile(1, 1), run(1, 1, 0)}, "program_run"},
		"a loop":                           {[]event.Event{alloc(1, "output"), run(1, 1, 0), alloc(1, "output"), run(1, 1, 0)}, "alloc program_run|alloc program_run"},
		"a loop in place":                  {[]event.Event{run(1, 1, 0), run(1, 1, 0)}, "program_run|program_run"},
		"a loop that runs nothing":         {[]event.Event{alloc(1, "empty"), alloc(1, "empty")}, "alloc|alloc"},
		"several buffers":                  {[]event.Event{alloc(1, "a"), free, alloc(1, "b"), run(1, 1, 0)}, "alloc alloc program_run"},
		"two lines":                        {[]event.Event{alloc(1, "output"), alloc(2, "output")}, "alloc|alloc"},
		"a program for each chip":          {[]event.Event{alloc(1, "output"), run(1, 1, 0), run(2, 1, 1), run(1, 1, 0)}, "alloc program_run program_run|program_run"},
		"a failure":                        {[]event.Event{alloc(1, "a"), failed, alloc(1, "b")}, "alloc alloc_failed|alloc"},
		"two threads":                      {[]event.Event{alloc(1, "output"), on(2, alloc(2, "output")), run(1, 1, 0), on(2, run(2, 2, 0))}, "alloc program_run|alloc program_run"},
		"from before the attach":           {[]event.Event{unknown, run(1, 1, 0)}, "program_run"},
		"a buffer of a program much later": {[]event.Event{run(1, 1, 0), run(2, 2, 0), compile(1, 1), compile(2, 2)}, "program_run|program_run cb_alloc"},
	} {
		t.Run(name, func(t *testing.T) {
			var s splitter
			var parts []string
			for i := range test.events {
				e := &test.events[i]
				op := s.of(e)
				if op == nil {
					continue
				}
				if op.id > len(parts) {
					parts = append(parts, "")
				}
				qt.Check(t, qt.Equals(op.name, "ttnn.add"))
				parts[op.id-1] = strings.TrimSpace(parts[op.id-1] + " " + e.Kind.String())
			}
			qt.Check(t, qt.Equals(strings.Join(parts, "|"), test.want))
		})
	}
}

// A thread may allocate without end, and threads may come without end.
func TestOperationsAreBounded(t *testing.T) {
	var s splitter
	for i := range 10_000 {
		s.of(&event.Event{Kind: event.Alloc, TID: i, Devices: []int{0}, Stack: at("add", 1, "output")})
		s.of(&event.Event{Kind: event.Alloc, TID: -1, Devices: []int{0}, Stack: at("add", 1, fmt.Sprint(i))})
		qt.Assert(t, qt.IsTrue(len(s.open) <= maxOpen))
		for _, op := range s.open {
			qt.Assert(t, qt.IsTrue(len(op.allocations) <= maxParts))
		}
	}
}

// TestWindow: a report has all operations if they have few rows, and otherwise the last ones.
func TestWindow(t *testing.T) {
	var p Plan
	s := aggregate.New()
	handle := s.Completed(func(e *event.Event) { p.Event(e, s) })
	capacities := pagetest.Capacities
	handle(&event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 1, Devices: []int{0, 1}, Allocator: 1, Open: &event.Open{Capacities: capacities}})
	const buffers = 1000
	for i := range buffers {
		handle(&event.Event{
			TimeNs: uint64(2 + i), Kind: event.Alloc, PID: 1, BufferID: uint64(i), Devices: []int{0, 1}, Region: event.L1,
			BytesPerBank: 2048, Banks: 64, Stack: at("empty", 1, "output"),
		})
	}
	qt.Check(t, qt.Equals(p.Operations(), buffers))
	qt.Check(t, qt.Equals(p.Window(1, 2), Window{From: 1, To: 2, Chunks: true, ChunkRows: 3 * 2 * 64}))
	w := p.Window(0, 0)
	qt.Check(t, qt.Equals(w.To, buffers))
	rows := func(from int) (sum int) {
		for id := from; id <= buffers; id++ {
			sum += 2*id + 1 + operationRows
		}
		return sum
	}
	qt.Check(t, qt.IsTrue(rows(w.From) <= maxRows && rows(w.From-1) > maxRows), qt.Commentf("from %d", w.From))
	qt.Check(t, qt.IsFalse(w.Chunks))
	chosen := p.Window(1, buffers)
	qt.Check(t, qt.Equals(chosen, Window{From: 1, To: buffers, ChunkRows: chosen.ChunkRows}))
	qt.Check(t, qt.Equals(p.Window(buffers-5, buffers+5).To, buffers))
}
