package main

import (
	"fmt"
	"slices"
	"time"

	"ttmem/tracer"
	"ttmem/tracer/host"
)

const mb = 1e6

// attaching measures how long it takes to attach, and the memory used.
func (b *bench) attaching() error {
	p, err := b.start("loop.py", "4")
	if err != nil {
		return err
	}
	defer p.stop()
	second, err := b.start("loop.py", "4")
	if err != nil {
		return err
	}
	defer second.stop()
	files, err := mappedFiles(p.pid())
	if err != nil {
		return err
	}
	b.printf("The process maps code of %d files; %d times, best and median\n", files, b.attaches)
	if err := b.attachTimes(p, second); err != nil {
		return err
	}
	return b.attachMemory(p)
}

func (b *bench) attachTimes(p, second *program) error {
	var command, noStacks, first, both []float64
	for i := range b.attaches {
		progress("attaching, %d of %d", i+1, b.attaches)
		for _, c := range []struct {
			args []string
			took *[]float64
		}{{nil, &command}, {[]string{"--no-stacks"}, &noStacks}} {
			a, err := b.attach(p, c.args...)
			if err != nil {
				return err
			}
			*c.took = append(*c.took, a.took.Seconds())
			if _, err := a.end(); err != nil {
				return err
			}
		}
		for _, c := range []struct {
			pids []int
			took *[]float64
		}{{[]int{p.pid()}, &first}, {[]int{p.pid(), second.pid()}, &both}} {
			start := time.Now()
			t, err := tracer.New(tracer.Options{Processes: c.pids})
			if err != nil {
				return err
			}
			*c.took = append(*c.took, time.Since(start).Seconds())
			t.Close()
		}
	}
	progress("")
	b.atMost("the command, from exec to its Ctrl-C line, best", slices.Min(command), "s", 0.5)
	b.figure("  median", median(command), "s")
	b.figure("  with --no-stacks, best", slices.Min(noStacks), "s")
	b.atMost("tracer.New, first process, best", slices.Min(first), "s", 0.5)
	b.figure("  median", median(first), "s")
	b.atMost("tracer.New, what a second process adds, best", slices.Min(both)-slices.Min(first), "s", 0.1)
	b.figure("  median", median(both)-median(first), "s")
	return nil
}

func (b *bench) attachMemory(p *program) error {
	a, err := b.attach(p)
	if err != nil {
		return err
	}
	tables, rest, err := kernelMemory(a.pid())
	if err != nil {
		return fmt.Errorf("the kernel's maps: %w", err)
	}
	var sum uint64
	for _, m := range tables {
		sum += m.bytes
	}
	b.atMost("unwind tables in the kernel", float64(sum)/mb, "MB", 12)
	for _, m := range tables {
		b.figure("  "+m.name, float64(m.bytes)/mb, "MB")
	}
	sum = 0
	for _, m := range rest {
		sum += m.bytes
	}
	b.figure("all other maps in the kernel", float64(sum)/mb, "MB")
	for _, m := range rest {
		if m.bytes >= mb/10 {
			b.figure("  "+m.name, float64(m.bytes)/mb, "MB")
		}
	}
	if err := b.printResident(a, "after attaching"); err != nil {
		return err
	}
	progress("%d events", b.events)
	_, err = p.round(b.events)
	progress("")
	if err != nil {
		return err
	}
	if err := b.printResident(a, fmt.Sprintf("after %d events", b.events)); err != nil {
		return err
	}
	_, err = a.end()
	return err
}

func (b *bench) printResident(a *attached, when string) error {
	most, err := resident(a.pid(), "VmHWM")
	if err != nil {
		return err
	}
	now, err := resident(a.pid(), "VmRSS")
	if err != nil {
		return err
	}
	own, err := resident(a.pid(), "RssAnon")
	if err != nil {
		return err
	}
	ring, err := residentMaps(a.pid())
	if err != nil {
		return err
	}
	b.atMost("ttmem resident at most, "+when, most/mb, "MB", 150)
	b.figure("  now", now/mb, "MB")
	b.figure("  its own memory", own/mb, "MB")
	b.figure("  BPF maps, the ring buffer's data counted twice", ring/mb, "MB")
	b.figure("  its executable", (now-own-ring)/mb, "MB")
	return nil
}

// mappedFiles counts the files that a process maps as code.
func mappedFiles(pid int) (int, error) {
	maps, err := new(host.Proc).FileMappings(pid)
	files := make(map[host.FileID]bool)
	for _, m := range maps {
		files[m.File] = true
	}
	return len(files), err
}
