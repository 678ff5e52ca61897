package diff

import (
	"cmp"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// keys finds the rows of two sides that belong to one group.
type keys struct {
	by string
	// edited is true if the sides may be of different versions of a program, in which lines moved.
	edited bool
	// ops are the operations of calls, with lines and without, that are in only one operation.
	ops map[string]string
	// lines are the lines of each caller on each side, in order.
	lines [measures]map[caller][]int
}

// A caller is a function with a function or an operation that it calls. Its file has no folder, because
// that differs between checkouts.
type caller struct{ file, function, called string }

func newKeys(a, b *Side, by string) *keys {
	k := &keys{by: by, edited: a.Path != b.Path, ops: make(map[string]string)}
	var stacks [measures][]*event.Stack
	for side, s := range []*Side{a, b} {
		known := make(map[*event.Stack]bool)
		for i := range s.Parts.List {
			if stack := s.Parts.List[i].Stack; !known[stack] {
				known[stack] = true
				stacks[side] = append(stacks[side], stack)
				k.addOperation(stack)
			}
		}
	}
	for side, list := range stacks {
		k.lines[side] = make(map[caller][]int)
		for _, stack := range list {
			for c, call := range k.calls(stack) {
				if at, found := slices.BinarySearch(k.lines[side][c], call.Line); !found {
					k.lines[side][c] = slices.Insert(k.lines[side][c], at, call.Line)
				}
			}
		}
	}
	return k
}

// addOperation records the operation of calls, if they are in only one. The first stacks of a process may
// lack it in one run and have it in another, because they end early while the libraries are read.
func (k *keys) addOperation(stack *event.Stack) {
	op := name.Of(stack.Frames()).Op
	if op == "" {
		return
	}
	for _, calls := range callTexts(stack) {
		if other, ok := k.ops[calls]; ok && other != op {
			k.ops[calls] = ""
		} else {
			k.ops[calls] = op
		}
	}
}

// callTexts returns the calls of the user's own code, with their lines and without.
func callTexts(stack *event.Stack) [2]string {
	var with, without strings.Builder
	for _, call := range name.UserCalls(stack.Frames()) {
		fmt.Fprintf(&without, "\n%s %s", path.Base(call.File), call.Function)
		fmt.Fprintf(&with, "\n%s %s:%d", path.Base(call.File), call.Function, call.Line)
	}
	return [2]string{with.String(), without.String()}
}

// operation returns the operation of a stack or, if it lacks that, of its calls.
func (k *keys) operation(stack *event.Stack) string {
	if op := name.Of(stack.Frames()).Op; op != "" {
		return op
	}
	texts := callTexts(stack)
	return cmp.Or(k.ops[texts[0]], k.ops[texts[1]])
}

// calls returns the calls of the user's own code with their callers, innermost first.
func (k *keys) calls(stack *event.Stack) iter.Seq2[caller, name.Call] {
	return func(yield func(caller, name.Call) bool) {
		called := k.operation(stack)
		for _, call := range name.UserCalls(stack.Frames()) {
			if !yield(caller{path.Base(call.File), call.Function, called}, call) {
				return
			}
			called = "in " + call.Function
		}
	}
}

// lineInB returns the line in B of a line in A: one with the same place among the lines of its caller, if
// both sides have as many, or the same line. It is negative if B does not have it.
func (k *keys) lineInB(c caller, line int) int {
	a, b := k.lines[inA][c], k.lines[inB][c]
	if k.edited && len(a) == len(b) {
		at, _ := slices.BinarySearch(a, line)
		return b[at]
	}
	if _, found := slices.BinarySearch(b, line); found || !k.edited {
		return line
	}
	return -line
}

// add adds a row of a side to its groups.
func (k *keys) add(groups *table.Table, a *alloc.Row, side int) {
	if a.Name.Op == "" {
		a.Site.Name.Op = k.operation(a.Stack)
	}
	if groups.Apart = ""; isStatic(a) {
		groups.Apart = a.Region.String()
	}
	switch k.by {
	case "stack":
		look := groups.Names.Look(a, a.Region)
		groups.AddAs(a, alloc.Key{Text: k.ofStack(a, side), Apart: a.Region.String()}, look)
	case "process": // by name: another run has other ids
		groups.AddTo(a, []string{groups.Names.ProcessName(a.PID)})
	default:
		groups.Add(a)
	}
}

// ofStack returns the key of the operation and the user's own calls. Calls of tt-metal and ttnn in between
// may differ in another release. It sets which lines of a row of A moved.
func (k *keys) ofStack(a *alloc.Row, side int) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%t %t %s %s", a.Stack == nil, a.BeforeAttach, a.Class().Mention(), a.Name.Op)
	innermost := true
	for c, call := range k.calls(a.Stack) {
		line := call.Line
		if side == inA {
			line = k.lineInB(c, line)
		}
		if line != call.Line {
			if a.Moved = true; innermost {
				a.ALine = call.Line
			}
		}
		innermost = false
		fmt.Fprintf(&key, "\n%s %s:%d", c.file, c.function, line)
	}
	return key.String()
}
