// Package feed supplies the live view: with the moments of a recording, the events of the service
// or a tracer, and the output of a command.
package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/internal/top"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A Watch follows events while the view is shown.
type Watch struct {
	*top.Live
	// Began is closed when there is something to show, and Done when watching has ended. Then Err
	// says why it failed, and Status is the exit status.
	Began, Done chan struct{}
	Err, Status error
	stop        context.CancelFunc
	// mark names a moment among the events; nil before they come.
	mark func(name string) error
}

// Mark sets the mark of the view, and a mark of the service.
func (w *Watch) Mark() {
	w.Live.Mark()
	if w.mark == nil {
		return
	}
	go func() {
		if err := w.mark("top " + time.Now().Format(time.TimeOnly)); err != nil {
			w.Note("the mark is only in this view: " + err.Error())
		}
	}()
}

// Start begins to follow events.
func Start(from source.Options, live *top.Live) *Watch {
	w := &Watch{Live: live, Began: make(chan struct{}), Done: make(chan struct{})}
	from.Ctx, w.stop = context.WithCancel(context.Background())
	begin := sync.OnceFunc(func() { close(w.Began) })
	from.Started = func(mark func(string) error, findOwners func(context.Context) error) {
		w.mark = mark
		begin()
		go followOwners(from.Ctx, live, findOwners)
	}
	if from.File != "" {
		live.Doing("reading")
	}
	if from.OwnProcessesOnly() {
		live.OwnOnly(source.OthersUnknown)
	}
	if from.File == "" && len(from.Command) == 0 {
		go followService(from.Ctx, &from, live)
	}
	go func() {
		defer close(w.Done)
		summary, err := from.Watch(func(e *event.Event) {
			begin()
			live.Handle(e)
		})
		why := "ended"
		switch {
		case err != nil:
			w.Err, why = err, err.Error()
		case from.File != "":
			why = "its end"
		case len(from.Command) > 0:
			why = fmt.Sprintf("ended with status %d", summary.Exit)
		}
		if summary != nil {
			w.Status = summary.Status()
			for _, note := range summary.Notes {
				live.Note(note)
			}
		}
		live.End(why)
	}()
	return w
}

// serviceInterval is how often the service is queried besides its events.
const serviceInterval = 2 * time.Second

// followService queries the service until ctx is done: whether it still reads memory and, for
// users who see only their own processes, the memory of other users.
func followService(ctx context.Context, from *source.Options, live *top.Live) {
	for first := true; ctx.Err() == nil; first = false {
		client, err := from.Service()
		switch {
		case err == nil && client == nil:
			return
		case err == nil:
			if first {
				go func() { _ = client.FindOwners(ctx, from.PIDs) }() // they come as events
			}
			if health, err := client.Health(ctx); err == nil {
				live.Unread(health.Reading)
			}
			if from.OwnProcessesOnly() {
				others, chips := source.OtherUsers(ctx, client)
				live.OwnOnly(others)
				live.Chips(chips, host.Now())
			}
			client.Close()
		case from.OwnProcessesOnly():
			live.OwnOnly(source.OthersUnknown)
		}
		select {
		case <-time.After(serviceInterval):
		case <-ctx.Done():
		}
	}
}

// Owners are searched again when there are new buffers, and the view shows owners: at least ownersInterval
// after the last search, and after restFactor times as long as that took.
const (
	ownersInterval = 2 * time.Second
	restFactor     = 10
)

// followOwners searches the owners of new buffers until ctx is done, while the view shows owners.
func followOwners(ctx context.Context, live *top.Live, find func(context.Context) error) {
	rest, searched := ownersInterval, uint64(0)
	for {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return
		}
		allocated, shown := live.OwnersShown()
		if !shown || allocated == searched {
			continue
		}
		begun := time.Now()
		if find(ctx) == nil {
			searched = allocated
		}
		rest = max(ownersInterval, restFactor*time.Since(begun))
	}
}

// endPatience is how long a command may take to end after it was signalled.
const endPatience = 5 * time.Second

// Stop ends watching, and the command, and reports whether it has.
func (w *Watch) Stop() bool {
	w.stop()
	select {
	case <-w.Done:
		return true
	case <-time.After(endPatience):
		return false
	}
}

// An Output takes the output of a command while the view has the terminal.
type Output struct {
	write  *os.File // nil: there is no command
	null   *os.File
	copied chan struct{}
}

// NewOutput passes the output of the command to the view.
func NewOutput(live *top.Live, source *source.Options) (*Output, error) {
	if len(source.Command) == 0 {
		return &Output{}, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	source.Console.Streams = host.Streams{In: null, Out: write, Err: write}
	t := &Output{write, null, make(chan struct{})}
	go func() {
		defer close(t.copied)
		defer read.Close()
		_, _ = io.Copy(live, read)
	}()
	return t, nil
}

// Close waits until the view has the output, but not for processes that outlive the command.
func (t *Output) Close() {
	if t.write == nil {
		return
	}
	t.write.Close()
	t.null.Close()
	select {
	case <-t.copied:
	case <-time.After(200 * time.Millisecond):
	}
}

// maxOutputLines is how many lines of a command's output are printed after the view.
const maxOutputLines = 20

// PrintOutput prints the last output of the command, which the view covered.
func PrintOutput(live *top.Live) {
	lines := live.Present(0).Output
	if n := len(lines); n > maxOutputLines {
		term.Warn(fmt.Sprintf("the last %d lines that the command wrote:", maxOutputLines))
		lines = lines[n-maxOutputLines:]
	}
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, line)
	}
}
