package aggregate

import "fmt"

// Where events begin with what there was before, they tell of marks of that time. What was
// freed since such a mark is not told.

// markEarlier takes a mark that lies before the beginning: it is of use only where it is
// asked for by its name.
func (g *Growth) markEarlier(name string, timeNs uint64) {
	if g.o.EveryNs > 0 {
		return // the user wants others
	}
	g.name(name)
	isFrom, isTo := g.asked(name)
	switch {
	case isFrom:
		g.settle()
		g.placed++
		g.marks = append(g.marks, growthMark{g.placed, name, timeNs})
		g.from, g.earlier = g.placed, true
		g.forgetFresh()
	case isTo && (g.from > 0 || g.o.From == ""):
		g.over = true
	case !IsStepMark(name):
		g.earlierMarks++
	}
}

// begin is called when what there was before has been told of. Where it is counted from a
// mark of before, what there is tells nothing of how it came to be there: it may have
// taken the place of what was freed.
func (g *Growth) begin() {
	g.begun = true
	if !g.earlier {
		return
	}
	for _, s := range g.sites {
		if s.live.Count > 0 {
			s.best = Trend{}
			s.begin()
			s.trend.base = s.trend.low[0]
		}
	}
}

// Over reports whether the mark To lies before the beginning: whatever is still to come,
// Report gives an EarlierMarkError.
func (g *Growth) Over() bool { return g.begun && g.over }

// An EarlierMarkError says that the mark up to which is to be counted lies before the
// beginning. What was there then and was freed since is not told.
type EarlierMarkError struct{ Mark string }

func (e *EarlierMarkError) Error() string {
	return fmt.Sprintf("the mark %q lies before the beginning: what was there then is not known", e.Mark)
}
