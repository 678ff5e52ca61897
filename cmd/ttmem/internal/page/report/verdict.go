package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/oom"
	"ttmem/tracer/event"
)

// A failing is a failure and the calls that led to it, innermost first.
type failing struct {
	*memory.Failure
	calls []string
}

// failings returns failures, the newest first. Failures with the same cause
// at the same place are one group: a program may try again.
func (r *report) failings(of []memory.Failure) [][]failing {
	var list []failing
	for i := range of {
		f := &of[len(of)-1-i]
		list = append(list, failing{f, page.CallTexts(name.UserCalls(f.Stack.Frames()))})
	}
	return page.Alike(list, func(a, b failing) bool {
		return a.PID == b.PID && a.Region == b.Region && analyze.CauseOf(a.Failure) == analyze.CauseOf(b.Failure) &&
			slices.Equal(a.calls, b.calls) && (len(a.calls) > 0 || a.Message == b.Message)
	})
}

// failures writes how many allocations failed, and where and why the newest did; then the same of
// operations that failed for a reason other than memory.
func (r *report) failures() {
	r.failed(r.snap.Failures, r.snap.FailureCount, "allocation", " failed", oom.Brief)
	r.failed(r.snap.OperationFailures, r.snap.OperationFailureCount, "operation", " failed for a reason other than memory",
		func(f *memory.Failure) string { return page.FirstLine(f.Message) })
}

func (r *report) failed(of []memory.Failure, count uint64, what, how string, brief func(*memory.Failure) string) {
	if count == 0 {
		return
	}
	all := r.failings(of)
	list := all[:min(len(all), shownFailures)]
	note := ""
	if len(list) < len(all) || uint64(len(of)) < count {
		note = fmt.Sprintf(", the newest %d", len(list))
	}
	r.line()
	r.line(r.Paint(page.BoldRed, page.Count(count, what)+how), r.Paint(page.Dim, note))
	for _, group := range slices.Backward(list) {
		f := group[0]
		if place := r.failedAt(f); place != "" {
			r.line("  ", r.cut(place, r.width-2))
		}
		// the first sentence of a message has the important figures
		about := r.cut(brief(f.Failure), failureLines*(r.width-4)-len(" (1000 times), PID 4194304"))
		if len(group) > 1 {
			about += fmt.Sprintf(" (%d times)", len(group))
		}
		if len(r.snap.Processes) > 1 {
			about += ", " + r.users.PID(f.PID)
		}
		for _, line := range page.Wrap(about, r.width-4) {
			r.line("    ", r.Paint(page.Yellow, line))
		}
		if by := oom.FreedBy(f.Failure); by != "" {
			r.line("    ", r.cut(by, r.width-4))
		}
	}
}

// overlaps writes which memory several allocators assigned.
func (r *report) overlaps() {
	var pids []int
	if r.PID > 0 {
		pids = []int{r.PID}
	}
	texts := alloc.Overlaps(r.snap, false, pids)
	if len(texts) == 0 {
		return
	}
	r.line()
	r.line(r.Paint(page.BoldRed, page.Count(r.snap.OverlapCount, "buffer")+" assigned to memory that another buffer had"))
	for _, text := range first(texts, shownOverlaps) {
		for _, line := range page.Wrap(text, min(r.width, textColumns)-4) {
			r.line("    ", r.Paint(page.Yellow, line))
		}
	}
}

// unsafe writes which buffers the replay of a captured trace may have overwritten.
func (r *report) unsafe() {
	sites, count := newSources(), uint64(0)
	traces := make(map[uint64]bool)
	for i := range r.snap.Unsafe {
		if u := &r.snap.Unsafe[i]; r.PID == 0 || u.PID == r.PID {
			amount := memory.Amount{Count: u.Count, Bytes: u.Bytes}
			sites.add(&memory.Site{PID: u.PID, Devices: u.Devices, Stack: u.Stack}, amount, u.Region, []analyze.Holder{{Owner: memory.Owner{Path: u.Owner, Tensor: u.Tensor}, Amount: amount}})
			count += u.Count
			traces[u.TraceID] = true
		}
	}
	if count == 0 {
		return
	}
	which := "traces"
	if len(traces) == 1 {
		which = "a trace"
	}
	r.line()
	r.line(r.Paint(page.BoldRed, fmt.Sprintf("%s that %s may have overwritten", page.Count(count, "buffer"), which)))
	r.sources(sites.Rows(true, nil), shownUnsafe, 0, page.Bytes)
	r.sentence(page.Dim, "They were allocated after the capture, where the trace writes, and live at a replay: allocate them before the capture, or free them before the replay")
}

// afterFree writes which lines run programs with the address of a freed buffer.
func (r *report) afterFree() {
	site := func(n name.Name) string { return cmp.Or(page.Clean(n.Text(r.Separator())), "(no call stack)") }
	var texts []string
	for i := range r.snap.AfterFree {
		if a := &r.snap.AfterFree[i]; r.PID == 0 || a.PID == r.PID {
			freed := name.Of(a.FreedBy.Frames())
			if freed.Call != (name.Call{}) {
				freed.Op = "" // a function that frees
			}
			texts = append(texts, fmt.Sprintf("%s at %#x, allocated by %s, freed by %s: %s by %s", page.Clean(a.Region), a.Address,
				site(name.Of(a.AllocatedBy.Frames())), site(freed), page.Count(a.Count, "later run"), site(name.Of(a.Stack.Frames()))))
		}
	}
	if len(texts) == 0 {
		return
	}
	r.line()
	r.line(r.Paint(page.BoldRed, "Buffers used after their free"))
	for _, text := range first(texts, shownUnsafe) {
		for _, line := range page.Wrap(text, min(r.width, textColumns)-4) {
			r.line("    ", r.Paint(page.Yellow, line))
		}
	}
}

// failedAt returns the place of a failed allocation: the line, the operation, and the callers
// that fit.
func (r *report) failedAt(f failing) string {
	place := page.Clean(name.Of(f.Stack.Frames()).Op)
	if len(f.calls) > 0 && place != "" {
		place = f.calls[0] + r.Separator() + place
	} else if len(f.calls) > 0 {
		place = f.calls[0]
	}
	for i, call := range f.calls {
		if longer := r.calls(place, call); i > 0 && page.Width(longer) <= r.width-2 {
			place = longer
		} else if i > 0 {
			break
		}
	}
	return place
}

// leaks writes the leaking call sites, as in `ttmem leaks`.
func (r *report) leaks() {
	if !slices.ContainsFunc(r.snap.Processes, func(p memory.Process) bool { return highest(&p) > 0 }) {
		return
	}
	r.line()
	list, sum := r.sourcesOfLeaks(r.leaked)
	few, fewSum := r.sourcesOfLeaks(r.undecided)
	switch {
	case len(list) > 0:
		r.line(r.Paint(page.BoldRed, fmt.Sprintf("%s leaked: %s from %s", page.Bytes(sum.Bytes),
			page.Count(sum.Count, "buffer"), page.Count(uint64(len(r.leaked)), "call site"))))
		if c := analyze.LargestContainer(page.Each(r.leaked, func(v analyze.Verdict) []analyze.Container { return v.Containers })); c != nil {
			r.line("  held by ", r.cut(alloc.Growth(r.Painter, c), r.width-10))
		}
		r.sources(list, shownLeaks, 0, page.Bytes)
	case r.losses().Any():
		r.line("No leaks found, but events were lost")
	case len(few) > 0: // below
	case r.State.BuffersAllocated() < analyze.LeastSurvivors:
		r.line("No leaks found", r.Paint(page.Dim, fmt.Sprintf(": %s allocated, too few to judge",
			page.Count(r.State.BuffersAllocated(), "buffer"))))
	case r.CutShort:
		r.line("No leaks found before the recording is cut short")
	case len(r.retained)+len(r.hostGrowth) > 0:
		r.line("No leaks found")
	default:
		r.line(r.Paint(page.Green, r.Pick("✓ ", "")+"No leaks found"))
	}
	if len(few) > 0 {
		r.sentence(page.Yellow, "Growing"+page.Growing(fewSum, len(r.undecided)))
		r.sources(few, shownLeaks, 0, page.Bytes)
	}
	for _, text := range first(r.hostGrowth, shownGrowth) {
		r.sentence(page.Yellow, text)
	}
}

// sourcesOfLeaks names call sites that grow, and returns their sum.
func (r *report) sourcesOfLeaks(sites []analyze.Verdict) (list []*alloc.Row, sum memory.Amount) {
	all := newSources()
	for i := range sites {
		mention := sites[i].Region.String()
		switch {
		case len(r.snap.Processes) > 1:
			mention += " " + r.users.PID(sites[i].PID)
		case sites[i].Region == event.DRAM:
			mention = ""
		}
		all.add(&sites[i].Site, sites[i].Amount, mention, holdersOf(&sites[i]))
		sum.Add(sites[i].Amount)
	}
	return all.Rows(true, nil), sum
}

// holdersOf returns who holds the survivors of a leak.
func holdersOf(v *analyze.Verdict) []analyze.Holder {
	rest := v.Amount
	holders := page.Each(v.Containers, func(c analyze.Container) analyze.Holder {
		of := c.In(rest)
		rest.Sub(of)
		return analyze.Holder{Owner: memory.Owner{Path: c.Owner, Tensor: c.Tensor}, Amount: of}
	})
	if len(holders) > 0 && rest.Count > 0 { // nobody is known to hold them
		holders = append(holders, analyze.Holder{Amount: rest})
	}
	return holders
}
