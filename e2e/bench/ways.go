package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// ended stops a way to trace, and returns how many events it lost.
type ended func() (lost uint64, err error)

// way is one way to trace a program.
type way struct {
	name  string
	begin func(*program) (ended, error)
	// limit bounds the added cost, in multiples of that of two empty uprobes; 0: no goal.
	limit float64

	ns   []float64 // CPU time of a pair
	lost uint64
	err  error // why it cannot be measured
}

// turns is how often a program runs its pairs each time that it is traced: starting a
// tracer takes longer than the pairs.
const turns = 5

// ways are the ways to trace; limit is the goal for those with stacks of allocations.
func (b *bench) ways(limit float64) []*way {
	ttmem := func(args ...string) func(*program) (ended, error) {
		return func(p *program) (ended, error) { return b.tracedBy(&attached{}, p, args...) }
	}
	bpftrace := func(p *program) (ended, error) { return b.bpftrace(p, turns*b.pairs) }
	ways := []*way{
		{name: "nothing", begin: untraced},
		{name: "two empty uprobes", begin: b.emptyProbes(b.uprobes, b.alloc, b.free)},
		{name: "bpftrace, ustack as key", begin: bpftrace},
		{name: "ttmem attach --no-stacks", begin: ttmem("--no-stacks")},
		{name: "ttmem attach", begin: ttmem(), limit: limit},
		{name: "ttmem attach --no-free-stacks", begin: ttmem("--no-free-stacks")},
		{name: "ttmem attach -o --full-stacks", begin: b.recorded("--full-stacks")},
	}
	if b.beside != "" {
		ways = append(ways, b.besideWay(""))
	}
	return ways
}

// tracedBy traces a program with a build of ttmem.
func (b *bench) tracedBy(a *attached, p *program, args ...string) (ended, error) {
	if _, err := b.trace(a, attachArgs(p, args...)...); err != nil {
		return nil, err
	}
	return func() (uint64, error) {
		o, err := a.end()
		return o.lostEvents(), err
	}, nil
}

// recorded records a program with ttmem, to a new file each time.
func (b *bench) recorded(args ...string) func(*program) (ended, error) {
	return func(p *program) (ended, error) {
		dir, err := os.MkdirTemp(b.dir, "recorded")
		if err != nil {
			return nil, err
		}
		a := &attached{recording: filepath.Join(dir, "loop.ttmem")}
		args := append([]string{"attach", "--json", "-o", a.recording, "-p", strconv.Itoa(p.pid())}, args...)
		if _, err := b.trace(a, args...); err != nil {
			return nil, err
		}
		return func() (uint64, error) {
			defer os.RemoveAll(dir)
			o, err := a.end()
			return o.lostEvents(), err
		}, nil
	}
}

func (b *bench) loop() error {
	p, err := b.start("loop.py")
	if err != nil {
		return err
	}
	defer p.stop()
	b.printf("ttnn.empty + ttnn.deallocate: %d rounds of %d × %d pairs each way, in turn\n", b.rounds, turns, b.pairs)
	if err := b.compare(p, b.ways(2)); err != nil {
		return err
	}
	own, beside, err := b.bpfTimes(p, "")
	if err != nil {
		return err
	}
	if beside != nil {
		b.atMost("  BPF's own time of a pair: ttmem/-beside, best", own.best()/beside.best(), "", 0.9)
	}
	return nil
}

func (b *bench) newStacks() error {
	p, err := b.start("stacks_new.py")
	if err != nil {
		return err
	}
	defer p.stop()
	b.printf("The same pair from another call path each time: %d rounds of %d × %d pairs each way, in turn\n", b.rounds, turns, b.pairs)
	return b.compare(p, b.ways(5))
}

// compare runs rounds of a program, with each way in turn, so that other activity of the
// machine affects all of them.
func (b *bench) compare(p *program, ways []*way) error {
	seen, err := b.observe(p, b.pairs)
	if err != nil {
		return err
	}
	b.printf("%v\n\n", seen)
	for i := range b.rounds {
		if err := b.waitAlone(p); err != nil {
			return err
		}
		for _, w := range ways {
			if w.err != nil {
				continue
			}
			progress("round %d of %d: %s", i+1, b.rounds, w.name)
			if w.err = b.play(p, w); w.err != nil && i > 0 {
				return fmt.Errorf("%s: %w", w.name, w.err)
			}
		}
	}
	progress("")
	b.print(ways)
	return nil
}

// inTurn runs rounds of a program as compare does, with ways that all have to work.
func (b *bench) inTurn(p *program, ways ...*way) error {
	for range b.rounds {
		if err := b.waitAlone(p); err != nil {
			return err
		}
		for _, w := range ways {
			if err := b.play(p, w); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) play(p *program, w *way) error {
	end, err := w.begin(p)
	if err != nil {
		return err
	}
	for range turns {
		took, err := p.round(b.pairs)
		if err != nil {
			_, _ = end()
			return err
		}
		w.ns = append(w.ns, float64(took.Nanoseconds())/float64(b.pairs))
	}
	lost, err := end()
	w.lost += lost
	return err
}

func (b *bench) print(ways []*way) {
	b.printf("%-28s %9s %11s %8s %24s %9s\n", "traced by", "best, µs", "median, µs", "adds, µs", "× two empty uprobes", "lost")
	b.printf("%-28s %9s %11s %8s %24s %9s\n", "", "", "", "", "by best     by median", "events")
	base, floor := ways[0], ways[1]
	for _, w := range ways {
		if w.err != nil {
			b.unmeasured(w.name, w.err)
			continue
		}
		best, middle := slices.Min(w.ns), median(w.ns)
		times := (best - slices.Min(base.ns)) / (slices.Min(floor.ns) - slices.Min(base.ns))
		b.printf("%-28s %9.2f %11.2f %8.2f %12.2f %11.2f %9d", w.name, best/1e3, middle/1e3, (best-slices.Min(base.ns))/1e3,
			times, (middle-median(base.ns))/(median(floor.ns)-median(base.ns)), w.lost)
		if w.limit > 0 {
			name := fmt.Sprintf("%s: %.2f times what two empty uprobes add, goal ≤ %g", w.name, times, w.limit)
			b.printf("   goal ≤ %g × %s", w.limit, b.verdict(name, times <= w.limit))
		}
		b.printf("\n")
	}
}
