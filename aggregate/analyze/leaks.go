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
	// LeastSurvivors is the least number of survivors of a leak: two for each window.
	LeastSurvivors = 2 * memory.BirthWindows
	// leastWindows is the least number of windows in which survivors were allocated. They include
	// one of the last two windows.
	leastWindows = 6
	// longestPause limits the distance from the last allocation to the end, as a multiple of the
	// longest distance between two allocations.
	longestPause = 4
	// fewIntervals is the least number of intervals between marks that show a trend.
	fewIntervals = 4
	// leastGrowth is the least number of survivors that show growth: two have one distance.
	leastGrowth = 3
)

// A Class is the result of judging the survivors of a call site.
type Class string

// The classes.
const (
	// Leaked: the site allocates again and again up to the end, and does not free.
	Leaked Class = "leaked"
	// Undecided: the site grows, as far as so few survivors show.
	Undecided Class = "undecided"
	// Stable: the site does not leak.
	Stable Class = "stable"
	// Retained: the runtime needs them, for its program cache for example.
	Retained Class = "retained"
	// Suppressed: a rule of the user accepts them.
	Suppressed Class = "suppressed"
)

// A Verdict is the class of the survivors of one call site.
type Verdict struct {
	memory.Survivors
	Class Class
	// By is the class of buffers that the runtime retains; nil for others.
	By *name.Class
	// Grows is true if the site allocates up to the end: for leaks, what is undecided, and what else
	// would be one of these.
	Grows bool
	// Intervals is the number of windows of the run or, between marks, of the intervals in
	// which the process worked. Rises is the number of them in which survivors were allocated,
	// and LastRise the last of these, counted from 1.
	Intervals, Rises, LastRise int
	// Replaced is true if the survivors only replaced buffers that were live at the first mark.
	Replaced bool
	// Births are the survivors by the intervals between marks.
	Births []memory.Amount
	// Containers are what holds the survivors of a leak, or of what is undecided, as far as it is known, the most bytes first.
	Containers []Container
}

// Add adds the survivors of another call site.
func (v *Verdict) Add(other *Verdict) {
	v.Amount.Add(other.Amount)
	v.FreedAtTeardown.Add(other.FreedAtTeardown)
	v.Allocated += other.Allocated
	v.AgeNs, v.Rises, v.LastRise = max(v.AgeNs, other.AgeNs), max(v.Rises, other.Rises), max(v.LastRise, other.LastRise)
	v.Intervals = max(v.Intervals, other.Intervals)
	v.Containers = slices.Clone(v.Containers)
	for _, c := range other.Containers {
		i := slices.IndexFunc(v.Containers, func(known Container) bool { return known.Owner == c.Owner })
		if i < 0 {
			v.Containers = append(v.Containers, c)
			continue
		}
		v.Containers[i].Amount.Add(c.Amount)
	}
	slices.SortStableFunc(v.Containers, func(a, b Container) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

// LeakOptions select what Leaks judges. The zero value judges the whole run.
type LeakOptions struct {
	// Times are those of the marks from State.FollowFrom to State.FollowTo.
	Times []uint64
	// Born are the calls in which the survivors were allocated, one for each interval between these; nil: at
	// any time.
	Born memory.Intervals
	// WatchedFromNs is when running processes began to be watched, and State.FreshSince; 0 if they were
	// not. Their growth since then counts, however small.
	WatchedFromNs uint64
	// Suppressions accept some call sites; nil: none.
	Suppressions *name.Suppressions
}

// A LeakReport has the survivors of all call sites.
type LeakReport struct {
	// Sites are the verdicts, the most bytes first.
	Sites []Verdict
	// Others counts the survivors of all other call sites, of processes that ended.
	Others memory.Amount
	// EndedBefore counts buffers that ended with their device or process before the second
	// mark.
	EndedBefore memory.Amount
}

// Leaks judges the survivors: those at the last allocation of each process, or between marks.
func Leaks(s *aggregate.State, o LeakOptions) LeakReport {
	var r LeakReport
	if o.Times == nil {
		survivors, others := s.Survivors()
		r.Sites, r.Others = judgeRuns(survivors, o.WatchedFromNs), others
	} else {
		r.between(s, o.Times, o.Born)
	}
	r.Sites = classified(r.Sites, o.Suppressions)
	r.addContainers(s, o.Times)
	return r
}

// LeaksOf returns the call sites that leak, among the survivors of a whole run; the most bytes first.
// Unlike Leaks it needs no State, which may change meanwhile.
func LeaksOf(survivors []memory.Survivors) []Verdict {
	leaks := slices.DeleteFunc(judgeRuns(survivors, 0), isNoLeak) // few have to be classified then
	return slices.DeleteFunc(classified(leaks, nil), isNoLeak)
}

func isNoLeak(v Verdict) bool { return v.Class != Leaked }

// classified returns the sites that have survivors, with those that are accepted or retained in
// their own classes, the most bytes first.
func classified(sites []Verdict, accepted *name.Suppressions) []Verdict {
	sites = slices.DeleteFunc(sites, func(v Verdict) bool { return v.Count == 0 }) // it was freed
	for i := range sites {
		v := &sites[i]
		v.Grows = v.isNamed()
		frames := v.Stack.Frames()
		if accepted.Match(frames) {
			v.Class = Suppressed
		} else if c := name.ClassOf(frames, v.Region); c.Retained() {
			v.Class, v.By = Retained, c
		}
	}
	slices.SortStableFunc(sites, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.PID, b.PID),
			cmp.Compare(b.AgeNs, a.AgeNs), cmp.Compare(a.Region, b.Region))
	})
	return sites
}

func judgeRuns(survivors []memory.Survivors, watchedFrom uint64) (sites []Verdict) {
	for i := range survivors {
		sites = append(sites, judgeRun(&survivors[i], watchedFrom))
	}
	return sites
}

// judgeRun judges a call site by its run. It leaks if it has survivors in most windows and in
// the last ones, still allocates, does not free its oldest buffers, and other work goes on
// meanwhile. With few survivors the same conditions, as far as they apply, leave it undecided.
func judgeRun(s *memory.Survivors, watchedFrom uint64) Verdict {
	run, born := &s.Run, s.Run.Total()
	v := Verdict{Survivors: *s, Class: Stable}
	for _, births := range run.Births {
		v.rise(births > 0)
	}
	switch {
	case born < LeastSurvivors:
		if v.growsALittle() {
			v.Class = Undecided
		}
	case v.Rises < leastWindows, v.LastRise < memory.BirthWindows-1:
	case hasStopped(run), isRing(run):
	case 2*run.Replaceable >= born: // it may have replaced buffers from before the attach
	case !isWork(s):
	default:
		v.Class = Leaked
	}
	if v.Class == Stable && watchedFrom > 0 && (s.AttachedLate || s.WorkedFromNs < watchedFrom) && grewInWatch(s) {
		v.Class = Undecided
	}
	if v.Class != Stable {
		v.Amount.Add(v.FreedAtTeardown)
	}
	return v
}

// growsALittle reports whether a call site with few survivors grows to the end, as far as they show.
func (v *Verdict) growsALittle() bool {
	run, born := &v.Run, v.Run.Total()
	return born >= leastGrowth && born > run.Replaceable && uint64(v.Rises)*LeastSurvivors >= leastWindows*born && !hasStopped(run) && !freesOldest(run) &&
		(2*run.FreedMeanwhile >= born || name.ResultOfOperation(v.Stack.Frames()))
}

// grewInWatch reports whether a call site kept a few buffers that it allocated while it was watched,
// more than were freed of those from before the attach. One or two of them do not show whether it has
// stopped.
func grewInWatch(s *memory.Survivors) bool {
	n := s.Fresh.Count
	return n > s.Run.Replaceable && n < LeastSurvivors && !freesOldest(&s.Run) && (n < leastGrowth || !hasStopped(&s.Run))
}

// hasStopped reports whether a call site no longer allocates.
func hasStopped(run *memory.Run) bool { return run.ProcessLast-run.Last > longestPause*run.Gap }

// isRing reports whether a call site frees its oldest buffers up to the end, as for a ring of
// results, or for a state that is replaced.
func isRing(run *memory.Run) bool {
	length := run.ProcessLast - run.First
	return freesOldest(run) && 4*(run.ProcessLast-min(run.ProcessLast, run.FreedAt)) <= length
}

// freesOldest reports whether most survivors are younger than all buffers that the call site freed.
func freesOldest(run *memory.Run) bool { return run.FreedAt > 0 && 2*run.Outlived < run.Total() }

// isWork reports whether other buffers were freed meanwhile. If none were, weights may be loading,
// or one call site may collect results. Then only results of operations count as work, and only
// if they are allocated from the beginning of the run to its end.
func isWork(s *memory.Survivors) bool {
	run := &s.Run
	if 2*run.FreedMeanwhile >= run.Total() {
		return true
	}
	lead, length := run.First-min(run.First, run.ProcessFirst), run.ProcessLast-run.ProcessFirst
	return name.ResultOfOperation(s.Stack.Frames()) && 4*lead <= length
}

// between judges the survivors of allocations between marks, or since one of them.
func (r *LeakReport) between(s *aggregate.State, times []uint64, in memory.Intervals) {
	few := fewIntervals
	if in != nil {
		few = 2 // what the last call alone left is what it returned
	}
	born, over := s.Between(times, in)
	r.EndedBefore = over
	replaced := make(map[line]memory.Amount)
	for i := range born {
		key := lineOf(&born[i].Survivors)
		sum := replaced[key]
		sum.Add(born[i].Replaced)
		replaced[key] = sum
	}
	for i := range born {
		r.Sites = append(r.Sites, judgeBetween(&born[i], times, few, replaced))
	}
}

// A line is a line of code in a process. Its survivors may replace its earlier buffers, even if the
// callers differ.
type line struct {
	pid    int
	region event.Region
	name   name.Name
}

func lineOf(s *memory.Survivors) line {
	return line{s.PID, s.Region, name.Of(s.Stack.Frames())}
}

// judgeBetween judges a call site by the intervals between marks in which its process worked. few is the least
// number of intervals that show a trend. It subtracts the buffers that the survivors replace from replaced.
func judgeBetween(b *memory.SurvivorsBetween, times []uint64, few int, replaced map[line]memory.Amount) Verdict {
	v := Verdict{Survivors: b.Survivors, Class: Stable, Births: b.Births}
	with := v // including the buffers freed after the last allocation
	for i, births := range b.Births {
		if times[i+1] < b.WorkedFromNs || times[i] > b.WorkedToNs {
			continue
		}
		v.rise(births.Count > 0)
		with.rise(births.Count+b.TeardownBirths[i].Count > 0)
	}
	if b.FreedAtTeardown.Count > 0 && with.Intervals >= fewIntervals && with.grows(few) {
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
	if v.grows(few) {
		v.Class = Leaked
	} else if v.LastRise == v.Intervals && v.Rises > 1 && v.Count < LeastSurvivors {
		v.Class = Undecided
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

// grows reports whether survivors were allocated in the last interval and, where there are at least few, in
// three of four.
func (v *Verdict) grows(few int) bool {
	return v.LastRise == v.Intervals && (v.Intervals < few || 4*v.Rises >= 3*v.Intervals)
}

// addTeardown counts the buffers that were freed after the last allocation as leaked.
func (v *Verdict) addTeardown(b *memory.SurvivorsBetween) {
	v.Amount.Add(b.FreedAtTeardown)
	v.Births = slices.Clone(b.Births)
	for i := range v.Births {
		v.Births[i].Add(b.TeardownBirths[i])
	}
}
