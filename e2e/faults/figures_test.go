package faults

import (
	"fmt"
	"strings"

	"ttmem/aggregate"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// events are the events of a recording up to the last one that was written: those of a process, and
// those of no process.
func (s *scene) events(file string, pid int) (list []event.Event) {
	s.must(tracetest.EachEvent(file, func(e *event.Event) {
		if e.PID == pid || e.PID == 0 {
			list = append(list, *e)
		}
	}))
	return list
}

// allocated is what a process has of DRAM and L1 in each bank, by its events.
func allocated(events []event.Event, pid int) (dram, l1 uint64) {
	state := aggregate.New()
	for i := range events {
		state.Apply(&events[i])
	}
	for _, b := range state.BuffersOf(pid) {
		switch b.Region {
		case event.DRAM:
			dram += b.BytesPerBank
		case event.L1:
			l1 += b.BytesPerBank
		}
	}
	return dram, l1
}

// figures are those that the library's allocator had at the end of the last round.
func (p *program) figures() (dram, l1 uint64) {
	output := p.output()
	at := strings.LastIndex(output, "round ")
	if at < 0 {
		return 0, 0
	}
	var round, addresses uint64
	_, err := fmt.Sscanf(output[at:], "round %d %d %d %d", &round, &addresses, &dram, &l1)
	p.must(err)
	return dram, l1
}

// counts are the process and its figures.
func (p *program) counts() (pid int, dram, l1 uint64) {
	dram, l1 = p.figures()
	return p.pid, dram, l1
}

// exact expects that the events up to now have the figures of the program.
func (s *scene) exact(p *program, file string) {
	wantDRAM, wantL1 := p.figures()
	var dram, l1 uint64
	if !tracetest.Eventually(endLimit, func() bool {
		dram, l1 = allocated(s.events(file, p.pid), p.pid)
		return dram == wantDRAM && l1 == wantL1
	}) {
		s.fail("process %d has %d B of DRAM and %d B of L1 in each bank, the library counts %d and %d", p.pid, dram, l1, wantDRAM, wantL1)
	}
}

// lost describes the events that were lost.
func lost(events []event.Event) (list []string) {
	for i := range events {
		if e := &events[i]; e.Kind == event.Lost {
			list = append(list, fmt.Sprintf("%d × %s of process %d", e.Count, e.Cause, e.PID))
		}
	}
	return list
}

// complete expects that nothing was lost of a program.
func (s *scene) complete(p *program, file string) {
	s.exact(p, file)
	if l := lost(s.events(file, p.pid)); len(l) > 0 {
		s.fail("lost: %q", l)
	}
}
