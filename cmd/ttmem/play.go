package main

import (
	"context"
	"errors"
	"io"
	"runtime/debug"

	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

const (
	// batchEvents is how many events are read at a time: what is read and what is
	// handled fit into the caches of a processor.
	batchEvents = 128
	// batches is how many are read in advance.
	batches = 4
	// playGarbage is the value of GOGC while a file is read. What lives has to be gone
	// through seldom then, for memory that is short-lived.
	playGarbage = 300
)

// A batch is events that were read.
type batch struct {
	events []event.Event
	n      int   // of events that were read
	done   int64 // how much of the file was read by then
	err    error // what comes after the events; nil: others
}

// play gives the events to handle until their end, or until they are damaged, and
// counts them; pause is called now and then. The next ones are read meanwhile.
func (r *recorded) play(ctx context.Context, handle func(*event.Event), pause func()) (n int, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(playGarbage))
	p := term.NewProgress(r.size)
	defer p.End()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	size := batchEvents
	if r.size == 0 {
		size = 1 // of a pipe: it may be long until the next event
	}
	empty, full := make(chan *batch, batches), make(chan *batch, batches)
	for range batches {
		empty <- &batch{events: make([]event.Event, size)}
	}
	go r.readBatches(ctx, empty, full)
	for {
		var b *batch
		select {
		case b = <-full:
		case <-ctx.Done():
			return n, nil
		}
		if !r.quiet {
			p.Show(b.done)
		}
		pause()
		for i := range b.events[:b.n] {
			handle(&b.events[i])
			if n++; ctx.Err() != nil {
				return n, nil
			}
		}
		switch {
		case errors.Is(b.err, io.EOF):
			return n, nil
		case b.err != nil && n == 0:
			return 0, withoutEvents(b.err, r.name, "first "+r.part)
		case b.err != nil:
			return n, b.err
		}
		empty <- b
	}
}

// readBatches fills batches until there are no more events.
func (r *recorded) readBatches(ctx context.Context, empty <-chan *batch, full chan<- *batch) {
	for {
		var b *batch
		select {
		case b = <-empty:
		case <-ctx.Done():
			return
		}
		b.n, b.err = 0, nil
		for b.n < len(b.events) && b.err == nil {
			if b.err = r.next(&b.events[b.n]); b.err == nil {
				b.n++
			}
		}
		b.done = r.done()
		full <- b
		if b.err != nil {
			return
		}
	}
}
