package aggregate

import (
	"fmt"
	"slices"
	"strings"
)

// everyName is what the marks of GrowthOptions.EveryNs are called.
const everyName = "every"

// maxGrowthMarks is how many marks are kept: of more every second one is forgotten.
const maxGrowthMarks = 1024

// markEvery places the marks that are due by now.
func (g *Growth) markEvery(now uint64) {
	for g.next <= now {
		g.mark(everyName, g.next)
		g.next += g.o.EveryNs
	}
}

// mark notes what there is at a mark.
func (g *Growth) mark(name string, timeNs uint64) {
	if g.o.EveryNs > 0 && name != everyName {
		return // the user wants others
	}
	g.settle()
	g.placed++
	g.marks = append(g.marks, growthMark{g.placed, name, timeNs})
	if len(g.names) < maxMarkNames && !slices.Contains(g.names, name) {
		g.names = append(g.names, name)
	}
	first := g.o.From == "" && g.placed == 1 && name != g.o.To && !g.o.Begin
	if first || g.from == 0 && g.o.From != "" && g.o.From == name {
		g.from = g.placed
		g.forgetFresh()
	} else if g.o.EveryNs == 0 && !g.o.End && (g.o.To == "" || g.o.To == name) && (g.from > 0 || g.o.From == "") {
		g.to = g.placed
	}
	if len(g.marks) > maxGrowthMarks {
		g.thin()
	}
}

// settle writes down what there is at the latest mark, of what changed before the next.
func (g *Growth) settle() {
	for _, s := range g.touched {
		s.touched = false
		s.history = addStep(s.history, growthStep{g.placed + 1, s.fresh, s.freshEnded, s.replaced})
	}
	for _, p := range g.touchedProcesses {
		p.touched = false
		p.history = addStep(p.history, growthStep{mark: g.placed + 1, live: Amount{Count: p.allocations}})
	}
	g.touched, g.touchedProcesses = g.touched[:0], g.touchedProcesses[:0]
}

// addStep adds what there is at a mark, where it is not as before.
func addStep(history []growthStep, now growthStep) []growthStep {
	before := growthStep{}
	if len(history) > 0 {
		before = history[len(history)-1]
	}
	if before.live == now.live && before.ended == now.ended && before.replaced == now.replaced {
		return history
	}
	return append(history, now)
}

// stepAt is what there was at a mark.
func stepAt(history []growthStep, mark int) growthStep {
	i, found := slices.BinarySearchFunc(history, mark, func(s growthStep, mark int) int { return s.mark - mark })
	switch {
	case found:
		return history[i]
	case i == 0:
		return growthStep{}
	}
	return history[i-1]
}

// touch has a site and its process settled at the next mark.
func (g *Growth) touch(s *growthSite) {
	if !s.touched {
		s.touched = true
		g.touched = append(g.touched, s)
	}
	if !s.process.touched {
		s.process.touched = true
		g.touchedProcesses = append(g.touchedProcesses, s.process)
	}
}

// forgetFresh begins to count.
func (g *Growth) forgetFresh() {
	for _, s := range g.sites {
		s.fresh, s.freshEnded, s.replaced, s.history = Amount{}, Amount{}, Amount{}, nil
	}
}

// thin forgets every second mark, and what was noted for it.
func (g *Growth) thin() {
	kept := g.marks[:0]
	for i, m := range g.marks {
		if i%2 == 0 || m.number == g.from || m.number == g.to || i == len(g.marks)-1 {
			kept = append(kept, m)
		}
	}
	g.marks = kept
	for _, s := range g.sites {
		s.history = g.thinned(s.history)
	}
	for _, p := range g.processes {
		p.history = g.thinned(p.history)
	}
}

// thinned keeps of the steps between two marks the last one.
func (g *Growth) thinned(history []growthStep) []growthStep {
	kept := history[:0]
	next := 0
	for i, s := range history {
		for next < len(g.marks) && g.marks[next].number < s.mark {
			next++
		}
		if i+1 < len(history) && next < len(g.marks) && history[i+1].mark <= g.marks[next].number {
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// maxMarkNames is how many names of marks are told to who asks for another.
const maxMarkNames = 16

// check finds marks that are asked for and were not there.
func (g *Growth) check() error {
	missing := ""
	switch {
	case g.o.From != "" && g.from == 0:
		missing = g.o.From
	case g.o.To == "" || g.to > 0:
		return nil
	case slices.Contains(g.names, g.o.To):
		return fmt.Errorf("no mark %q after the mark %q", g.o.To, g.o.From)
	default:
		missing = g.o.To
	}
	if len(g.names) == 0 {
		return fmt.Errorf("no mark %q: there are no marks; `ttmem mark NAME` sets one while a program runs", missing)
	}
	return fmt.Errorf("no mark %q: there are %s", missing, strings.Join(g.names, ", "))
}
