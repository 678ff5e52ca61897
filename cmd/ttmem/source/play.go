package source

import (
	"context"
	"errors"
	"io"
	"runtime/debug"

	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

const (
	// batchEvents is how many events are read at a time: they fit into the caches of a
	// processor.
	batchEvents = 128
	// batches is how many are read in advance.
	batches = 4
	// playGarbage is the value of GOGC while a file is read: most memory is short-lived, and
	// the live part is rarely marked then.
	playGarbage = 300
)

// A batch is events that were read.
type batch struct {
	events []event.Event
	n      int   // of events that were read
	done   int64 // how much of the file was read by then
	err    error // what comes after the events; nil: others
}

// Play calls handle with the events until their end, or until they are damaged, and counts
// them; it calls pause from time to time. The next events are decoded meanwhile.
func (f *File) Play(ctx context.Context, handle func(*event.Event), pause func()) (n int, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(playGarbage))
	p := term.NewProgress(f.size)
	defer p.End()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	size := batchEvents
	if f.size == 0 {
		size = 1 // of a pipe: it may be long until the next event
	}
	empty, full := make(chan *batch, batches), make(chan *batch, batches)
	for range batches {
		empty <- &batch{events: make([]event.Event, size)}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.readBatches(ctx, empty, full)
	}()
	if f.size > 0 { // a pipe may block for long
		defer func() {
			stop()
			<-ended
		}()
	}
	for {
		var b *batch
		select {
		case b = <-full:
		case <-ctx.Done():
			return n, nil
		}
		if !f.quiet {
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
			return 0, withoutEvents(b.err, f.Name, "first "+f.part)
		case b.err != nil:
			return n, b.err
		}
		empty <- b
	}
}

// readBatches fills batches until there are no more events.
func (f *File) readBatches(ctx context.Context, empty <-chan *batch, full chan<- *batch) {
	for {
		var b *batch
		select {
		case b = <-empty:
		case <-ctx.Done():
			return
		}
		b.n, b.err = 0, nil
		for b.n < len(b.events) && b.err == nil {
			if b.err = f.next(&b.events[b.n]); b.err == nil {
				b.n++
			}
		}
		b.done = f.done()
		full <- b
		if b.err != nil {
			return
		}
	}
}
