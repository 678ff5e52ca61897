package steps

import (
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// isRunner reports whether a frame belongs to pytest, wherever that is installed.
func isRunner(f event.Frame) bool {
	return f.Kind == event.Python && (strings.Contains(f.File, "/_pytest/") || strings.Contains(f.File, "/pluggy/"))
}

// withoutRunner returns the stack, innermost frame first, without pytest and its callers, which
// are the same for each test.
func withoutRunner(stack []event.Frame) []event.Frame {
	own, since := []event.Frame{}, 0 // since are the frames called by pytest
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
