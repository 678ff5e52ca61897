package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// cost is the processor time that a tool takes for itself: what its probes do in
// the program's own time is in the tables of what tracing adds.
type cost struct {
	events int // that came to have a stack
	// start is what it takes however many events there are, all is the whole.
	start, all time.Duration
}

// each is the µs for one event, without the start.
func (c cost) each() float64 {
	return float64((c.all - c.start).Nanoseconds()) / 1e3 / float64(max(c.events, 1))
}

// whole is the time for n events, with the start.
func (c cost) whole(n int) float64 { return c.start.Seconds() + c.each()*float64(n)/1e6 }

// processorTime compares what ttmem and perf take from events to stacks with names,
// in a loop and where every stack is new.
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
	ours, err := b.ttmemCost(p)
	if err != nil {
		return err
	}
	b.printf("%s\n", name)
	b.printCost("ttmem attach --events", ours)
	theirs, err := b.perfCost(p)
	if err != nil {
		b.unmeasured("perf", err)
		return nil
	}
	b.printCost("perf record --call-graph dwarf + perf script", theirs)
	b.atMost(name+": ttmem/perf, µs an event", ours.each()/theirs.each(), "", 1.0/20)
	b.atMost(fmt.Sprintf("%s: ttmem/perf, whole commands, %d events", name, b.events),
		ours.whole(b.events)/theirs.whole(b.events), "", 1.0/20)
	return nil
}

func (b *bench) printCost(name string, c cost) {
	b.printf("  %-46s %7.1f µs an event, of %d, and %.2f s to start and end\n", name, c.each(), c.events, c.start.Seconds())
}

func (b *bench) ttmemCost(p *program) (cost, error) {
	few, err := b.ttmemRun(p, b.cpuEvents/10)
	if err != nil {
		return cost{}, err
	}
	many, err := b.ttmemRun(p, b.cpuEvents)
	if err != nil {
		return cost{}, err
	}
	return split(few, many), nil
}

// split tells what an event costs from what the start does: two runs of different
// length differ by their events alone.
func split(few, many cost) cost {
	each := float64(many.all-few.all) / float64(max(many.events-few.events, 1))
	many.start = max(0, few.all-time.Duration(each*float64(few.events)))
	return many
}

// ttmemRun is a run that writes every event with its stack to a file.
func (b *bench) ttmemRun(p *program, n int) (cost, error) {
	path := filepath.Join(b.dir, "cost.jsonl")
	defer os.Remove(path)
	a, err := b.attach(p, "--events", path)
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
	text, err := os.ReadFile(path)
	if err != nil {
		return cost{}, err
	}
	stacks := bytes.Count(text, []byte(`"stack":[`))
	if lost := o.lostEvents(); lost > 0 || stacks < n {
		b.printf("  ttmem: %d of %d allocations have a stack, %d events were lost\n", stacks, n, lost)
	}
	return cost{events: stacks, all: o.cpu}, nil
}
