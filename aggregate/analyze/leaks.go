package analyze

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// The thresholds of a leak. docs/leaks.md explains them.
const (
	// LeastSurvivors is how many buffers of a call site have to survive: two for each
	// window.
	LeastSurvivors = 2 * memory.BirthWindows
	// leastWindows is in how many windows they have to be allocated, the last two of them
	// among these.
	leastWindows = 6
	// longestPause is how many times the longest way from one allocation to the next the
	// way from the last allocation to the end may be.
	longestPause = 4
	// fewIntervals is how many intervals between marks are too few for a trend.
	fewIntervals = 4
)

// A Class is what the survivors of a call site are.
type Class string

// The classes.
const (
	// Leaked: the site allocates again and again up to the end, and does not free.
	Leaked Class = "leaked"
	// Stable: the site is no leak.
	Stable Class = "stable"
	// Retained: the runtime needs them, for its program cache for example.
	Retained Class = "retained"
	// Suppressed: a rule of the user accepts them.
	Suppressed Class = "suppressed"
)

// A Verdict is the class of what survives of one call site.
type Verdict struct {
	memory.Survivors
	Class Class
	// By is what of the runtime retains it; nil for other classes.
	By *name.Retained
	// Intervals is how many there are: windows of the run or, between marks, those in which
	// the process worked. Rises is in how many of them survivors were allocated, and
	// LastRise is the last of these, from 1.
	Intervals, Rises, LastRise int
	// Replaced is true where they only took the place of what was live at the first mark.
	Replaced bool
	// Births are the survivors by the intervals between marks.
	Births []memory.Amount
}

// LeakOptions say what is judged. The zero value judges the whole run.
type LeakOptions struct {
	// Times are those of the marks that the State was told to follow from and to, and of
	// the ones between them.
	Times []uint64
	// ByRun judges by the whole run what survived between marks: where it is not known
	// what was freed between them.
	ByRun bool
	// Suppressions accept some call sites; nil: none.
	Suppressions *name.Suppressions
}

// LeakReport is what survived.
type LeakReport struct {
	// Sites are the verdicts, the most bytes first.
	Sites []Verdict
	// Others is what survived of call sites that are not told apart, all of processes that
	// ended.
	Others memory.Amount
	// EndedBefore is what ended with its device or process before the second mark.
	EndedBefore memory.Amount
}

// Leaks judges what survived: at the last allocation of each process, or between marks.
func Leaks(s *aggregate.State, o LeakOptions) LeakReport {
	var r LeakReport
	survivors, others := s.Survivors()
	if o.Times == nil {
		r.Others = others
		for i := range survivors {
			r.Sites = append(r.Sites, judgeRun(&survivors[i]))
		}
	} else {
		r.between(s, o, survivors)
	}
	r.Sites = slices.DeleteFunc(r.Sites, func(v Verdict) bool { return v.Count == 0 }) // it was freed
	for i := range r.Sites {
		v := &r.Sites[i]
		frames := v.Stack.Frames()
		if o.Suppressions.Match(frames) {
			v.Class = Suppressed
		} else if v.By = name.RuntimeRetained(frames); v.By != nil {
			v.Class = Retained
		}
	}
	slices.SortStableFunc(r.Sites, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.PID, b.PID),
			cmp.Compare(b.AgeNs, a.AgeNs), cmp.Compare(a.Region, b.Region))
	})
	return r
}

// judgeRun judges a call site by its run. It leaks where it has survivors of most windows
// and the last ones, is still allocating, does not give back its oldest, and other work goes
// on meanwhile.
func judgeRun(s *memory.Survivors) Verdict {
	run := &s.Run
	v := Verdict{Survivors: *s, Class: Stable}
	for _, births := range run.Births {
		v.rise(births > 0)
	}
	born := run.Total()
	switch {
	case born < LeastSurvivors, v.Rises < leastWindows, v.LastRise < memory.BirthWindows-1:
	case run.ProcessLast-run.Last > longestPause*run.Gap: // it has stopped
	case isRing(run):
	case 2*run.Replaceable >= born: // it may have replaced what was there before the attach
	case !isWork(s):
	default:
		v.Class = Leaked
		v.Amount.Add(v.FreedAtTeardown)
	}
	return v
}

// isRing reports whether a call site frees its oldest buffers up to the end, as a ring of
// results does, or a state that is replaced.
func isRing(run *memory.Run) bool {
	length := run.ProcessLast - run.First
	return run.FreedAt > 0 && 2*run.Outlived < run.Total() && 4*(run.ProcessLast-min(run.ProcessLast, run.FreedAt)) <= length
}

// isWork reports whether other buffers were freed meanwhile. Where they are not weights may
// be loading, or results be collected in one place: only results of operations that are
// allocated from the beginning of the run to its end are work then.
func isWork(s *memory.Survivors) bool {
	run := &s.Run
	if 2*run.FreedMeanwhile >= run.Total() {
		return true
	}
	lead, length := run.First-min(run.First, run.ProcessFirst), run.ProcessLast-run.ProcessFirst
	return name.ResultOfOperation(s.Stack.Frames()) && 4*lead <= length
}

// between judges what was allocated between marks, or since one of them.
func (r *LeakReport) between(s *aggregate.State, o LeakOptions, survivors []memory.Survivors) {
	born, over := s.Between(o.Times)
	r.EndedBefore = over
	runs := make(map[memory.SiteKey]Verdict)
	if o.ByRun {
		for i := range survivors {
			runs[survivors[i].Key()] = judgeRun(&survivors[i])
		}
	}
	replaced := make(map[line]memory.Amount)
	for i := range born {
		key := lineOf(&born[i].Survivors)
		sum := replaced[key]
		sum.Add(born[i].Replaced)
		replaced[key] = sum
	}
	for i := range born {
		one := &born[i]
		if o.ByRun {
			v := runs[one.Key()]
			v.Survivors, v.Births = one.Survivors, one.Births
			if v.Class == Leaked {
				v.addTeardown(one)
			} else {
				v.Class = Stable
			}
			r.Sites = append(r.Sites, v)
			continue
		}
		r.Sites = append(r.Sites, judgeBetween(one, o.Times, replaced))
	}
}

// A line is a line of a process: what survives there may replace what it had allocated
// there before, whoever called it.
type line struct {
	pid    int
	region event.Region
	name   name.Name
}

func lineOf(s *memory.Survivors) line {
	return line{s.PID, s.Region, name.Of(s.Stack.Frames())}
}

// judgeBetween judges a call site by the intervals between marks in which its process
// worked. Of replaced it takes what the survivors replace.
func judgeBetween(b *memory.SurvivorsBetween, times []uint64, replaced map[line]memory.Amount) Verdict {
	v := Verdict{Survivors: b.Survivors, Class: Stable, Births: b.Births}
	with := v // what was freed after the last allocation
	for i, births := range b.Births {
		if times[i+1] < b.WorkedFromNs || times[i] > b.WorkedToNs {
			continue
		}
		v.rise(births.Count > 0)
		with.rise(births.Count+b.TeardownBirths[i].Count > 0)
	}
	if b.FreedAtTeardown.Count > 0 && with.Intervals >= fewIntervals && with.grows() {
		v = with
		v.addTeardown(b)
	}
	key := lineOf(&b.Survivors)
	gone := replaced[key]
	taken := memory.Amount{Count: min(gone.Count, v.Count), Bytes: min(gone.Bytes, v.Bytes)}
	gone.Sub(taken)
	replaced[key] = gone
	if taken.Count == v.Count {
		v.Replaced = true
		return v
	}
	v.Sub(taken)
	if v.grows() {
		v.Class = Leaked
	}
	return v
}

// rise notes whether survivors were allocated in the next interval.
func (v *Verdict) rise(rises bool) {
	v.Intervals++
	if rises {
		v.Rises, v.LastRise = v.Rises+1, v.Intervals
	}
}

// grows reports whether survivors were allocated in the last interval and, where there are
// enough, in three of four.
func (v *Verdict) grows() bool {
	return v.LastRise == v.Intervals && (v.Intervals < fewIntervals || 4*v.Rises >= 3*v.Intervals)
}

// addTeardown counts what was freed after the last allocation as leaked.
func (v *Verdict) addTeardown(b *memory.SurvivorsBetween) {
	v.Amount.Add(b.FreedAtTeardown)
	v.Births = slices.Clone(b.Births)
	for i := range v.Births {
		v.Births[i].Add(b.TeardownBirths[i])
	}
}
