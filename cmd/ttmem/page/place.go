package page

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/aggregate"
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

// DeviceName is the board and the architecture of a chip, each after a separator.
func (p Painter) DeviceName(d *aggregate.Device) (name string) {
	for _, part := range []string{d.Board, d.Arch} {
		if part != "" {
			name += p.Separator() + Clean(part)
		}
	}
	return name
}

// FitName is the name of a buffer in at most limit columns. A long operation is cut first,
// then the function: the line matters most.
func (p Painter) FitName(n name.Name, limit int) string {
	op, call := Clean(n.Op), Clean(n.Call.String())
	if op == "" || call == "" {
		return p.Cut(op+call, limit)
	}
	op = p.Cut(op, max(limit/3, limit-Width(p.Separator()+call))) + p.Separator()
	return op + p.Cut(call, limit-Width(op))
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

// A Site is a place in a program, as a page names it.
type Site struct {
	// Key is the same for sites of the same name.
	Key string
	// Calls are the user's calls that led there, innermost first.
	Calls []string
	// Caller is set by Distinguish.
	Caller string
}

// Distinguish gives sites of the same name the callers in which they differ: the innermost
// line may be a helper that many call.
func Distinguish(sites []*Site) {
	type name struct{ key, caller string }
	depth := 0
	for _, s := range sites {
		depth = max(depth, len(s.Calls))
	}
	for at := 1; at < depth; at++ {
		groups := make(map[name][]*Site)
		for _, s := range sites {
			n := name{s.Key, s.Caller}
			groups[n] = append(groups[n], s)
		}
		for _, group := range groups {
			if !slices.ContainsFunc(group, func(s *Site) bool { return s.call(at) != group[0].call(at) }) {
				continue
			}
			for _, s := range group {
				if call := s.call(at); call != "" {
					s.Caller = strings.TrimPrefix(s.Caller+", "+call, ", ")
				}
			}
		}
	}
}

func (s *Site) call(at int) string {
	if at < len(s.Calls) {
		return s.Calls[at]
	}
	return ""
}
