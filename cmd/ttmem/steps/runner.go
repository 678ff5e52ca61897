package steps

import (
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// isRunner reports whether a frame is of pytest, wherever it is installed.
func isRunner(f event.Frame) bool {
	return f.Kind == event.Python && (strings.Contains(f.File, "/_pytest/") || strings.Contains(f.File, "/pluggy/"))
}

// withoutRunner is the stack, innermost frame first, without pytest and what called it:
// of each test they are the same.
func withoutRunner(stack []event.Frame) []event.Frame {
	own, since := []event.Frame{}, 0 // since are those that something of pytest's called
	for _, f := range stack {
		if isRunner(f) {
			since = len(own)
			continue
		}
		own = append(own, f)
	}
	if since == 0 || !slices.ContainsFunc(own[:since], isPython) {
		return stack
	}
	return own[:since]
}

func isPython(f event.Frame) bool { return f.Kind == event.Python }
