package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/top"
	"ttmem/tracer/event"
)

// topWatch is the watching beside the view.
type topWatch struct {
	*top.Live
	began, done chan struct{}
	stop        context.CancelFunc
	// mark names a moment among the events; nil before they come.
	mark        func(name string) error
	err, status error
}

// Mark sets the mark of the view, and one of its name for all who follow the service.
func (w *topWatch) Mark() {
	w.Live.Mark()
	if w.mark == nil {
		return
	}
	go func() {
		if err := w.mark("top " + time.Now().Format(time.TimeOnly)); err != nil {
			w.Note("the mark is of this view alone: " + err.Error())
		}
	}()
}

// startTopWatch begins to bring what is live up to date.
func startTopWatch(o *topOptions, live *top.Live) *topWatch {
	w := &topWatch{Live: live, began: make(chan struct{}), done: make(chan struct{})}
	source := o.source
	source.ctx, w.stop = context.WithCancel(context.Background())
	begin := sync.OnceFunc(func() { close(w.began) })
	source.began = func(mark func(string) error) {
		w.mark = mark
		begin()
	}
	if source.file != "" {
		live.Doing("reading")
	}
	if source.ownOnly() {
		live.OwnOnly(othersUnknown)
	}
	if source.file == "" && len(source.command) == 0 {
		go followService(source.ctx, &source, live)
	}
	go func() {
		defer close(w.done)
		watched, err := source.watch(func(e *event.Event) {
			begin()
			live.Handle(e)
		}, func() {})
		why := "ended"
		switch {
		case err != nil:
			w.err, why = err, err.Error()
		case source.file != "":
			why = "its end"
		case len(source.command) > 0:
			why = fmt.Sprintf("ended with status %d", watched.exit)
		}
		if watched != nil {
			w.status = watched.status()
			for _, note := range watched.notes {
				live.Note(note)
			}
		}
		live.End(why)
	}()
	return w
}

// ownOnly reports whether the user sees his own processes alone: a service tells who is
// not root no more.
func (o *sourceOptions) ownOnly() bool {
	return o.file == "" && len(o.command) == 0 && os.Geteuid() != 0
}

// serviceInterval is the time between two looks at what a service tells beside events.
const serviceInterval = 2 * time.Second

// followService tells live what the service knows beside its events until ctx is done:
// whether it still reads memory, and to who sees his own processes alone what other users
// hold. Where no service is asked there is nothing to tell.
func followService(ctx context.Context, source *sourceOptions, live *top.Live) {
	for ctx.Err() == nil {
		client, err := source.service()
		switch {
		case err == nil && client == nil:
			return
		case err == nil:
			if health, err := client.Health(ctx); err == nil {
				live.Unread(health.Reading)
			}
			if source.ownOnly() {
				live.OwnOnly(otherUsers(ctx, client))
			}
			client.Close()
		case source.ownOnly():
			live.OwnOnly(othersUnknown)
		}
		select {
		case <-time.After(serviceInterval):
		case <-ctx.Done():
		}
	}
}

// othersUnknown is said to a user who sees his own processes alone where it is not known
// what others hold.
const othersUnknown = "what other users hold is not known"

// otherUsers is what the service tells of other users.
func otherUsers(ctx context.Context, client *service.Client) string {
	snap, err := client.Snapshot(ctx)
	if err != nil {
		return othersUnknown
	}
	return page.OthersHold(snap)
}

// endPatience is how long a command may take to end that was asked to.
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
