package main

import "slices"

// cachedRuns measures what tracing adds to the run of a program from the program cache, without an
// allocation.
func (b *bench) cachedRuns() error {
	p, err := b.start("cached.py")
	if err != nil {
		return err
	}
	defer p.stop()
	b.printf("ttnn.add into a tensor: %d rounds of %d × %d runs each way, in turn\n", b.rounds, turns, b.pairs)
	ways := []*way{
		{name: "nothing", begin: untraced},
		{name: "ttmem's probes, empty", begin: b.emptyProbes(b.uprobes, b.places...)},
	}
	if b.beside != "" {
		ways = append(ways, b.besideWay(""))
	}
	attach := func(args ...string) func(*program) (ended, error) {
		return func(p *program) (ended, error) { return b.tracedBy(&attached{}, p, args...) }
	}
	without, with := &way{name: "ttmem attach --no-uses", begin: attach("--no-uses")}, &way{name: "ttmem attach", begin: attach()}
	ways = append(ways, without, with)
	if err := b.inTurn(p, ways...); err != nil {
		return err
	}
	b.printf("%-28s %9s %11s %8s %9s\n", "traced by", "best, µs", "median, µs", "adds, µs", "lost")
	for _, w := range ways {
		best := slices.Min(w.ns)
		b.printf("%-28s %9.2f %11.2f %8.2f %9d\n", w.name, best/1e3, median(w.ns)/1e3, (best-slices.Min(ways[0].ns))/1e3, w.lost)
	}
	b.atMost("  the buffers that a run uses, best", (slices.Min(with.ns)-slices.Min(without.ns))/1e3, "µs", 1)
	own, beside, err := b.bpfTimes(p, "", "--no-uses")
	if err != nil {
		return err
	}
	if beside != nil {
		b.atLeast("  BPF's own time of a run without uses: less than -beside, best", beside.best()-own.best(), "ns", 150)
	}
	return nil
}
