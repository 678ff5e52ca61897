package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
)

// notes writes, dimmed, which events contradict each other and what could not be traced.
func (r *report) notes() {
	var list []string
	count := func(text string, n uint64) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s: %d", text, n))
		}
	}
	if r.snap.Reading {
		list = append(list, page.StillReading)
	}
	a := r.snap.Anomalies
	count("frees of unknown buffers", a.RepeatedFrees)
	count("allocations of buffers that were already allocated", a.ReplacedBuffers)
	count("buffers on unknown chips, in no table above", a.UnplacedBuffers)
	count("buffers on unknown cores, in no core's total", a.UnknownCores)
	count("malformed events, ignored", a.MalformedEvents)
	if s := r.snap.Stacks; s != nil {
		for _, cause := range slices.Sorted(maps.Keys(s.Incomplete)) {
			if cause == allPython {
				continue
			}
			about := page.Clean(cause)
			if cause == unknownProcess {
				about += " (before its code was read, or while it unloads a library)"
			}
			count("call stacks that end early: "+about, s.Incomplete[cause])
		}
		for _, cause := range slices.Sorted(maps.Keys(s.IncompletePython)) {
			count("call stacks whose Python part ends early: "+page.Clean(cause), s.IncompletePython[cause])
		}
	}
	if r.Older != "" {
		list = append(list, r.Older)
	}
	if late := r.late(); late != "" {
		list = append(list, late)
	}
	list = first(list, shownNotes)
	if len(list) > 0 {
		r.line()
	}
	for _, text := range list {
		for i, line := range page.Wrap("note: "+text, min(r.width, textColumns)-6) {
			r.line(r.Paint(page.Dim, page.Blank(6*min(i, 1))+line))
		}
	}
}

// unknownProcess is the tracer's cause of stacks that end where they begin.
const unknownProcess = "process not known yet"

// allPython is the tracer's cause of stacks that lack only native frames between the
// outermost Python frames, as under pytest.
const allPython = "more than 128 frames, all Python ones known"

// late names the processes that were attached late, each once: a process that called exec occurs
// several times in the snapshot.
func (r *report) late() string {
	found := make(map[int]uint64)
	for i := range r.snap.Processes {
		if p := &r.snap.Processes[i]; p.AttachedLate {
			found[p.PID] += p.BeforeAttachBuffers
		}
	}
	// The process had not started at that time.
	maps.DeleteFunc(found, func(_ int, buffers uint64) bool { return buffers == 0 })
	if len(found) == 0 {
		return ""
	}
	var list []string
	pids := slices.Sorted(maps.Keys(found))
	for _, pid := range pids[:min(len(pids), shownLate)] {
		list = append(list, fmt.Sprintf("PID %d with %s", pid, page.Count(found[pid], "buffer")))
	}
	if hidden := len(pids) - len(list); hidden > 0 {
		list = append(list, fmt.Sprintf("%d more", hidden))
	}
	return "attached late: " + strings.Join(list, ", ") +
		" found in memory; circular buffers and kernels of programs compiled before are counted when they next run"
}
