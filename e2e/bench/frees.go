package main

import (
	"slices"
)

// freeStacks compares a pair of an allocation and a free, traced with and without the call stacks of
// frees: in a loop, deep in a program, freed by the end of the tensor, and with a new stack each time.
func (b *bench) freeStacks() error {
	b.printf("%d rounds of %d × %d pairs each way, in turn; CPU time of a pair\n", b.rounds, turns, b.pairs)
	for _, pair := range []struct {
		name, file string
		args       []string
	}{
		{"a loop", "loop.py", nil},
		{"a loop, 30 Python calls down", "loop.py", []string{"30"}},
		{"a loop, freed by the end of the tensor", "loop.py", []string{"0", "drop"}},
		{"another call path each time", "stacks_new.py", nil},
	} {
		if err := b.freeStacksOf(pair.name, pair.file, pair.args...); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) freeStacksOf(name, file string, args ...string) error {
	p, err := b.start(file, args...)
	if err != nil {
		return err
	}
	defer p.stop()
	attach := func(args ...string) func(*program) (ended, error) {
		return func(p *program) (ended, error) { return b.tracedBy(&attached{}, p, args...) }
	}
	without := &way{name: "ttmem attach --no-free-stacks", begin: attach("--no-free-stacks")}
	with := &way{name: "ttmem attach", begin: attach()}
	if err := b.inTurn(p, without, with); err != nil {
		return err
	}
	b.printf("%s: %.2f µs without, %.2f µs with, best; lost: %d, %d events\n", name,
		slices.Min(without.ns)/1e3, slices.Min(with.ns)/1e3, without.lost, with.lost)
	b.atMost("  with / without, best", slices.Min(with.ns)/slices.Min(without.ns), "times", 1.3)
	b.figure("  with / without, median", median(with.ns)/median(without.ns), "times")
	return nil
}
