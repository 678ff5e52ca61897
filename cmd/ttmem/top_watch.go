package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/cmd/ttmem/top"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// topWatch follows events while the view is shown.
type topWatch struct {
	*top.Live
	began, done chan struct{}
	stop        context.CancelFunc
	// mark names a moment among the events; nil before they come.
	mark        func(name string) error
	err, status error
}

// Mark sets the mark of the view, and a mark of the service.
func (w *topWatch) Mark() {
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

// startTopWatch begins to follow events.
func startTopWatch(o *topOptions, live *top.Live) *topWatch {
	w := &topWatch{Live: live, began: make(chan struct{}), done: make(chan struct{})}
	from := o.source
	from.Ctx, w.stop = context.WithCancel(context.Background())
	begin := sync.OnceFunc(func() { close(w.began) })
	from.Started = func(mark func(string) error) {
		w.mark = mark
		begin()
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
		defer close(w.done)
		summary, err := from.Watch(func(e *event.Event) {
			begin()
			live.Handle(e)
		})
		why := "ended"
		switch {
		case err != nil:
			w.err, why = err, err.Error()
		case from.File != "":
			why = "its end"
		case len(from.Command) > 0:
			why = fmt.Sprintf("ended with status %d", summary.Exit)
		}
		if summary != nil {
			w.status = summary.Status()
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
// users who see only their own processes, what other users have.
func followService(ctx context.Context, from *source.Options, live *top.Live) {
	for ctx.Err() == nil {
		client, err := from.Service()
		switch {
		case err == nil && client == nil:
			return
		case err == nil:
			if health, err := client.Health(ctx); err == nil {
				live.Unread(health.Reading)
			}
			if from.OwnProcessesOnly() {
				others, chips := source.OtherUsers(ctx, client)
				live.OwnOnly(others)
				live.Chips(chips, source.MonotonicNow())
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

// endPatience is how long a command may take to end after it was signalled.
const endPatience = 5 * time.Second

// end ends watching, and the command, and reports whether it has.
func (w *topWatch) end() bool {
	w.stop()
	select {
	case <-w.done:
		return true
	case <-time.After(endPatience):
		return false
	}
}

// A topOutput takes the output of a command while the view has the terminal.
type topOutput struct {
	write  *os.File // nil: there is no command
	null   *os.File
	copied chan struct{}
}

// newTopOutput passes the output of the command to the view.
func newTopOutput(live *top.Live, source *source.Options) (*topOutput, error) {
	if len(source.Command) == 0 {
		return &topOutput{}, nil
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
	t := &topOutput{write, null, make(chan struct{})}
	go func() {
		defer close(t.copied)
		defer read.Close()
		_, _ = io.Copy(live, read)
	}()
	return t, nil
}

// close waits until the view has the output, but not for processes that outlive the command.
func (t *topOutput) close() {
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

// printOutput prints the last output of the command, which the view covered.
func printOutput(live *top.Live) {
	lines := live.Present(0).Output
	if n := len(lines); n > maxOutputLines {
		term.Warn(fmt.Sprintf("the last %d lines that the command wrote:", maxOutputLines))
		lines = lines[n-maxOutputLines:]
	}
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, line)
	}
}
