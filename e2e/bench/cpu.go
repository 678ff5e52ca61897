package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// cost is the CPU time of a tool itself. The time of its probes is the program's, and is in
// the tables of what tracing adds.
type cost struct {
	events, lost int     // with and without a stack
	frames       float64 // native ones of a stack, without inlined ones
	// start is the part that does not depend on the number of events, all is the sum.
	start, all time.Duration
	bytes      float64 // of a recording, for each event, frees included
}

// each is the µs for an event, without the start.
func (c cost) each() float64 {
	return float64((c.all - c.start).Nanoseconds()) / 1e3 / float64(max(c.events, 1))
}

// whole is the time for n events, with the start.
func (c cost) whole(n int) float64 { return c.start.Seconds() + c.each()*float64(n)/1e6 }

// processorTime compares the CPU time of ttmem and perf from events to stacks with names, in a
// loop and where every stack is new.
func (b *bench) processorTime() error {
	for _, name := range []string{"loop.py", "stacks_new.py"} {
		if err := b.compareCost(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) compareCost(name string) error {
	p, err := b.start(name)
	if err != nil {
		return err
	}
	defer p.stop()
	ours, other, err := b.ttmemCosts(p)
	if err != nil {
		return err
	}
	b.printf("%s\n%-64s %8s %8s %8s %8s %8s\n", name, "", "µs/event", "start, s", "events", "lost", "frames")
	b.printCost("ttmem attach -o", ours)
	if b.beside != "" {
		b.printCost("ttmem attach -o, -beside", other)
		b.figure(name+": ttmem/-beside, µs an event", ours.each()/other.each(), "")
	}
	theirs, err := b.perfCosts(p)
	if err != nil {
		b.unmeasured("perf", err)
		return nil
	}
	for i, w := range perfWays {
		b.printCost(w.String(), theirs[i])
	}
	b.printf("\n")
	perf := theirs[0]
	b.atMost(name+": ttmem/perf, µs an event", ours.each()/perf.each(), "", 1.0/20)
	b.atMost(fmt.Sprintf("%s: ttmem/perf, whole commands, %d events", name, b.events),
		ours.whole(b.events)/perf.whole(b.events), "", 1.0/20)
	b.atMost(name+": recording, bytes an event", ours.bytes, "", 40)
	b.figure("  with perf's --no-inline, µs an event", ours.each()/theirs[1].each(), "")
	b.figure("  with all of the stack for perf too, µs an event", ours.each()/theirs[2].each(), "")
	b.printf("\n")
	return nil
}

func (b *bench) printCost(name string, c cost) {
	b.printf("%-64s %8.1f %8.2f %8d %8d %8.1f\n", name, c.each(), c.start.Seconds(), c.events, c.lost, c.frames)
}

// costTries is how often both builds of ttmem are measured in turn: the least counts.
const costTries = 3

// ttmemCosts returns the cost of recording with ttmem and, if there is one, with the other build.
func (b *bench) ttmemCosts(p *program) (ours, other cost, err error) {
	if b.beside == "" {
		ours, err = b.ttmemCost(p, "")
		return ours, other, err
	}
	for i := range costTries {
		for exe, least := range map[string]*cost{"": &ours, b.beside: &other} {
			c, err := b.ttmemCost(p, exe)
			if err != nil {
				return ours, other, err
			}
			if i == 0 || c.each() < least.each() {
				*least = c
			}
		}
	}
	return ours, other, nil
}

// ttmemCost returns the cost of recording with a build of ttmem.
func (b *bench) ttmemCost(p *program, exe string) (cost, error) {
	few, err := b.recordRun(p, b.cpuEvents/5, exe)
	if err != nil {
		return cost{}, err
	}
	many, err := b.recordRun(p, b.cpuEvents, exe)
	if err != nil {
		return cost{}, err
	}
	return split(few, many), nil
}

// split separates the cost of events from that of the start: two runs of different length
// differ by their events alone.
func split(few, many cost) cost {
	each := float64(many.all-few.all) / float64(max(many.events-few.events, 1))
	many.start = max(0, few.all-time.Duration(each*float64(few.events)))
	return many
}

// recordRun records every event with its stack.
func (b *bench) recordRun(p *program, n int, exe string) (cost, error) {
	path := filepath.Join(b.dir, "cost.ttmem")
	defer os.Remove(path)
	a, err := b.record(p, path, exe)
	if err != nil {
		return cost{}, err
	}
	progress("%d events with ttmem", n)
	defer progress("")
	if _, err := p.round(n); err != nil {
		return cost{}, err
	}
	o, err := a.end()
	if err != nil {
		return cost{}, err
	}
	stacks, frames, err := countRecorded(path)
	if err != nil {
		return cost{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return cost{}, err
	}
	return cost{
		events: stacks, lost: n - stacks + int(o.lostEvents()), frames: frames, all: o.cpu,
		bytes: float64(info.Size()) / float64(2*n),
	}, nil
}

// countRecorded counts the events of a recording that have a stack, and the native frames of a
// stack. The interpreter's own are not there: Python's stand in their place.
func countRecorded(path string) (stacks int, frames float64, err error) {
	r, err := recording.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	known := make(map[uint64]int)
	for {
		var e event.Event
		if err := r.Next(&e); errors.Is(err, io.EOF) {
			return stacks, frames / float64(max(stacks, 1)), nil
		} else if err != nil {
			return 0, 0, err
		}
		if e.Stack == nil {
			continue
		}
		n, ok := known[e.Stack.ID]
		if !ok {
			for _, f := range e.Stack.Frames() {
				if f.Kind == event.Native {
					n++
				}
			}
			known[e.Stack.ID] = n
		}
		stacks++
		frames += float64(n)
	}
}
