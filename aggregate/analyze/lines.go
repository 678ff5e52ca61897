package analyze

import (
	"maps"
	"path"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// Lines say where the lines of A are in B: an edit moves lines.
type Lines map[function]map[int]int

// A function is the function of a call. Its file has no folder, because that differs between
// checkouts.
type function struct{ file, name string }

func functionOf(c *name.Call) function { return function{path.Base(c.File), c.Function} }

// Of returns the line in B of a call in A; a negative one if B does not have it.
func (l Lines) Of(c name.Call) int {
	if line, ok := l[functionOf(&c)][c.Line]; ok {
		return line
	}
	return -c.Line
}

// MatchLines matches the lines of each function that make calls. A line of B matches one of A if
// both may call the same function. Matches keep the order of lines, and as few lines as possible
// are unmatched.
func MatchLines(a, b []Part) Lines {
	matched := make(Lines)
	inB := linesOf(b)
	for f, lines := range linesOf(a) {
		if other := inB[f]; other != nil {
			matched[f] = align(lines, other)
		}
	}
	return matched
}

// A calling line calls functions or operations that allocated Amount.
type callingLine struct {
	called map[string]bool
	// unknown is true if it calls an operation that is not known.
	unknown bool
	memory.Amount
}

func linesOf(sites []Part) map[function]map[int]*callingLine {
	lines := make(map[function]map[int]*callingLine)
	type calls struct {
		list []name.Call
		op   string
	}
	known := make(map[*event.Stack]*calls)
	for i := range sites {
		site := &sites[i]
		of := known[site.Stack]
		if of == nil {
			frames := site.Stack.Frames()
			of = &calls{name.UserCalls(frames), name.Of(frames).Op}
			known[site.Stack] = of
		}
		called := of.op
		for i := range of.list {
			call := &of.list[i]
			f := functionOf(call)
			if lines[f] == nil {
				lines[f] = make(map[int]*callingLine)
			}
			line := lines[f][call.Line]
			if line == nil {
				line = &callingLine{called: make(map[string]bool)}
				lines[f][call.Line] = line
			}
			line.unknown = line.unknown || called == ""
			line.called[called] = true
			line.Add(site.Amount)
			called = "in " + call.Function
		}
	}
	return lines
}

// callsSame reports whether both lines may call the same function or operation.
func (l *callingLine) callsSame(other *callingLine) bool {
	if l.unknown || other.unknown {
		return true
	}
	for called := range l.called {
		if other.called[called] {
			return true
		}
	}
	return false
}

// Weights for choosing matches. The number of matches counts more than all of them.
const (
	matchWeight  = 1 << 14
	amountWeight = 6 // the same amount was allocated
	sameWeight   = 3 // the line has not moved
	offsetWeight = 2 // the line has moved as far as the line before
	// maxAlign limits the product of the numbers of lines that are matched in order.
	maxAlign = 1 << 20
)

// align matches lines of one function, in order. If there are too many, the numbers of lines
// match.
func align(a, b map[int]*callingLine) map[int]int {
	matched := make(map[int]int)
	if len(a)*len(b) > maxAlign {
		for line := range a {
			if b[line] != nil {
				matched[line] = line
			}
		}
		return matched
	}
	inA, inB := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	columns := len(inB) + 1
	// best is the weight of the best match of the first lines of each, and last the same if
	// the last of these match; 0: they do not.
	best, last := make([]int32, (len(inA)+1)*columns), make([]int32, (len(inA)+1)*columns)
	for i, x := range inA {
		for j, y := range inB {
			at, before := (i+1)*columns+j+1, i*columns+j
			best[at] = max(best[at-1], best[at-columns])
			if !a[x].callsSame(b[y]) {
				continue
			}
			last[at] = best[before]
			if last[before] > 0 && y-x == inB[j-1]-inA[i-1] {
				last[at] = max(last[at], last[before]+offsetWeight)
			}
			last[at] += matchWeight
			if a[x].Amount == b[y].Amount {
				last[at] += amountWeight
			}
			if x == y {
				last[at] += sameWeight
			}
			best[at] = max(best[at], last[at])
		}
	}
	follow := false // the match before is one with the same offset
	for i, j := len(inA), len(inB); i > 0 && j > 0; {
		at, before := i*columns+j, (i-1)*columns+j-1
		switch {
		case !follow && best[at] == best[at-1]:
			j--
		case !follow && best[at] == best[at-columns]:
			i--
		default:
			x, y := inA[i-1], inB[j-1]
			matched[x] = y
			follow = i > 1 && j > 1 && last[before] > 0 && y-x == inB[j-2]-inA[i-2] && last[before]+offsetWeight >= best[before]
			i, j = i-1, j-1
		}
	}
	return matched
}
