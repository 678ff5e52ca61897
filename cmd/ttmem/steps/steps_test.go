package steps

import (
	"bytes"
	"encoding/json"
	"errors"
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
	input := "end\nfrob\nbegin\nbegin one two\nbegin three\nend now\nend\n\nbegin four\n"
	qt.Assert(t, qt.IsNil(s.Listen(strings.NewReader(input), func(name string) error {
		marks = append(marks, name)
		return nil
	})))
	qt.Check(t, qt.DeepEquals(marks, []string{"one two (begin)", "one two (end)", "four (begin)"}))
	qt.Check(t, qt.Equals(out.String(), strings.Join([]string{
		`{"error":"end: no step has begun"}`,
		"{\"error\":\"\\\"frob\\\": a line is `begin NAME` or `end`\"}",
		"{\"error\":\"begin without a name: a line is `begin NAME` or `end`\"}",
		`{"began":"one two"}`,
		`{"error":"begin three: one two has not ended"}`,
		"{\"error\":\"\\\"end now\\\": a line is `begin NAME` or `end`\"}",
		"{\"error\":\"\\\"\\\": a line is `begin NAME` or `end`\"}",
		`{"began":"four"}`, "",
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
		return []stepLeft{{Region: "DRAM", Bytes: n * 2 * 12 << 10, Buffers: n, Name: "model.py:3 forward", Calls: []string{"model.py:3 forward"}}}
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
