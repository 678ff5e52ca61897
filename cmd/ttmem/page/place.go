package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// shownCallers is how many calls tell a reader where in his program he is.
const shownCallers = 3

// Place is where in the user's own code something happened, innermost first.
func Place(stack []event.Frame) string {
	calls := aggregate.OwnCalls(stack)
	return strings.Join(CallTexts(calls[:min(len(calls), shownCallers)]), ", ")
}

func CallTexts(calls []aggregate.Call) (list []string) {
	for _, c := range calls {
		list = append(list, Clean(c.String()))
	}
	return list
}

// Separator stands between the operation and the line in the name of a buffer.
func (p Painter) Separator() string { return p.Pick(" · ", " - ") }

// FitName is the name of a buffer, at most so wide: a long operation is cut first, as
// the line matters most, and then the function.
func (p Painter) FitName(n aggregate.Name, limit int) string {
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

// Columns are how wide text is broken.
func (l *Layout) Columns() int {
	if l.Width == 0 {
		return 80
	}
	return l.Width
}

// Newest keeps the newest n, or all where n is 0.
func Newest[T any](list []T, n int) (kept []T, omitted int) {
	if n > 0 && len(list) > n {
		return list[len(list)-n:], len(list) - n
	}
	return list, 0
}

// Callers are the user's calls that led to the innermost one, which is in the name.
func Callers(frames []event.Frame) (list []string) {
	calls := aggregate.OwnCalls(frames)
	for _, call := range calls[min(1, len(calls)):] {
		list = append(list, Clean(call.String()))
	}
	return list
}

// JoinCallers breaks calls into lines of at most limit columns, between them.
func JoinCallers(calls []string, layout Layout, limit int) (lines []string) {
	for _, call := range calls {
		call = layout.Pick("← ", "< ") + call
		if n := len(lines); n > 0 && Width(lines[n-1])+1+Width(call) <= limit {
			lines[n-1] += " " + call
		} else {
			lines = append(lines, Fit(call, limit)...)
		}
	}
	return lines
}

// Moment writes a time in ns to the millisecond, if it is not long.
func Moment(ns uint64) string {
	if ns < 120e9 {
		return fmt.Sprintf("%.3f s", float64(ns)/1e9)
	}
	return Seconds(ns)
}
