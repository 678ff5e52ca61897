package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ttmem/tracer"
	"ttmem/tracer/event"
)

// observed describes the stacks of a round.
type observed struct {
	allocs, stacks, different int
	// average frames of a stack
	native, python float64
	ends           []string
}

func (o observed) String() string {
	return fmt.Sprintf("ttmem saw %d allocations, %d with a stack, %d different stacks, of %.1f native and %.1f Python frames\nthey ended: %s",
		o.allocs, o.stacks, o.different, o.native, o.python, strings.Join(o.ends, "; "))
}

// observe traces a round through package tracer, to describe what is measured.
func (b *bench) observe(p *program, pairs int) (observed, error) {
	t, err := tracer.New(tracer.Options{Processes: []int{p.pid()}, AllFrames: true,
		Warn: func(_ int, text string) { b.printf("ttmem warns: %s\n", text) }})
	if err != nil {
		return observed{}, err
	}
	defer t.Close()
	var o observed
	stacks := make(map[uint64]*event.Stack)
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		failed <- t.Run(ctx, func(e *event.Event) {
			if e.Kind != event.Alloc {
				return
			}
			o.allocs++
			if e.Stack != nil {
				o.stacks++
				stacks[e.Stack.ID] = e.Stack
			}
		}, func() {})
	}()
	_, err = p.round(pairs)
	time.Sleep(50 * time.Millisecond) // the ring is read every 10 ms
	cancel()
	if err := cmp.Or(<-failed, err); err != nil {
		return o, err
	}
	o.different = len(stacks)
	o.countFrames(stacks)
	native, python := t.StackEnds()
	for _, ends := range []map[string]uint64{native, python} {
		for _, name := range slices.Sorted(maps.Keys(ends)) {
			o.ends = append(o.ends, fmt.Sprintf("%d %s", ends[name], name))
		}
	}
	return o, nil
}

// countFrames counts the frames of some of the stacks: naming them takes time.
func (o *observed) countFrames(stacks map[uint64]*event.Stack) {
	var looked, native, python float64
	for _, s := range stacks {
		if looked++; looked > 100 {
			break
		}
		for _, f := range s.Frames() {
			switch {
			case f.Kind == event.Python:
				python++
			case !f.Inlined: // an inlined function shares the frame that follows
				native++
			}
		}
		o.native, o.python = native/looked, python/looked
	}
}
