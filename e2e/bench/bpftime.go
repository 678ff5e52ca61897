package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/tracer/kernel"
)

// bpfTime is the time in the BPF programs of a build of ttmem, as the kernel counts it. The kernel's way
// to a program and back is not in it.
type bpfTime struct {
	name, exe string
	flags     []string
	// for a pair: the time, and how many programs it enters
	ns, entered []float64
	lost        uint64
}

// shorter is how much shorter the turns are. The kernel counts the time in which a program is preempted, too,
// and on a busy machine only short turns are without that.
const shorter = 10

// bpfTimes measures and prints BPF's own time for a pair, with this build and in turn with the other one,
// without some features. It differs less from turn to turn than the time of the traced program. The
// kernel's statistics cost time in each program, so these rounds are none of what tracing adds.
//
// It returns the times of both builds for the same work, beside nil without the other one: with flags for what the other
// build may not do, such as --no-uses.
func (b *bench) bpfTimes(p *program, without string, flags ...string) (own, beside *bpfTime, err error) {
	own = &bpfTime{name: strings.Join(append([]string{"ttmem attach"}, flags...), " "), flags: flags}
	times := []*bpfTime{own}
	if flags != nil {
		times = append(times, &bpfTime{name: "ttmem attach"})
	}
	if b.beside != "" {
		help, err := exec.Command(b.beside, "attach", "--help").Output()
		if err != nil {
			return nil, nil, fmt.Errorf("-beside: %w", err)
		}
		known := slices.DeleteFunc(slices.Clone(flags), func(flag string) bool { return !bytes.Contains(help, []byte(flag)) })
		beside = &bpfTime{name: strings.Join(append([]string{"-beside attach"}, known...), " "), exe: b.beside, flags: known}
		times = append(times, beside)
	}
	for i := range b.rounds {
		if err := b.waitAlone(p); err != nil {
			return nil, nil, err
		}
		for _, t := range times {
			progress("BPF's own time, %d of %d: %s", i+1, b.rounds, t.name)
			if err := b.countBPF(p, t, without); err != nil {
				return nil, nil, fmt.Errorf("BPF's own time: %s: %w", t.name, err)
			}
		}
	}
	progress("")
	title := "BPF's own time"
	if without != "" {
		title += ", without " + without
	}
	b.printf("\n%-44s %9s %11s %9s %9s\n", title, "best, ns", "median, ns", "programs", "lost")
	for _, t := range times {
		b.printf("%-44s %9.0f %11.0f %9.2f %9d\n", t.name, t.best(), median(t.ns), median(t.entered), t.lost)
	}
	return own, beside, nil
}

// best is the least time for a pair, in ns.
func (t *bpfTime) best() float64 { return slices.Min(t.ns) }

// countBPF adds the turns of a round.
func (b *bench) countBPF(p *program, t *bpfTime, without string) (err error) {
	counting, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return err
	}
	defer counting.Close()
	a := &attached{exe: t.exe, env: []string{kernel.WithoutVariable + "=" + without}}
	if _, err := b.trace(a, attachArgs(p, t.flags...)...); err != nil {
		return err
	}
	defer func() {
		o, ended := a.end()
		t.lost += o.lostEvents()
		err = errors.Join(err, ended)
	}()
	before, entered, err := bpfTimeOf(a.pid())
	if err != nil {
		return err
	}
	pairs := max(b.pairs/shorter, 1)
	for range turns * shorter {
		if _, err := p.round(pairs); err != nil {
			return err
		}
		after, enteredAfter, err := bpfTimeOf(a.pid())
		if err != nil {
			return err
		}
		t.ns = append(t.ns, float64((after-before).Nanoseconds())/float64(pairs))
		t.entered = append(t.entered, float64(enteredAfter-entered)/float64(pairs))
		before, entered = after, enteredAfter
	}
	return nil
}

// bpfTimeOf returns how long the BPF programs of a process have run, and how often.
func bpfTimeOf(pid int) (sum time.Duration, entered uint64, err error) {
	programs, err := objectsOf(pid, "prog_id:") // of programs, and of links to them
	if err != nil {
		return 0, 0, err
	}
	for _, id := range programs {
		program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err != nil {
			return 0, 0, err
		}
		stats, err := program.Stats()
		program.Close()
		if err != nil {
			return 0, 0, err
		}
		sum += stats.Runtime
		entered += stats.RunCount
	}
	return sum, entered, nil
}
