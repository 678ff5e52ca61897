package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// A Grown is what one call stack of a process allocated and did not give back, in one
// region of the same chips.
type Grown struct {
	PID int
	// Comm and Command are the process's name and command line, where known.
	Comm, Command string
	Stack         *event.Stack // nil where that is not known
	Region        event.Region
	Layout        event.Layout
	// Devices are the chips that each buffer is on. They must not be modified.
	Devices []int
	// Amount is what was allocated after From and is there at To: the bytes of all
	// banks of all of its chips.
	Amount
	// Replaced is what the stack had there at From and is gone: as much of Amount has
	// only taken its place.
	Replaced Amount
	// Ended is what of it ended with its device or its process.
	Ended Amount
	// Torn is what was freed after the last allocation of a process that ended, or
	// closed its device: it was there to the end of its work. It is not in Amount.
	Torn Amount
	// Allocated is how many buffers it allocated in all.
	Allocated uint64
	// OldestNs is the age of the oldest of them.
	OldestNs uint64
	// Trend is how the number of buffers went over the time of the process, and
	// Between how from mark to mark, where there are marks.
	Trend, Between Trend
	// Steps are how many bytes came or went between two marks each, one for each pair
	// of marks; nil without marks.
	Steps []int64
}

// A GrowthMark is a mark, or the beginning or the end.
type GrowthMark struct {
	Name   string // "" for the beginning or the end
	TimeNs uint64
}

// A GrowthReport is what was allocated and is left.
type GrowthReport struct {
	// From and To are what was looked at.
	From, To GrowthMark
	// Marks are those between From and To, with both: fewer than there were where
	// they are very many. Without marks there are none.
	Marks []GrowthMark
	// Allocated is how many buffers were allocated in all, without what there was before
	// the attach.
	Allocated uint64
	// StepMarks is how many marks of steps there were that were passed over.
	StepMarks int
	// EarlierMarks is how many marks there were that were passed over as they lie before
	// the beginning.
	EarlierMarks int
	// Earlier is true where the mark From lies before the beginning: nobody told what was
	// there then and was freed before the beginning, so that some of Left may only have
	// taken its place. Each Trend is of what happened from the beginning on.
	Earlier bool
	// TimeNs is the time of the latest event.
	TimeNs uint64
	// Left is what was allocated after From and is there at To, the most bytes first;
	// and what was there at From and is gone.
	Left []Grown
	// Over is what ended with its device or its process before the mark To.
	Over Amount
	// Others is what is not in Left, of stacks that were too many to be told apart:
	// those that had least of what ended with its device or its process.
	Others Amount
}

// Report tells what was allocated after From and is there at To. Its error says which
// mark there is not.
func (g *Growth) Report() (*GrowthReport, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	toEnd := g.to == 0
	if toEnd && g.placed > 0 {
		g.settle()
		g.placed++
		g.marks = append(g.marks, growthMark{number: g.placed, time: g.now})
	}
	r := &GrowthReport{TimeNs: g.now, To: GrowthMark{TimeNs: g.now}, StepMarks: g.stepMarks, EarlierMarks: g.earlierMarks, Earlier: g.earlier, Allocated: g.allocated}
	marks := g.within()
	for _, m := range marks {
		r.Marks = append(r.Marks, GrowthMark{m.name, m.time})
	}
	if len(marks) > 0 {
		r.From, r.To = r.Marks[0], r.Marks[len(r.Marks)-1]
	}
	oldest := g.oldest()
	for _, s := range g.sites {
		one := Grown{
			PID: s.process.pid, Comm: s.process.comm, Command: s.process.command,
			Stack: s.stack, Region: s.key.region, Layout: s.key.layout, Devices: slices.Clip(s.key.set.ids),
			Allocated: s.allocated,
		}
		end := growthStep{0, s.fresh, s.freshEnded, s.replaced}
		if len(marks) > 0 {
			end = stepAt(s.history, marks[len(marks)-1].number)
		}
		one.Amount = end.live
		if toEnd {
			one.Ended = end.ended
			one.Amount.add(end.ended)
			one.Torn = s.torn
		} else {
			r.Over.add(end.ended)
		}
		if len(marks) > 0 {
			one.Replaced = end.replaced
		}
		if one.Count+one.Torn.Count+one.Replaced.Count == 0 {
			continue
		}
		if since, ok := oldest[s]; ok {
			one.OldestNs = r.To.TimeNs - min(r.To.TimeNs, since)
		}
		if one.Ended.Count > 0 {
			one.OldestNs = max(one.OldestNs, s.endedAge)
		}
		if one.Torn.Count > 0 {
			one.OldestNs = max(one.OldestNs, g.now-min(g.now, s.tornNs))
		}
		one.Trend = s.trendNow(s.process)
		if len(marks) > 0 {
			one.Between, one.Steps = s.between(marks, toEnd)
		}
		r.Left = append(r.Left, one)
	}
	g.reportOthers(r, marks, toEnd)
	slices.SortStableFunc(r.Left, func(a, b Grown) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.PID, b.PID),
			cmp.Compare(stackID(a.Stack), stackID(b.Stack)), cmp.Compare(a.Region, b.Region))
	})
	return r, nil
}

// reportOthers tells what those had that were forgotten.
func (g *Growth) reportOthers(r *GrowthReport, marks []growthMark, toEnd bool) {
	if toEnd {
		r.Others = g.others.ended
		r.Others.add(g.others.torn)
	} else if len(marks) > 0 {
		end := stepAt(g.others.history, marks[len(marks)-1].number)
		r.Others = end.live
		r.Over.add(end.ended)
	}
}

// within are the marks that are looked at, from From to To; where counting begins at
// the beginning, that is the first.
func (g *Growth) within() (marks []growthMark) {
	if len(g.marks) == 0 {
		return nil
	}
	to := g.to
	if to == 0 {
		to = g.placed
	}
	if g.from == 0 {
		marks = []growthMark{{time: g.first}}
	}
	for _, m := range g.marks {
		if m.number >= g.from && m.number <= to {
			marks = append(marks, m)
		}
	}
	return marks
}

// oldest is when the oldest buffer of each site was allocated that was there at To.
func (g *Growth) oldest() map[*growthSite]uint64 {
	oldest := make(map[*growthSite]uint64)
	for _, p := range g.processes {
		for b := range p.buffers.all() {
			if !g.isFresh(*b) || g.to > 0 && int(b.placed) >= g.to {
				continue
			}
			if since, ok := oldest[b.site]; !ok || b.since < since {
				oldest[b.site] = b.since
			}
		}
	}
	for _, s := range g.sites {
		if g.to == 0 || s.goneAt != g.to {
			continue
		}
		if since, ok := oldest[s]; !ok || s.oldGone < since {
			oldest[s] = s.oldGone
		}
	}
	return oldest
}

// between is how the site grew from mark to mark. An interval counts in which the
// process allocated something.
func (s *growthSite) between(marks []growthMark, toEnd bool) (t Trend, steps []int64) {
	levels := []uint64{0}
	var before, worked growthStep
	for i, m := range marks {
		now, work := stepAt(s.history, m.number), stepAt(s.process.history, m.number)
		if toEnd {
			now.live.add(now.ended)
		}
		if i > 0 {
			steps = append(steps, now.net().bytes-before.net().bytes)
			if work.live.Count > worked.live.Count {
				levels = append(levels, uint64(max(0, now.net().count)))
			}
		}
		before, worked = now, work
	}
	return trendOf(levels), steps
}

// net is how many more there are than at the mark From.
func (s growthStep) net() (n struct{ count, bytes int64 }) {
	n.count = int64(s.live.Count) - int64(s.replaced.Count)
	n.bytes = int64(s.live.Bytes) - int64(s.replaced.Bytes)
	return n
}
