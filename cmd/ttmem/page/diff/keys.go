package diff

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A groupKey identifies a group on both sides, and has its title. moved is true for a row of A whose
// line moved in B; line is then the line of its innermost call, or 0 if only other lines moved.
type groupKey struct {
	alloc.Key
	title string
	moved bool
	line  int
}

// keys finds the rows of two sides that belong to one group.
type keys struct {
	Options
	// lines maps the lines of A to those of B.
	lines analyze.Lines
	ops   map[string]string
}

func newKeys(a, b *Side, o Options) *keys {
	k := &keys{Options: o, ops: make(map[string]string)}
	if o.By == "stack" {
		k.lines = analyze.MatchLines(a.Parts.List, b.Parts.List)
	}
	known := make(map[*event.Stack]bool)
	for _, side := range []*Side{a, b} {
		for i := range side.Parts.List {
			if stack := side.Parts.List[i].Stack; !known[stack] {
				known[stack] = true
				k.addOperation(stack, side == b)
			}
		}
	}
	return k
}

// addOperation records the operation of calls, with lines and without, if calls are in only one
// operation. The first stacks of a process may lack it in one run and have it in another, because
// they end early while the libraries are read.
func (k *keys) addOperation(stack *event.Stack, inB bool) {
	op := name.Of(stack.Frames()).Op
	if op == "" {
		return
	}
	for _, line := range []lineOf{k.lineOf(inB), noLine} {
		calls := callsKey(stack, line)
		if other, ok := k.ops[calls]; ok && other != op {
			k.ops[calls] = ""
		} else {
			k.ops[calls] = op
		}
	}
}

// A lineOf returns the line by which a call is compared.
type lineOf func(name.Call) int

func noLine(name.Call) int { return 0 }

func ownLine(c name.Call) int { return c.Line }

func (k *keys) lineOf(inB bool) lineOf {
	if inB || k.lines == nil {
		return ownLine
	}
	return k.lines.Of
}

// callsKey returns a key that is equal for equal calls of the user's own code.
func callsKey(stack *event.Stack, line lineOf) string {
	var b strings.Builder
	for _, call := range name.UserCalls(stack.Frames()) {
		fmt.Fprintf(&b, "\n%s %s:%d", path.Base(call.File), call.Function, line(call))
	}
	return b.String()
}

// rowOf is a row for a part; ok is false if the filter does not select it.
func rowOf(n *alloc.Namer, p *analyze.Part) (_ alloc.Row, ok bool) {
	a := alloc.RowOf(&p.Site)
	a.BytesPerBank, a.Banks = p.Bytes, 1
	return n.Row(a, p.Stack)
}

// of returns the groups of a row of a side.
func (k *keys) of(n *alloc.Namer, a *alloc.Row, inB bool) []groupKey {
	if a.Name.Op == "" {
		a.Site.Name.Op = cmp.Or(k.ops[callsKey(a.Stack, k.lineOf(inB))], k.ops[callsKey(a.Stack, noLine)])
	}
	var names []string
	switch k.By {
	case "stack":
		return []groupKey{k.ofStack(n, a, inB)}
	case "process": // by name: another run has other ids
		names = []string{n.ProcessName(a.PID)}
	default:
		names = alloc.GroupingOf(k.By).Keys(n, a)
	}
	return page.Each(names, func(name string) groupKey {
		return groupKey{Key: alloc.Key{Text: name, Apart: fmt.Sprint(a.Region == event.CB)}, title: name}
	})
}

// ofStack returns the group of the operation and the user's own calls. Calls of tt-metal and ttnn
// in between may differ in another release.
func (k *keys) ofStack(n *alloc.Namer, a *alloc.Row, inB bool) groupKey {
	line := k.lineOf(inB)
	calls := fmt.Sprintf("%t %t %s %s", a.Stack == nil, a.BeforeAttach, a.Class().Mention(), a.Name.Op) + callsKey(a.Stack, line)
	key := groupKey{Key: alloc.Key{Text: calls, Apart: a.Region.String()}, title: n.Title(a, " · ")}
	if inB {
		return key
	}
	for i, call := range name.UserCalls(a.Stack.Frames()) {
		if line(call) != call.Line {
			if key.moved = true; i == 0 {
				key.line = call.Line
			}
		}
	}
	return key
}
