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
	ours, err := b.ttmemCost(p, b.recordRun)
	if err != nil {
		return err
	}
	lines, err := b.ttmemCost(p, b.eventsRun)
	if err != nil {
		return err
	}
	b.printf("%s\n%-64s %8s %8s %8s %8s %8s\n", name, "", "µs/event", "start, s", "events", "lost", "frames")
	b.printCost("ttmem attach -o", ours)
	b.printCost("ttmem attach --events, a stack in each line of JSON", lines)
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

// ttmemCost returns the cost of a way to run ttmem.
func (b *bench) ttmemCost(p *program, run func(p *program, n int) (cost, error)) (cost, error) {
	few, err := run(p, b.cpuEvents/5)
	if err != nil {
		return cost{}, err
	}
	many, err := run(p, b.cpuEvents)
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
func (b *bench) recordRun(p *program, n int) (cost, error) {
	path := filepath.Join(b.dir, "cost.ttmem")
	defer os.Remove(path)
	a, err := b.record(p, path)
	if err != nil {
		return cost{}, err
	}
	c, err := b.ttmemRun(p, a, n, func() (int, float64, error) { return countRecorded(path) })
	if err != nil {
		return cost{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return cost{}, err
	}
	c.bytes = float64(info.Size()) / float64(2*n)
	return c, nil
}

// eventsRun writes every event with its stack as a line of JSON.
func (b *bench) eventsRun(p *program, n int) (cost, error) {
	path := filepath.Join(b.dir, "cost.jsonl")
	defer os.Remove(path)
	a, err := b.attach(p, "--events", path)
	if err != nil {
		return cost{}, err
	}
	return b.ttmemRun(p, a, n, func() (int, float64, error) { return countLines(path) })
}

func (b *bench) ttmemRun(p *program, a *attached, n int, count func() (int, float64, error)) (cost, error) {
	progress("%d events with ttmem", n)
	defer progress("")
	if _, err := p.round(n); err != nil {
		return cost{}, err
	}
	o, err := a.end()
	if err != nil {
		return cost{}, err
	}
	stacks, frames, err := count()
	if err != nil {
		return cost{}, err
	}
	return cost{events: stacks, lost: n - stacks + int(o.lostEvents()), frames: frames, all: o.cpu}, nil
}

// countRecorded counts the events of a recording that have a stack, and their frames.
func countRecorded(path string) (stacks int, frames float64, err error) {
	r, err := recording.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	return countStacks(func() (e event.Event, err error) {
		err = r.Next(&e)
		return e, err
	})
}

// countLines counts them in a file of JSON lines.
func countLines(path string) (stacks int, frames float64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	return countStacks(event.NewReader(f).Next)
}

// countStacks counts events that have a stack, and the native frames of a stack. The
// interpreter's own are not there: Python's stand in their place.
func countStacks(next func() (event.Event, error)) (stacks int, frames float64, err error) {
	known := make(map[uint64]int)
	for {
		e, err := next()
		if errors.Is(err, io.EOF) {
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
