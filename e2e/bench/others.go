package main

import (
	"fmt"
	"math"
	"time"
)

// otherWork is work unrelated to tt-metal, with the number of repetitions in a round, for
// some tenths of a second.
var otherWork = []struct {
	name, title string
	turns       int
}{
	{"spawn", "fork and exec of /bin/true", 400},
	{"map_code", "mmap and munmap of a file as code", 50000},
	{"allocate", "malloc and free", 10000},
	{"compute", "arithmetic alone", 3000000},
}

// others measures the cost for programs that do not use tt-metal while all processes of the
// host are traced: the kernel reports each process that ends and each new code mapping to
// ttmem. Each round runs without ttmem, with it and without it again: the difference of the
// two without it is the noise. The CPU time of ttmem itself, on another processor, is
// printed as well.
func (b *bench) others() error {
	b.printf("%-40s %10s %10s %10s %10s %12s\n", "processor time, median of the rounds", "µs without", "µs with", "ratio", "noise ±", "ttmem's µs")
	for _, w := range otherWork {
		if err := b.withTtmem(w.title, w.turns, minNoise, "others.py", w.name); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// withTtmem measures rounds of a program without ttmem and with it. most is the largest part of the time
// that tracing may cost, if the noise is not larger.
func (b *bench) withTtmem(title string, turns int, most float64, name string, args ...string) error {
	p, err := b.start(name, args...)
	if err != nil {
		return err
	}
	defer p.stop()
	var without, with, ratios, noise, own []float64
	each := func(took time.Duration) float64 { return float64(took.Nanoseconds()) / 1e3 / float64(turns) }
	round := func(kept *[]float64) (float64, error) {
		took, err := p.round(turns)
		*kept = append(*kept, each(took))
		return each(took), err
	}
	for i := range b.rounds {
		progress("%s, %d of %d", title, i+1, b.rounds)
		before, err := round(&without)
		if err != nil {
			return err
		}
		a, err := b.trace(&attached{}, "attach", "--no-record", "--json")
		if err != nil {
			return err
		}
		during, err := round(&with)
		if err != nil {
			return err
		}
		o, err := a.end()
		if err != nil {
			return err
		}
		after, err := round(&without)
		if err != nil {
			return err
		}
		ratios = append(ratios, during/math.Sqrt(before*after))
		noise = append(noise, math.Abs(math.Log(after/before)))
		own = append(own, each(o.traced))
	}
	progress("")
	// of two equal measurements, half of the time one is within this of the other
	spread := median(noise)
	ratio := median(ratios)
	b.printf("%-40s %10.3f %10.3f %10.3f %10.3f %12.2f   %s\n", title, median(without), median(with), ratio, spread, median(own),
		b.verdict(title+": with ttmem/without", ratio <= 1+max(spread, most)))
	return nil
}

// minNoise is the smallest difference that a run can show.
const minNoise = 0.01
