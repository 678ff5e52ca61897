package main

import "fmt"

// frames is the required depth of the stacks in the tight loop.
const frames = 35

// manyEvents traces events with stacks as fast as a program can produce them.
func (b *bench) manyEvents() error {
	// a few more calls than the loop has, for the depth
	loop, err := b.start("loop.py", "4")
	if err != nil {
		return err
	}
	defer loop.stop()
	if err := b.flood(loop, fmt.Sprintf("%d events in a loop", b.events)); err != nil {
		return err
	}
	different, err := b.start("stacks_new.py")
	if err != nil {
		return err
	}
	defer different.stop()
	return b.flood(different, fmt.Sprintf("%d events, many different stacks", b.events))
}

// flood traces allocations, each with its stack and followed by a free.
func (b *bench) flood(p *program, name string) error {
	seen, err := b.observe(p, b.pairs)
	if err != nil {
		return err
	}
	b.printf("%s: stacks of %.1f native and %.1f Python frames\n", name, seen.native, seen.python)
	if seen.native < frames {
		b.unmeasured(name, fmt.Errorf("stacks are to have %d frames", frames))
	}
	a, err := b.attach(p)
	if err != nil {
		return err
	}
	progress("%s", name)
	took, err := p.round(b.events)
	progress("")
	if err != nil {
		return err
	}
	most, err := resident(a.pid(), "VmHWM")
	if err != nil {
		return err
	}
	o, err := a.end()
	if err != nil {
		return err
	}
	b.figure("  rate, with a free for each", float64(b.events)/took.Seconds(), "events with a stack/s")
	for cause, n := range o.lost {
		b.printf("  lost: %d, %s\n", n, cause)
	}
	b.atMost("  lost: "+name, float64(o.lostEvents()), "", 0)
	b.atMost("  ttmem resident at most, "+name, most/mb, "MB", 150)
	b.figure("  ttmem's processor time meanwhile", o.traced.Seconds()/took.Seconds()*100, "% of a processor")
	return nil
}
