package source

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// lookTime bounds the final search for owners.
const lookTime = 30 * time.Second

// A lastLook searches the owners of buffers before watching ends.
type lastLook struct {
	of *Options
	// ctx is done when watching ends, or after skip.
	ctx  context.Context
	skip context.CancelFunc
	// begun is true once the search has begun.
	begun *atomic.Bool
}

func newLastLook(ctx context.Context, o *Options) lastLook {
	l := lastLook{of: o, begun: new(atomic.Bool)}
	l.ctx, l.skip = context.WithCancel(ctx)
	return l
}

// run looks, with find, if the page or the recording shows owners. Once it runs, another call ends it.
func (l *lastLook) run(find func(ctx context.Context)) {
	if !l.of.Owners {
		return
	}
	if l.begun.Swap(true) {
		l.skip()
		return
	}
	ctx, done := context.WithTimeout(l.ctx, lookTime)
	defer done()
	slow := time.AfterFunc(time.Second, func() { l.of.Console.warn("searching the owners of buffers; Ctrl-C skips the search") })
	defer slow.Stop()
	find(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		l.of.Console.warn(fmt.Sprintf("the last search for owners did not end within %v: owners are from the previous search", lookTime))
	}
}
