package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"ttmem/tracer/kernel"
)

// fallback is a way to trace on a kernel without some features.
type fallback struct {
	without string
	// attach and end are the times to attach and to end, in s.
	attach, end []float64
}

// fallbacks measures the cost of missing kernel features.
func (b *bench) fallbacks() error {
	p, err := b.start("loop.py", "4")
	if err != nil {
		return err
	}
	defer p.stop()
	all := []*fallback{{}}
	for _, name := range kernel.Optional {
		all = append(all, &fallback{without: name})
	}
	all = append(all, &fallback{without: strings.Join(kernel.Optional, ",")})

	ways := []*way{
		{name: "nothing", begin: untraced},
		{name: "two empty uprobes", begin: b.emptyProbes(b.uprobes, b.alloc, b.free)},
		{name: "two empty perf-event uprobes", begin: b.emptyProbes(kernel.Uprobes{}, b.alloc, b.free)},
	}
	if b.beside != "" {
		ways = append(ways, b.besideWay(""), b.besideWay("direct_map"))
	}
	for _, f := range all {
		name := "ttmem attach"
		if f.without != "" {
			name = "  without " + f.without
		}
		if strings.Contains(f.without, ",") {
			name = "  without all of these"
		}
		ways = append(ways, &way{name: name, begin: func(p *program) (ended, error) {
			a := &attached{env: []string{kernel.WithoutVariable + "=" + f.without}}
			end, err := b.tracedBy(a, p)
			if err != nil {
				return nil, err
			}
			f.attach = append(f.attach, a.took.Seconds())
			return func() (uint64, error) {
				begun := time.Now()
				defer func() { f.end = append(f.end, time.Since(begun).Seconds()) }()
				return end()
			}, nil
		}})
	}
	b.printf("ttnn.empty + ttnn.deallocate: %d rounds of %d × %d pairs each way, in turn\n", b.rounds, turns, b.pairs)
	if err := b.compare(p, ways); err != nil {
		return err
	}
	b.printf("\n%-40s %18s %18s\n", "", "attaching, s", "ending, s")
	for i, f := range all {
		name := ways[len(ways)-len(all)+i].name
		b.printf("%-40s %18.2f %18.2f\n", name, median(f.attach), median(f.end))
	}
	own, beside, err := b.bpfTimes(p, "direct_map")
	if err != nil {
		return err
	}
	if beside != nil {
		b.atLeast("  BPF's own time without direct_map: less than -beside, best", beside.best()-own.best(), "ns", 2000)
	}
	return nil
}

// untraced traces nothing.
func untraced(*program) (ended, error) { return func() (uint64, error) { return 0, nil }, nil }

// besideWay traces with the other build of ttmem, without some features.
func (b *bench) besideWay(without string) *way {
	name := "ttmem attach, -beside"
	if without != "" {
		name = "  -beside, without " + without
	}
	return &way{name: name, begin: func(p *program) (ended, error) {
		return b.tracedBy(&attached{exe: b.beside, env: []string{kernel.WithoutVariable + "=" + without}}, p)
	}}
}

// checkBeside checks that the other build exists before anything is measured.
func (o *options) checkBeside() error {
	if o.beside == "" {
		return nil
	}
	if _, err := os.Stat(o.beside); err != nil {
		return fmt.Errorf("-beside: %w", err)
	}
	return nil
}
