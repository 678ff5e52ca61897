package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"ttmem/tracer/event"
)

// shownCallers is how many calls tell a reader where in his program he is.
const shownCallers = 3

// place is where in the user's own Python something happened, innermost first.
func place(stack []event.Frame) string {
	calls := ownCalls(stack)
	return strings.Join(calls[:min(len(calls), shownCallers)], ", ")
}

// ownCalls are the Python frames that are no installed package's, or those that are
// if there are no others, innermost first.
func ownCalls(stack []event.Frame) []string {
	var own, all []string
	for i := range stack {
		f := &stack[i]
		if f.Kind != event.Python {
			continue
		}
		text := fmt.Sprintf("%s (%s:%d)", plain(f.Name), plain(filepath.Base(f.File)), f.Line)
		all = append(all, text)
		if !strings.Contains(f.File, "/site-packages/") && !strings.Contains(f.File, "/dist-packages/") {
			own = append(own, text)
		}
	}
	if len(own) == 0 {
		return all
	}
	return own
}

// holderPlace is the operation that a buffer is from, and the innermost line of the
// user's own Python.
func holderPlace(stack []event.Frame) string {
	op, calls := operation(stack), ownCalls(stack)
	switch {
	case len(calls) == 0:
		return op
	case op == "":
		return calls[0]
	}
	return op + " in " + calls[0]
}

// operation is the operation of ttnn that a stack is in: under its name in Python
// where its binding has it, and else under that of the outermost function of ttnn;
// in a program without ttnn, the innermost function outside of tt-metal.
func operation(stack []event.Frame) string {
	var ttnn, other string
	for i := range stack {
		f := &stack[i]
		if f.Kind == event.Python {
			break
		}
		if _, name, ok := strings.Cut(f.Name, "<ttnn."); ok {
			name, _, _ = strings.Cut(name, ">")
			return "ttnn." + plain(name)
		}
		if strings.HasPrefix(f.Name, "ttnn::") {
			ttnn = f.Name
		}
		if other == "" && f.Module != "libtt_metal.so" {
			other = f.Name
		}
	}
	if ttnn != "" {
		return plain(ttnn)
	}
	return plain(other)
}
