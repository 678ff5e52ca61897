package page

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// shownCallers is how many calls show a reader where in the program something happened.
const shownCallers = 3

// Place is where in the user's own code something happened, innermost first.
func Place(stack []event.Frame) string {
	calls := name.UserCalls(stack)
	return strings.Join(CallTexts(calls[:min(len(calls), shownCallers)]), ", ")
}

// CallTexts are calls as FILE:LINE FUNCTION.
func CallTexts(calls []name.Call) (list []string) {
	for _, c := range calls {
		list = append(list, Clean(c.String()))
	}
	return list
}

// Separator stands between the operation and the line in the name of a buffer.
func (p Painter) Separator() string { return p.Pick(" · ", " - ") }

// FitName is the name of a buffer in at most limit columns. A long operation is cut first,
// then the function: the line matters most.
func (p Painter) FitName(n name.Name, limit int) string {
	op, call, ellipsis := Clean(n.Op), Clean(n.Call.String()), p.Pick("…", "~")
	if op == "" || call == "" {
		return Truncate(op+call, limit, ellipsis)
	}
	op = Truncate(op, max(limit/3, limit-Width(p.Separator()+call)), ellipsis) + p.Separator()
	return op + Truncate(call, limit-Width(op), ellipsis)
}

// CompareFrames orders call stacks by their frames, innermost first, so that those of one
// name are always in the same order.
func CompareFrames(a, b []event.Frame) int {
	return slices.CompareFunc(a, b, func(x, y event.Frame) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Name, y.Name),
			cmp.Compare(x.Module, y.Module), cmp.Compare(x.Address, y.Address))
	})
}

// Callers are the user's calls that led to the innermost one, which the name has.
func Callers(frames []event.Frame) (list []string) {
	calls := name.UserCalls(frames)
	for _, call := range calls[min(1, len(calls)):] {
		list = append(list, Clean(call.String()))
	}
	return list
}

// JoinCallers joins calls into lines of at most limit columns.
func JoinCallers(calls []string, layout Layout, limit int) (lines []string) {
	for _, call := range calls {
		call = layout.Pick("← ", "< ") + call
		if n := len(lines); n > 0 && Width(lines[n-1])+1+Width(call) <= limit {
			lines[n-1] += " " + call
		} else {
			lines = append(lines, Fold(call, limit)...)
		}
	}
	return lines
}
