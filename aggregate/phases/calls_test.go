package phases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestCallsOfAFunction: calls begin and end as phases do: those of a method, of a line, of another caller and
// of inner functions. What tells nothing, such as another thread and a free, ends none.
func TestCallsOfAFunction(t *testing.T) {
	main := func(e event.Event) event.Event {
		e.PID, e.TID = 7, 7
		return e
	}
	alloc := func(calls ...string) event.Event {
		return main(event.Event{Kind: event.Alloc, Stack: at(calls...)})
	}
	worker := alloc("50 loop")
	worker.TID = 8
	events := []event.Event{
		main(event.Event{Kind: event.ProcessStart}),
		alloc("4 <module>", "2 load"),
		alloc("8 <module>", "12 Model.forward"), alloc("8 <module>", "13 Model.forward", "30 attend"),
		main(event.Event{Kind: event.Free}), worker,
		alloc("8 <module>", "12 Model.forward"),
		alloc("9 <module>", "20 backward"),
		alloc("8 <module>", "12 Model.forward"),
		alloc("10 <module>", "12 Model.forward"), // of another line
		alloc("10 <module>", "60 <lambda>"),
		main(event.Event{Kind: event.ProcessExit}),
	}
	for function, want := range map[string]string{
		"forward":       "+1@2 -1@7 +2@8 -2@9 +3@9 -3@10",
		"Model.forward": "+1@2 -1@7 +2@8 -2@9 +3@9 -3@10",
		"train.py:8":    "+1@2 -1@7 +2@8 -2@9",
		"attend":        "+1@3 -1@6",
		"train.py:10":   "+1@9 -1@11", // a lambda belongs to the line
		"backward":      "+1@7 -1@8",
		"forwar":        "",
		"orward":        "",
	} {
		calls := NewCalls(function)
		var got []string
		for i := range events {
			begun, ended := calls.Event(&events[i])
			if ended > 0 {
				got = append(got, fmt.Sprintf("-%d@%d", ended, i))
			}
			if begun > 0 {
				got = append(got, fmt.Sprintf("+%d@%d", begun, i))
			}
		}
		qt.Check(t, qt.Equals(strings.Join(got, " "), want), qt.Commentf("%s", function))
		qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(calls.Functions)), []string{"Model.forward", "attend", "backward", "load"}))
	}
}
