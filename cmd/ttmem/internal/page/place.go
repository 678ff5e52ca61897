package page

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// CallTexts returns calls as FILE:LINE FUNCTION.
func CallTexts(calls []name.Call) []string {
	return Each(calls, func(c name.Call) string { return Clean(c.String()) })
}

// FrameTexts returns the function of a frame, or its address, and its place.
func FrameTexts(f *event.Frame) (function, place string) {
	function, place = f.Name, f.Module
	if function == "" {
		function = fmt.Sprintf("%#x", f.Address)
	}
	if f.File != "" {
		place = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return function, place
}

// Separator returns the separator of the operation and the line in the name of a buffer.
func (p Painter) Separator() string { return p.Pick(" · ", " - ") }

// Arrow returns the separator of a call and its caller.
func (p Painter) Arrow() string { return p.Pick(" ← ", " < ") }

// DeviceName is the board and the architecture of a chip, each after a separator.
func (p Painter) DeviceName(d *memory.Device) (name string) {
	for _, part := range []string{d.Board, d.Arch} {
		if part != "" {
			name += p.Separator() + Clean(part)
		}
	}
	return name
}

// CompareFrames orders call stacks by their frames, innermost first, so that stacks with the same
// name are always in the same order.
func CompareFrames(a, b []event.Frame) int {
	return slices.CompareFunc(a, b, func(x, y event.Frame) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Name, y.Name),
			cmp.Compare(x.Module, y.Module), cmp.Compare(x.Address, y.Address))
	})
}

// Callers returns the user's calls that led to the innermost one, which is in the name.
func Callers(frames []event.Frame) []string {
	calls := name.UserCalls(frames)
	return CallTexts(calls[min(1, len(calls)):])
}

// InFileOf returns a call without its file, if another call has the same file.
func InFileOf(other, call string) string {
	if file, _, ok := strings.Cut(other, ":"); ok {
		if rest, ok := strings.CutPrefix(call, file+":"); ok {
			return ":" + rest
		}
	}
	return call
}

// WriteCallers writes calls, indented, in as few lines as they fit into.
func (l Layout) WriteCallers(out *bufio.Writer, indent int, calls []string) {
	limit := l.Columns() - indent
	var lines []string
	for _, call := range calls {
		call = l.Pick("← ", "< ") + call
		if n := len(lines); n > 0 && Width(lines[n-1])+1+Width(call) <= limit {
			lines[n-1] += " " + call
		} else {
			lines = append(lines, Fold(call, limit)...)
		}
	}
	for _, line := range lines {
		fmt.Fprintln(out, Blank(indent)+l.Paint(Dim, line))
	}
}
