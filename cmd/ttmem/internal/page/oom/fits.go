package oom

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/lives"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A remedy is the smallest change that was found with which a failure fits and all that worked still does.
type remedy struct {
	flags []flagValue // none if no change was found
	text  string      // the same in words
	proof replay.Verdict
	// replayed is the number of changes that were tried, and more is true if these were not all.
	replayed int
	more     bool
}

// A flagValue is a change as a flag of the command.
type flagValue struct{ flag, value string }

const (
	// mostRemedies is for how many failures a remedy is searched.
	mostRemedies = 10
	// mostTogether is how many changes are tried together.
	mostTogether = 2
	// mostTried is how many programs are replayed at once for a failure, and leastTried for all of them if they make more
	// than mostWork allocations together.
	mostTried, mostWork, leastTried = 64, 2 << 20, 4
	// mostLines is how many lines of a failure are tried.
	mostLines = 12
)

// findRemedies searches remedies of the failures that the replay of the recorded program predicted.
func (p *Page) findRemedies(play func(handle func(*event.Event)) error, recorded *replay.Replay) error {
	open := slices.DeleteFunc(p.Explained(mostRemedies), func(f *memory.Failure) bool { return !p.predicted[f] })
	if len(open) == 0 {
		return nil
	}
	before := &past{Lives: lives.New(), at: make(map[uint64]lives.Moment)}
	if err := play(before.apply); err != nil {
		return err
	}
	before.End()
	all := make(map[*memory.Failure][]flagValue)
	for _, f := range open {
		all[f] = candidates(f, recorded, before.idleLines(f))
	}
	open = slices.DeleteFunc(open, func(f *memory.Failure) bool { return len(all[f]) == 0 })
	for _, f := range open {
		p.remedies[f] = new(remedy)
	}
	most := max(mostWork/(int(recorded.Allocations)+1), leastTried)
	for n := 1; n <= mostTogether && len(open) > 0; n++ {
		var whatIfs []*replay.WhatIf
		tries := make(map[*memory.Failure][]*try)
		for _, f := range open {
			sets := together(all[f], n)
			tried := min(len(sets), max(most/len(open), 1), mostTried)
			p.remedies[f].replayed += tried
			p.remedies[f].more = p.remedies[f].more || tried < len(sets)
			for _, set := range sets[:tried] {
				values := make(map[string][]string)
				for _, one := range set {
					values[one.flag] = append(values[one.flag], one.value)
				}
				if w, err := NewWhatIf(values); err == nil {
					tries[f] = append(tries[f], &try{WhatIf: w, flags: set, at: len(whatIfs)})
					whatIfs = append(whatIfs, &w.WhatIf)
				}
			}
		}
		r, failureOf := replay.New(whatIfs...), p.failureOf()
		r.Lives = before.Lives
		r.OnFailure = func(now *replay.Failure) {
			for _, t := range tries[failureOf(now)] {
				t.proof = now.With(t.at)
			}
		}
		if err := r.Play(play); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(f *memory.Failure) bool {
			var best *try
			for _, t := range tries[f] {
				if t.proof.Fits && t.Failed == 0 && t.Doubt == "" && (best == nil || t.isBetter(best)) {
					best = t
				}
			}
			if best == nil {
				return false
			}
			found := p.remedies[f]
			found.flags, found.text, found.proof = best.flags, best.Text, best.proof
			return true
		})
	}
	return nil
}

// A try is a changed program, the number of which is at.
type try struct {
	*WhatIf
	flags []flagValue
	at    int
	proof replay.Verdict
}

// welcome are the kinds of changes, the most welcome first.
var welcome = []string{"free", "set", "clear-program-cache-at", "first", "move"}

// isBetter reports whether changes are more welcome than others or, if they are of the same kinds, change fewer allocations.
func (t *try) isBetter(than *try) bool {
	kinds := func(a, b flagValue) int {
		return cmp.Compare(slices.Index(welcome, a.flag), slices.Index(welcome, b.flag))
	}
	return cmp.Or(slices.CompareFunc(t.flags, than.flags, kinds), cmp.Compare(t.Moved+t.Early, than.Moved+than.Early)) < 0
}

// together returns all combinations of n changes, those with the first ones first.
func together(all []flagValue, n int) (sets [][]flagValue) {
	if n == 0 {
		return [][]flagValue{nil}
	}
	for i, last := range all {
		for _, set := range together(all[:i], n-1) {
			sets = append(sets, append(slices.Clip(set), last))
		}
	}
	return sets
}

// past are the lives of a recording with failures, and the moments of these by time.
type past struct {
	*lives.Lives
	at map[uint64]lives.Moment
}

func (l *past) apply(e *event.Event) {
	if l.Apply(e); e.Kind == event.AllocFailed {
		l.at[e.TimeNs] = l.Now()
	}
}

// idleLines are those whose buffers are not used any more at a failure, as far as that is known: what the program would have
// used after it is not recorded. Each buffer was used as often as those of its call stack that ended before.
func (l *past) idleLines(f *memory.Failure) map[string]bool {
	at := l.at[f.TimeNs]
	complete := make(map[*event.Stack]uint32)
	for i := range l.All {
		if b := &l.All[i]; b.End < at && b.Uses > 0 {
			complete[b.Stack] = max(complete[b.Stack], b.Uses)
		}
	}
	needed, lines := make(map[string]bool), make(map[string]bool)
	for i := range l.All {
		b := &l.All[i]
		if b.Born > at || b.End < at || b.In.PID != f.PID {
			continue
		}
		uses := complete[b.Stack]
		into := lines
		if uses == 0 || b.Uses < uses || b.Idle() >= at || !b.IsKnown() {
			into = needed
		}
		for _, line := range linesOf(b.Stack) {
			into[line] = true
		}
	}
	maps.DeleteFunc(lines, func(line string, _ bool) bool { return needed[line] })
	return lines
}

// candidates are the changes to try for a failure: freeing after the last use, sizes, clearing the program cache, and another
// order and region for each line. idle are the lines that can be freed.
func candidates(f *memory.Failure, recorded *replay.Replay, idle map[string]bool) (list []flagValue) {
	e := f.Evidence
	for _, line := range linesToChange(f) {
		if idle[line] {
			list = append(list, flagValue{"free", line})
		}
	}
	set := func(name string, bytes uint64) {
		list = append(list, flagValue{"set", fmt.Sprintf("%s=%d", name, bytes)})
	}
	if s, ok := analyze.SettingFor(f); ok {
		set(s.Name, s.Bytes)
	}
	if small := recorded.Reach[event.L1Small]; e.Region == event.L1 && small < recorded.Size[event.L1Small] {
		set(replay.L1SmallSize, small)
	}
	if e.Region == event.DRAM && recorded.Reach[event.Trace] < recorded.Size[event.Trace] {
		set(replay.TraceRegionSize, recorded.TraceBytes)
	}
	if lines := linesOf(f.Stack); analyze.ProgramCache(f).Count > 0 && len(lines) > 0 {
		list = append(list, flagValue{"clear-program-cache-at", lines[0]})
	}
	if e.Region != event.DRAM && e.Region != event.L1 {
		return list
	}
	for _, line := range linesToChange(f) {
		list = append(list, flagValue{"first", line})
		if e.Region == event.L1 {
			list = append(list, flagValue{"move", line + ":" + event.DRAM.String()})
		}
	}
	return list
}

// linesToChange are the lines that allocated what was live in the region, and what failed: those with the most bytes, which
// help most often, first.
func linesToChange(f *memory.Failure) (lines []string) {
	bytes, seen := make(map[string]uint64), make(map[*event.Stack]bool)
	add := func(stack *event.Stack, perBank uint64) {
		for _, line := range linesOf(stack) {
			if _, known := bytes[line]; !known {
				lines = append(lines, line)
			}
			if !seen[stack] {
				bytes[line] += perBank
			}
		}
		seen[stack] = true
	}
	if f.BytesPerBank > 0 {
		add(f.Stack, f.BytesPerBank)
	}
	for _, blame := range slices.Concat(f.Evidence.Blockers, f.Evidence.Holders) {
		if !name.ClassOf(blame.Stack.Frames(), f.Evidence.Region).Retained() {
			add(blame.Stack, blame.BytesPerBank)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(bytes[b], bytes[a]) })
	return lines[:min(len(lines), mostLines)]
}

// linesOf are the lines of the user's own calls in a call stack, innermost first.
func linesOf(stack *event.Stack) (lines []string) {
	for _, call := range name.UserCalls(stack.Frames()) {
		if line := fmt.Sprintf("%s:%d", path.Base(call.File), call.Line); call.File != "" && call.Line > 0 && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// writeRemedy writes the smallest change that was found, if one was searched.
func (p *Page) writeRemedy(out *bufio.Writer, layout page.Layout, f *memory.Failure) {
	r := p.remedies[f]
	switch {
	case r == nil:
	case r.text != "":
		layout.Write(out, 1, page.Bold, "It fits "+page.Clean(r.text)+", and nothing that worked fails.")
		writeProof(out, layout, &r.proof)
	case r.more:
		layout.Write(out, 1, page.NoStyle, "No change was found with which all fits: "+page.Count(uint64(r.replayed), "change")+" replayed, which is the limit.")
	default:
		layout.Write(out, 1, page.NoStyle, "No change was found with which all fits: "+page.Count(uint64(r.replayed), "change")+" replayed.")
	}
}

// smallest is a size or a board with which a run without failures still works.
type smallest struct {
	name, value string
	proof       replay.Verdict
}

// isNotSearched reports whether the recording has no failure, and is too large to be replayed for the smallest sizes.
func (p *Page) isNotSearched() bool { return p.Large && p.WhatIf == nil && len(p.Failures) == 0 }

// findSmallest searches the smallest sizes and the smallest board.
func (p *Page) findSmallest(play func(handle func(*event.Event)) error, recorded *replay.Replay) error {
	if recorded.Size[event.L1] == 0 {
		return nil // no device was opened
	}
	list := []smallest{
		{name: replay.L1SmallSize, value: fmt.Sprint(recorded.Reach[event.L1Small])},
		{name: replay.TraceRegionSize, value: fmt.Sprint(recorded.TraceBytes)},
	}
	whatIfs := []*replay.WhatIf{
		{Changes: []replay.Change{replay.Set(replay.L1SmallSize, recorded.Reach[event.L1Small], 0)}},
		{Changes: []replay.Change{replay.Set(replay.TraceRegionSize, recorded.TraceBytes, 0)}},
	}
	for i := range replay.Boards {
		list = append(list, smallest{name: "board", value: replay.Boards[i].Name})
		whatIfs = append(whatIfs, &replay.WhatIf{Changes: []replay.Change{replay.On(&replay.Boards[i])}})
	}
	r := replay.New(whatIfs...)
	if err := r.Play(play); err != nil {
		return err
	}
	for i := range list {
		list[i].proof = wholeOf(r, i, whatIfs[i])
		if n := whatIfs[i].Sharded; n > 0 && list[i].proof.Doubt == "" {
			list[i].proof.Doubt = "whether it has the cores of " + page.Count(n, "sharded buffer") + " is not known"
		}
	}
	board := slices.IndexFunc(list[2:], func(s smallest) bool { return s.proof.Doubt == "" })
	p.smallest = append(list[:2], list[2+max(board, 0)])
	return nil
}

// writeSmallest writes the smallest sizes and board.
func (p *Page) writeSmallest(out *bufio.Writer, layout page.Layout) {
	if p.isNotSearched() {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.Dim, "The smallest sizes were not searched: the recording is large. `ttmem oom FILE --set l1_small_size=0` replays it with one.")
	}
	if len(p.smallest) > 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.Dim, "The smallest with which this run would still have worked:")
	}
	for _, s := range p.smallest {
		text := s.name + "=" + s.value + ": proved by replay"
		if s.proof.Doubt != "" {
			text = s.name + "=" + s.value + ": not proved: " + s.proof.Doubt
		}
		layout.Write(out, 1, page.NoStyle, text)
	}
}

// remedyFound is the smallest change that was found with which a failure fits and all that worked still does: in words, and as
// flags of the command. They are left out if none was found. Replayed is the number of changes that were tried, and complete
// false if there were more.
//
//schema:remedy
type remedyFound struct {
	Changes  string   `json:"changes,omitempty"`
	Flags    []string `json:"flags,omitempty"`
	Proof    *proof   `json:"proof,omitempty"`
	Replayed int      `json:"replayed"`
	Complete bool     `json:"complete"`
}

func (p *Page) remedyFound(f *memory.Failure) *remedyFound {
	r := p.remedies[f]
	if r == nil {
		return nil
	}
	found := &remedyFound{Changes: r.text, Replayed: r.replayed, Complete: !r.more}
	for _, one := range r.flags {
		found.Flags, found.Proof = append(found.Flags, "--"+one.flag, one.value), proofOf(&r.proof)
	}
	return found
}

// smallestFound is a size or a board with which a run without failures would still have worked.
//
//schema:smallest
type smallestFound struct {
	Name  string `json:"name" schema:"l1_small_size|trace_region_size|board"`
	Value string `json:"value"`
	Proof *proof `json:"proof"`
}

func (p *Page) smallestFound() (list []smallestFound) {
	for _, s := range p.smallest {
		list = append(list, smallestFound{s.name, s.value, proofOf(&s.proof)})
	}
	return list
}
