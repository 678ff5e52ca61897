// Package advise finds the buffers of a recording that are held after their last use at the peak of a region, and proves by
// replay what the peak is if they are freed earlier.
// It is not part of ttmem's Go library: it changes without notice.
package advise

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/aggregate/lives"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/tracer/event"
)

// Regions are those that are judged.
var Regions = []event.Region{event.DRAM, event.L1}

// A Reason is why a buffer at the peak that is not used after it is not judged.
type Reason int

// The reasons.
const (
	// Survives is a buffer that is live to the end of its device, as weights are, and results.
	Survives Reason = iota
	// Unfilled is one that is live to the end of its device, and never used: as the pages of a cache that are not needed yet.
	Unfilled
	// Periodic is one that is used again and again, as weights and caches are: its use may continue.
	Periodic
	// Constructed is one of an object's constructor, as weights are.
	Constructed
	// Loaded is one that the host writes, as weights are, and not again and again, as it does inputs.
	Loaded
	// Before is one from before tracing began.
	Before
	// Unknown is one after whose last known use there are runs, or lost events, of which it is not known what they used.
	Unknown
	// Retained is one that tt-metal makes itself.
	Retained
	// NumReasons is the number of reasons.
	NumReasons
)

const (
	// idleRuns is the least number of runs of programs between two uses for which a buffer is idle.
	idleRuns = 32
	// unusedRuns is the least number of runs of programs for which a buffer is not used until it counts as never used, or
	// as allocated long before its first use.
	unusedRuns = 8
	// idlePeriods is how many times as long as before a buffer is not used until its use does not continue.
	idlePeriods = 2
	// best is how many lines are freed together.
	best = 3
	// mostLines is how many lines of each region are replayed alone; the most bytes first.
	mostLines = 10
	// mostWork is how many allocations are replayed, unless there are fewer programs than the least.
	mostWork, leastPrograms = 2 << 20, best + 1
)

// An Outcome is the peak of a program that is replayed, in each bank. Doubt is why it is not proved; "" if it is.
type Outcome struct {
	PerBank uint64
	Doubt   string
}

// A Line is the buffers of a line and an operation that are live at the peak, and have the same line of the last use.
type Line struct {
	Stack *event.Stack
	Count uint64
	// PerBank is their bytes in each bank.
	PerBank uint64
	// Unused is true if they are never used, but by the operation that allocates them.
	Unused bool
	// Runs is the number of runs of programs between their last use and the peak, the most of all buffers; if they are
	// not used yet, between their allocation and the peak, and if they are idle, between the uses before and after it.
	Runs uint32
	// LastUse is the last use, before the peak, of the buffer with the most Runs, and NextUse the one after it; nil
	// without a call stack.
	LastUse, NextUse *event.Stack
	// Owner is who held that buffer; empty if that is not known.
	Owner memory.Owner
	// Alone is the peak if the buffers of this line are freed after their last use.
	Alone Outcome
}

// A Peak is one of a region, in the allocator with the highest.
type Peak struct {
	*lives.Space
	// Lines hold buffers at the peak that are not used any more, the most bytes first. Early lines have buffers that are
	// not used yet, and Idle lines those that are used long before and long after it.
	Lines, Early, Idle []*Line
	// Held is what all Lines hold, in each bank, and NotJudged by reason what may be needed.
	Held      memory.Amount
	NotJudged [NumReasons]memory.Amount
	// All is the peak if all buffers that are judged are freed after their last use, and Best if those of the first line
	// are, of the first two, and of the first three.
	All  Outcome
	Best []Outcome
}

// Gain returns how many bytes lower in each bank the peak is with an outcome.
func (p *Peak) Gain(o Outcome) uint64 { return p.Peak - min(p.Peak, o.PerBank) }

// BestLine is the line without which the peak is lowest, as is proved; nil if it is as high without each.
func (p *Peak) BestLine() (best *Line) {
	for _, l := range p.Lines {
		if l.Alone.Doubt == "" && p.Gain(l.Alone) > 0 && (best == nil || l.Alone.PerBank < best.Alone.PerBank) {
			best = l
		}
	}
	return best
}

// Advice is what a recording gives.
type Advice struct {
	Peaks []*Peak
	*lives.Lives

	names    map[*event.Stack]string
	lines    map[lineKey]*Line
	classes  name.Classes
	siblings map[*event.Stack]siblings
}

// A lineKey is what the buffers of a Line have in common: the line with its operation, in a region, those of the uses before
// and after the peak, and whether there are any.
type lineKey struct {
	region             event.Region
	name, before, next string
	unused             bool
}

// Of returns the advice of a recording, all of whose events play passes to a function.
func Of(play func(handle func(*event.Event)) error) (*Advice, error) {
	a := &Advice{Lives: lives.New(), names: make(map[*event.Stack]string), lines: make(map[lineKey]*Line), siblings: make(map[*event.Stack]siblings)}
	if err := play(a.Apply); err != nil {
		return nil, err
	}
	a.End()
	a.findSiblings()
	for _, region := range Regions {
		if s := a.Fullest(region); s != nil {
			a.Peaks = append(a.Peaks, a.at(s))
		}
	}
	return a, a.prove(play)
}

// key is the Line of a buffer with the uses before and after the peak.
func (a *Advice) key(b *lives.Life, before, after *event.Stack) lineKey {
	return lineKey{b.In.Region, a.name(b.Stack), a.name(before), a.name(after), b.Uses == 0}
}

// lastKey is the Line of a buffer that is not used any more.
func (a *Advice) lastKey(b *lives.Life) lineKey { return a.key(b, lastUse(b), nil) }

// lastUse is the stack of the last use; nil without one: what the operation that allocates it does is none.
func lastUse(b *lives.Life) *event.Stack {
	if b.Uses == 0 {
		return nil
	}
	return b.Last().Stack
}

// name tells lines apart.
func (a *Advice) name(s *event.Stack) string {
	text, known := a.names[s]
	if s != nil && !known {
		n := name.Of(s.Frames())
		text = n.String() + n.Call.File
		a.names[s] = text
	}
	return text
}

// reason says why a buffer is not judged.
func (a *Advice) reason(i int) (reason Reason, is bool) {
	b := &a.All[i]
	owner, siblings := a.Owner(i), a.siblings[b.Stack]
	switch {
	case a.classes.Of(b.Stack, b.In.Region, owner.Path, owner.Tensor).Mention() != "":
		return Retained, true
	case b.IsBefore():
		return Before, true
	case !b.IsKnown():
		return Unknown, true
	case b.Unfreed && b.Last().At > 0:
		return Survives, true
	case b.Unfreed:
		return Unfilled, true
	case b.Uses < siblings.uses && b.End > siblings.born, b.Period > 0 && b.EndRun-b.Last().Run <= idlePeriods*b.Period:
		return Periodic, true
	case b.Uses > 0 && siblings.constructed:
		return Constructed, true
	case b.Loaded && b.End > siblings.born:
		return Loaded, true
	}
	return 0, false
}

// siblings are the buffers of a call stack: the most uses of one, and when the last one is allocated. Those that are live
// then may be used as often as the others, when the program goes on. constructed is true if a constructor allocates them, and
// result if they are results of an operation.
type siblings struct {
	uses        uint32
	born        lives.Moment
	constructed bool
	result      bool
}

func (a *Advice) findSiblings() {
	for i := range a.All {
		b := &a.All[i]
		of, known := a.siblings[b.Stack]
		if !known {
			of.constructed, of.result = isConstructed(b.Stack), name.ResultOfOperation(b.Stack.Frames())
		}
		of.uses, of.born = max(of.uses, b.Uses), b.Born
		a.siblings[b.Stack] = of
	}
}

// isConstructed reports whether a constructor allocates.
func isConstructed(s *event.Stack) bool {
	return slices.ContainsFunc(name.UserCalls(s.Frames()), func(c name.Call) bool { return strings.HasSuffix(c.Function, "__init__") })
}

// isUnused reports whether a buffer is never used, for long enough.
func isUnused(b *lives.Life) bool { return b.Uses == 0 && b.EndRun-b.BornRun >= unusedRuns }

// isLate reports whether a buffer is to be freed after its last use.
func (a *Advice) isLate(i int) bool {
	b := &a.All[i]
	if b.Uses == 0 && !isUnused(b) || !slices.Contains(Regions, b.In.Region) {
		return false
	}
	_, not := a.reason(i)
	return !not
}

// at returns the buffers of a space at its peak.
func (a *Advice) at(s *lives.Space) *Peak {
	p := &Peak{Space: s}
	early, idle := make(map[lineKey]*Line), make(map[lineKey]*Line)
	for i := range a.All {
		b := &a.All[i]
		if b.In != s || b.Born > s.PeakAt || b.End <= s.PeakAt || b.Uses == 0 && !isUnused(b) {
			continue
		}
		amount := memory.Amount{Count: 1, Bytes: b.PerBank}
		reason, not := a.reason(i)
		switch {
		case b.Uses > 0 && b.First().At > s.PeakAt:
			if runs := s.PeakRun - b.BornRun; !not && runs >= unusedRuns && !a.siblings[b.Stack].result {
				p.Early = a.add(p.Early, early, i, runs, nil, nil)
			}
		case b.Idle() >= s.PeakAt: // in use
			before, after := b.Rest()
			if runs := after.Run - before.Run; !not && b.Period == 0 && before.At < s.PeakAt && s.PeakAt < after.At && runs >= idleRuns {
				p.Idle = a.add(p.Idle, idle, i, runs, before.Stack, after.Stack)
			}
		case not:
			p.NotJudged[reason].Add(amount)
		default:
			p.Held.Add(amount)
			p.Lines = a.add(p.Lines, a.lines, i, s.PeakRun-max(b.Last().Run, b.BornRun), lastUse(b), nil)
		}
	}
	for _, list := range [][]*Line{p.Lines, p.Early, p.Idle} {
		slices.SortStableFunc(list, func(a, b *Line) int { return cmp.Compare(b.PerBank, a.PerBank) })
	}
	return p
}

// add adds a buffer to its Line, with the uses before and after the peak.
func (a *Advice) add(list []*Line, lines map[lineKey]*Line, i int, runs uint32, before, after *event.Stack) []*Line {
	b := &a.All[i]
	key := a.key(b, before, after)
	l := lines[key]
	if l == nil {
		l = &Line{Stack: b.Stack, Unused: key.unused}
		lines[key] = l
		list = append(list, l)
	}
	if l.Count++; l.Count == 1 || runs > l.Runs {
		l.Runs, l.LastUse, l.NextUse, l.Owner = runs, before, after, a.Owner(i)
	}
	l.PerBank += b.PerBank
	return list
}

// prove replays the program without the buffers of the lines. A program frees lines of all regions: what is freed in one does
// not change the addresses in another.
func (a *Advice) prove(play func(handle func(*event.Event)) error) error {
	lines, place := 0, make(map[*Line]int)
	for _, p := range a.Peaks {
		lines = max(lines, len(p.Lines))
		for n, l := range p.Lines {
			place[l] = n
		}
	}
	if lines == 0 {
		return nil
	}
	const never, elsewhere = -1, 1 << 30
	freed := make([]int32, len(a.All)) // the places of the lines of late buffers
	for i := range a.All {
		if freed[i] = never; a.isLate(i) {
			freed[i] = elsewhere
			if l := a.lines[a.lastKey(&a.All[i])]; l != nil {
				freed[i] = int32(place[l])
			}
		}
	}
	var programs []*replay.WhatIf
	add := func(from, to int32) { // frees the lines from one place to before another
		programs = append(programs, &replay.WhatIf{Changes: []replay.Change{replay.Free(func(i int, _ *lives.Life) bool {
			return from <= freed[i] && freed[i] < to
		})}})
	}
	add(0, elsewhere+1)
	together := min(best, lines)
	for n := range together {
		add(0, int32(n+1))
	}
	// the first line alone is the first of the best
	alone := min(lines, mostLines, max(mostWork/(len(a.All)+1), leastPrograms)-best)
	for n := 1; n < alone; n++ {
		add(int32(n), int32(n+1))
	}
	r := replay.New(programs...)
	r.Lives = a.Lives
	if err := r.Play(play); err != nil {
		return err
	}
	for _, p := range a.Peaks {
		outcome := func(i int) Outcome {
			o := Outcome{PerBank: programs[i].Most[p.Region]}
			switch v := r.Whole(i); {
			case r.Most[p.Region] != p.Peak:
				o.Doubt = "the replay has another peak"
			case v.Doubt != "":
				o.Doubt = v.Doubt
			case !v.Fits:
				o.Doubt = "then an allocation that worked fails"
			}
			return o
		}
		p.All = outcome(0)
		for n := range min(best, len(p.Lines)) {
			p.Best = append(p.Best, outcome(n+1))
		}
		for n, l := range p.Lines {
			switch {
			case n == 0:
				l.Alone = p.Best[0]
			case n < alone:
				l.Alone = outcome(together + n)
			default:
				l.Alone = Outcome{PerBank: p.Peak, Doubt: "only the lines with the most bytes are replayed alone"}
			}
		}
	}
	return nil
}
