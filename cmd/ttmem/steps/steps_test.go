package steps

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

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
