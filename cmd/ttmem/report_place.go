package main

import (
	"strings"

	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// shownCallers is how many calls tell a reader where in his program he is.
const shownCallers = 3

// place is where in the user's own code something happened, innermost first.
func place(stack []event.Frame) string {
	calls := name.UserCalls(stack)
	return strings.Join(callTexts(calls[:min(len(calls), shownCallers)]), ", ")
}

func callTexts(calls []name.Call) (list []string) {
	for _, c := range calls {
		list = append(list, plain(c.String()))
	}
	return list
}

// separator stands between the operation and the line in the name of a buffer.
func (p painter) separator() string { return p.pick(" · ", " - ") }

// fitName is the name of a buffer, at most so wide: a long operation is cut first, as
// the line matters most, and then the function.
func (p painter) fitName(n name.Name, limit int) string {
	op, call, ellipsis := plain(n.Op), plain(n.Call.String()), p.pick("…", "~")
	if op == "" || call == "" {
		return truncate(op+call, limit, ellipsis)
	}
	op = truncate(op, max(limit/3, limit-width(p.separator()+call)), ellipsis) + p.separator()
	return op + truncate(call, limit-width(op), ellipsis)
}
