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

const (
	// maxGrowthSteps is how much is noted at marks, of all call stacks: 60 MB. Where there
	// is more, marks are forgotten, but for some.
	maxGrowthSteps   = 1 << 20
	leastGrowthMarks = 16
)

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
	g.name(name)
	if IsStepMark(name) && !IsStepMark(g.o.From) && !IsStepMark(g.o.To) {
		g.stepMarks++
		return
	}
	g.settle()
	g.placed++
	g.marks = append(g.marks, growthMark{g.placed, name, timeNs})
	isFrom, isTo := g.asked(name)
	first := g.o.From == "" && g.placed == 1 && !isTo && !g.o.Begin
	if first || isFrom {
		g.from = g.placed
		g.forgetFresh()
	} else if g.o.EveryNs == 0 && !g.o.End && (g.o.To == "" || isTo) && (g.from > 0 || g.o.From == "") {
		g.to = g.placed
	}
	if len(g.marks) > maxGrowthMarks {
		g.thin()
	}
	for g.noted > maxGrowthSteps && len(g.marks) > leastGrowthMarks {
		g.thin()
	}
}

// asked counts a mark among those of its name, and reports whether it is the mark From or
// one that may be the mark To.
func (g *Growth) asked(name string) (isFrom, isTo bool) {
	isFrom, isTo = g.o.From != "" && g.o.From == name, g.o.To != "" && g.o.To == name
	if isFrom {
		g.fromSeen++
		isFrom = g.from == 0 && g.fromSeen >= g.o.FromNth
	}
	if isTo {
		g.toSeen++
		isTo = g.o.ToNth == 0 || g.toSeen == g.o.ToNth
	}
	return isFrom, isTo
}

// name remembers the name of a mark.
func (g *Growth) name(name string) {
	if len(g.names) < maxMarkNames && !slices.Contains(g.names, name) {
		g.names = append(g.names, name)
	}
}

// IsStepMark reports whether a mark is the beginning or the end of a step, such as a test:
// ttmem steps places them, and the pytest plugin by it.
func IsStepMark(name string) bool {
	return strings.HasSuffix(name, StepBegin) || strings.HasSuffix(name, StepEnd)
}

// What the names of the marks of steps end with.
const (
	StepBegin = " (begin)"
	StepEnd   = " (end)"
)

// settle writes down what there is at the latest mark, of what changed before the next.
func (g *Growth) settle() {
	for _, s := range g.touched {
		s.touched = false
		s.history = g.addStep(s.history, growthStep{g.placed + 1, s.fresh, s.freshEnded, s.replaced})
	}
	for _, p := range g.touchedProcesses {
		p.touched = false
		p.history = g.addStep(p.history, growthStep{mark: g.placed + 1, live: Amount{Count: p.allocations}})
	}
	g.touched, g.touchedProcesses = g.touched[:0], g.touchedProcesses[:0]
	g.others.history = g.addStep(g.others.history, growthStep{mark: g.placed + 1, ended: g.others.ended})
}

// addStep adds what there is at a mark, where it is not as before.
func (g *Growth) addStep(history []growthStep, now growthStep) []growthStep {
	before := growthStep{}
	if len(history) > 0 {
		before = history[len(history)-1]
	}
	if before.live == now.live && before.ended == now.ended && before.replaced == now.replaced {
		return history
	}
	g.noted++
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
	g.others, g.noted = growthOthers{}, 0
	for _, s := range g.sites {
		s.fresh, s.freshEnded, s.replaced, s.history = Amount{}, Amount{}, Amount{}, nil
	}
}

// thin forgets every second mark, and what was noted for it.
func (g *Growth) thin() {
	kept := make([]growthMark, 0, maxGrowthMarks) // a Note may have those that there were
	for i, m := range g.marks {
		if i%2 == 0 || m.number == g.from || m.number == g.to || i == len(g.marks)-1 {
			kept = append(kept, m)
		}
	}
	g.marks, g.noted = kept, 0
	for _, s := range g.sites {
		s.history = g.thinned(s.history)
	}
	g.others.history = g.thinned(g.others.history)
	for _, p := range g.processes {
		p.history = g.thinned(p.history)
	}
}

// thinned keeps of the steps between two marks the last one.
func (g *Growth) thinned(history []growthStep) []growthStep {
	var kept []growthStep // a Note may have what there was
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
	g.noted += len(kept)
	return kept
}

// maxMarkNames is how many names of marks are told to who asks for another.
const maxMarkNames = 16

// check finds marks that are asked for and were not there.
func (g *Growth) check() error {
	switch {
	case g.over:
		return &EarlierMarkError{MarkText(g.o.To, g.o.ToNth)}
	case g.o.From != "" && g.from == 0:
		return g.missing(g.o.From, g.o.FromNth, g.fromSeen)
	case g.o.To == "" || g.to > 0:
		return nil
	case g.toSeen > 0 && g.toSeen >= g.o.ToNth:
		return fmt.Errorf("no mark %q after the mark %q", MarkText(g.o.To, g.o.ToNth), MarkText(g.o.From, g.o.FromNth))
	}
	return g.missing(g.o.To, g.o.ToNth, g.toSeen)
}

// missing says that there is no such mark, and what there is.
func (g *Growth) missing(name string, nth, seen int) error {
	text := MarkText(name, nth)
	switch {
	case len(g.names) == 0:
		return fmt.Errorf("no mark %q: there are no marks; `ttmem mark NAME` sets one while a program runs", text)
	case seen > 0:
		return fmt.Errorf("no mark %q: there are %d of that name", text, seen)
	}
	return fmt.Errorf("no mark %q: there are %s", text, strings.Join(g.names, ", "))
}

// MarkText is how the mark of a name is written: with its number where it has one.
func MarkText(name string, nth int) string {
	if nth > 0 {
		return fmt.Sprintf("%s#%d", name, nth)
	}
	return name
}
