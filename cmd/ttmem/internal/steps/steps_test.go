package steps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestStepsAnswerWhatTheyDoNotUnderstandAndGoOn: a line of the input that makes no sense
// is answered, and changes nothing.
func TestStepsAnswerWhatTheyDoNotUnderstandAndGoOn(t *testing.T) {
	var out bytes.Buffer
	var marks []string
	s := New(&out)
	input := "end\nfrob\nbegin\nbegin one two\nend 7\nend now\npeaks now\nend 1\nend 1\n\nbegin four\nend 1\n"
	qt.Assert(t, qt.IsNil(s.Listen(strings.NewReader(input), func(name string) error {
		marks = append(marks, name)
		return nil
	})))
	qt.Check(t, qt.DeepEquals(marks, []string{"one two (begin)", "one two (end)", "one two (end)", "four (begin)"}))
	const are = ": a line is `begin NAME`, `end`, `end ID`, `peaks` or `reset`"
	qt.Check(t, qt.Equals(out.String(), strings.Join([]string{
		`{"error":"end: no step has begun"}`,
		`{"error":"\"frob\"` + are + `"}`,
		`{"error":"begin without a name` + are + `"}`,
		`{"began":"one two","id":1}`,
		`{"error":"end 7: no such step runs"}`,
		`{"error":"\"end now\"` + are + `"}`,
		`{"error":"\"peaks now\"` + are + `"}`,
		`{"error":"\"\"` + are + `"}`,
		`{"began":"four","id":2}`,
		`{"error":"end 1: no such step runs"}`, "",
	}, "\n")))

	gone := errors.New("gone")
	qt.Check(t, qt.ErrorIs(s.Listen(strings.NewReader("begin one\n"), func(string) error { return gone }), gone))
}

// TestWhatAStepLeft is what it allocated and did not free: also what ended with its device, and
// nothing that was there before.
func TestWhatAStepLeft(t *testing.T) {
	var out bytes.Buffer
	s := New(&out)
	now := uint64(100)
	handle := func(e event.Event) {
		now++
		e.TimeNs = now
		s.Handle(&e)
	}
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "/t/model.py", Line: 3}})
	alloc := func(id uint64) {
		handle(event.Event{
			Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: id, Devices: []int{0, 1}, BytesPerBank: 1 << 10, Banks: 12, Address: id << 20, Stack: stack,
		})
	}
	handle(event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0, 1}, Mesh: true})
	alloc(1)
	in, lines := io.Pipe()
	listened := make(chan error)
	go func() {
		listened <- s.Listen(in, func(name string) error {
			handle(event.Event{Kind: event.Mark, Cause: name})
			if name == "two"+memory.StepEnd { // which is measured again
				handle(event.Event{Kind: event.Free, PID: 7, BufferID: 11, Reason: event.ReasonExplicit})
			}
			if strings.HasSuffix(name, memory.StepBegin) {
				for id := range uint64(4) {
					alloc(10 + id)
				}
				handle(event.Event{Kind: event.Free, PID: 7, BufferID: 10, Reason: event.ReasonExplicit})
				handle(event.Event{Kind: event.Free, PID: 7, BufferID: 1, Reason: event.ReasonExplicit})
			}
			if name == "one"+memory.StepBegin {
				handle(event.Event{Kind: event.DeviceClose, PID: 7, Allocator: 1, Devices: []int{0, 1}})
			}
			return nil
		})
	}()
	_, err := io.WriteString(lines, "begin one\nend\nbegin two\nend\nend\n")
	qt.Assert(t, qt.IsNil(err))
	lines.Close()
	qt.Assert(t, qt.IsNil(<-listened))
	var left [][]stepLeft
	for line := range strings.Lines(out.String()) {
		var one Step
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &one)))
		if one.Step != "" {
			pagetest.CheckSchema(t, "step", line)
			left = append(left, one.Left)
		}
	}
	of := func(n uint64) []stepLeft {
		return []stepLeft{{Region: "DRAM", Bytes: n * 2 * 12 << 10, Buffers: n, Name: "model.py:3 forward", Calls: []string{"model.py:3 forward"}, File: "/t/model.py", Line: 3}}
	}
	qt.Check(t, qt.DeepEquals(left, [][]stepLeft{of(3), of(3), of(2)}))
}

// TestAStepGoesOnAfterACheckpoint: what it left and its peak are known, as far as the checkpoint has
// them.
func TestAStepGoesOnAfterACheckpoint(t *testing.T) {
	var out bytes.Buffer
	s, service := New(&out), aggregate.New()
	now := uint64(100)
	handle := func(e event.Event) {
		now++
		e.TimeNs = now
		service.Apply(&e)
		s.Handle(&e)
	}
	alloc := func(id uint64) {
		handle(event.Event{Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: id, Devices: []int{0}, BytesPerBank: 100, Banks: 12, Address: id << 20})
	}
	handle(event.Event{Kind: event.Lost, PID: 7, Count: 3, Cause: "ring buffer full"})
	handle(event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}})
	alloc(1)
	qt.Assert(t, qt.IsNil(s.Listen(strings.NewReader("begin one\nend\n"), func(name string) error {
		if strings.HasSuffix(name, memory.StepEnd) {
			alloc(2)
			checkpoint := service.Checkpoint()
			service = aggregate.New()
			s.Handle(checkpoint)
			alloc(3)
		}
		handle(event.Event{Kind: event.Mark, Cause: name})
		return nil
	})))
	_, line, _ := strings.Cut(out.String(), "\n")
	var one Step
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &one)), qt.Commentf("%s", out.String()))
	qt.Assert(t, qt.HasLen(one.Left, 1))
	qt.Check(t, qt.Equals(one.Left[0].Buffers, 2))
	qt.Assert(t, qt.HasLen(one.Peaks, 1))
	qt.Check(t, qt.Equals(one.Peaks[0].BeginBytes, 1200))
	qt.Check(t, qt.Equals(one.Peaks[0].PeakBytes, 3600))
	qt.Check(t, qt.Equals(one.Lost, 0))
}

// TestStepsMayOverlap: each has its own peaks and what was allocated in it, also one in another and one that
// ends before another that began earlier. `peaks` goes on across them, from `reset` on.
func TestStepsMayOverlap(t *testing.T) {
	var out bytes.Buffer
	s := New(&out)
	now := uint64(100)
	s.Now = func() uint64 { return now }
	handle := func(e event.Event) {
		now++
		e.TimeNs, e.PID = now, 7
		s.Handle(&e)
	}
	alloc := func(id, size uint64) {
		handle(event.Event{Kind: event.Alloc, Allocator: 1, BufferID: id, Devices: []int{0}, BytesPerBank: size, Banks: 1, Address: id << 20})
	}
	free := func(id uint64) {
		handle(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit})
	}
	fail := func() {
		handle(event.Event{Kind: event.AllocFailed, Devices: []int{0}, Region: event.L1, SizeBytes: 5, Message: "Out of Memory"})
	}
	handle(event.Event{Kind: event.DeviceOpen, Allocator: 1, Devices: []int{0}})
	alloc(1, 1000)
	free(1)
	before := []func(){
		func() { alloc(2, 10) },                   // reset: 10
		func() { alloc(3, 20) },                   // begin a: 30
		func() { alloc(4, 40); fail() },           // begin b: 70
		func() { free(3); alloc(5, 80); free(5) }, // begin c: 130, then 50
		func() { alloc(6, 7); fail() },            // end b: 57
		func() { alloc(7, 3); free(6) },           // end a: 60, then 53
		func() {},                                 // peaks
		func() { free(7) },                        // end c: 50
		func() {},                                 // end c again
		func() {},                                 // reset
	}
	input := "reset\nbegin a\nbegin b\nbegin c\nend 2\nend 1\npeaks\nend\nend 3\nreset\n"
	qt.Assert(t, qt.IsNil(s.Listen(strings.NewReader(input), func(name string) error {
		before[0]()
		before = before[1:]
		handle(event.Event{Kind: event.Mark, Cause: name})
		return nil
	})))
	type answer struct {
		Step     string
		Peaks    []stepPeak
		Left     []stepLeft
		Failures []stepFailure
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var one answer
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &one)))
		if len(one.Peaks) == 0 {
			continue // it began
		}
		p, left, parts := one.Peaks[0], uint64(0), uint64(0)
		for _, l := range p.Lines {
			parts += l.Bytes
		}
		if one.Step != "" { // also of a peak in a step inside of it
			qt.Check(t, qt.Equals(parts, p.PeakBytes))
		}
		for _, l := range one.Left {
			left += l.Bytes
		}
		got = append(got, fmt.Sprintf("%s %d≤%d≥%d left %d failed %d", one.Step, p.BeginBytes, p.PeakBytes, p.EndBytes, left, len(one.Failures)))
	}
	qt.Check(t, qt.DeepEquals(got, []string{
		" 10≤10≥10 left 0 failed 0",
		"b 70≤130≥57 left 7 failed 1",
		"a 30≤130≥53 left 43 failed 2",
		" 10≤130≥53 left 0 failed 0",
		"c 50≤60≥50 left 0 failed 1",
		"c 50≤60≥50 left 0 failed 1",
		" 50≤50≥50 left 0 failed 0",
	}))
}

// TestAMarkOfAnotherProgram with the name of a step that this one begins does not begin it.
func TestAMarkOfAnotherProgram(t *testing.T) {
	var out bytes.Buffer
	s := New(&out)
	s.Now = func() uint64 { return 100 }
	one := func(id uint64, name string, ns uint64) {
		s.Handle(&event.Event{Kind: event.Alloc, PID: 7, BufferID: id, Devices: []int{0}, BytesPerBank: 1, Banks: 1, Address: id << 20, TimeNs: ns - 1})
		s.Handle(&event.Event{Kind: event.Mark, Cause: name, TimeNs: ns})
	}
	qt.Assert(t, qt.IsNil(s.Listen(strings.NewReader("begin x\nend\n"), func(name string) error {
		one(1, name, 90)
		one(2, name, 110)
		return nil
	})))
	_, line, _ := strings.Cut(out.String(), "\n")
	var step Step
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &step)))
	qt.Check(t, qt.Equals(step.BeginNs, 110))
}

// TestCallsOfAStepHaveNoRunner: pytest is not what allocated, nor what started it.
func TestCallsOfAStepHaveNoRunner(t *testing.T) {
	frame := func(file string) event.Frame { return event.Frame{Kind: event.Python, File: file, Line: 1} }
	native := event.Frame{Kind: event.Native, Name: "ttnn::empty"}
	of := func(files ...string) []event.Frame {
		list := []event.Frame{native}
		for _, file := range files {
			list = append(list, frame(file))
		}
		return list
	}
	for _, c := range []struct{ stack, want []event.Frame }{
		{of("/t/test_a.py", "/p/_pytest/python.py", "/p/pluggy/_callers.py", "/venv/bin/pytest"), of("/t/test_a.py")},
		// the test has pytest call something
		{of("/t/test_a.py", "/p/_pytest/raises.py", "/t/test_b.py", "/p/_pytest/python.py"), of("/t/test_a.py", "/t/test_b.py")},
		{of("/t/model.py", "/t/main.py"), of("/t/model.py", "/t/main.py")},
		// nothing else is there
		{of("/p/_pytest/python.py", "/venv/bin/pytest"), of("/p/_pytest/python.py", "/venv/bin/pytest")},
	} {
		qt.Check(t, qt.DeepEquals(withoutRunner(c.stack), c.want))
	}
}
