package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

const (
	// progressEvents is the number of events between two updates of progress.
	progressEvents = 128
	// playGarbage is the value of GOGC while a file is read: most memory is short-lived, and
	// the live part is rarely marked then.
	playGarbage = 300
)

// Play calls handle with the events until their end, or until damage, and counts them.
func (f *File) Play(ctx context.Context, handle func(*event.Event)) (n int, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(playGarbage))
	p := term.NewProgress(f.recording.Size())
	defer p.End()
	if f.recording.Size() == 0 { // reading a pipe may block for long
		stop := context.AfterFunc(ctx, func() { _ = f.Close() })
		defer stop()
	}
	var e event.Event
	for ctx.Err() == nil {
		if n%progressEvents == 0 && !f.quiet {
			p.Show(f.recording.Offset())
		}
		err := f.next(&e)
		switch {
		case errors.Is(err, io.EOF), err != nil && ctx.Err() != nil:
			return n, nil
		case err != nil && n == 0:
			return 0, withoutEvents(err, f.Name, "first block")
		case err != nil:
			return n, err
		}
		handle(&e)
		if e.IsInvalid() { // what is shown without it would be wrong
			return n, fmt.Errorf("%s has a checkpoint that cannot be read: it is damaged, or another version of ttmem made it", f.Name)
		}
		n++
	}
	return n, nil
}
