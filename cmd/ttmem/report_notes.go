package main

import (
	"fmt"
	"maps"
	"slices"
)

// notes writes what did not fit together and what could not be seen, quietly.
func (r *report) notes() {
	var list []string
	count := func(text string, n uint64) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s: %d", text, n))
		}
	}
	a := r.snap.Anomalies
	count("frees of buffers that were not known to be allocated", a.RepeatedFrees)
	count("allocations of buffers that were allocated already", a.ReplacedBuffers)
	count("buffers on no known chip, in no table above", a.UnplacedBuffers)
	count("events that made no sense and were left out", a.MalformedEvents)
	if s := r.snap.Stacks; s != nil {
		for _, cause := range slices.Sorted(maps.Keys(s.Incomplete)) {
			count("call stacks that end early: "+plain(cause), s.Incomplete[cause])
		}
		for _, cause := range slices.Sorted(maps.Keys(s.IncompletePython)) {
			count("call stacks whose Python part ends early: "+plain(cause), s.IncompletePython[cause])
		}
	}
	list = append(list, r.late()...)
	if len(list) > 0 {
		r.line()
	}
	for _, text := range list {
		for i, line := range wrap("note: "+text, r.width-6) {
			r.line(r.paint(dim, left("", 6*min(i, 1))+line))
		}
	}
}

// late tells of the processes that were attached late.
func (r *report) late() []string {
	var list []string
	hidden := 0
	for i := range r.snap.Processes {
		p := &r.snap.Processes[i]
		switch {
		case !p.AttachedLate || p.BeforeAttachBuffers == 0: // it had not begun by then
		case len(list) == shownProcesses:
			hidden++
		default:
			list = append(list, fmt.Sprintf("PID %d was attached late: %s found in its memory; circular buffers and kernels "+
				"of programs that it compiled before are counted when it next runs them", p.PID, formatCount(p.BeforeAttachBuffers, "buffer")))
		}
	}
	if hidden > 0 {
		list = append(list, fmt.Sprintf("%d more processes were attached late", hidden))
	}
	return list
}
