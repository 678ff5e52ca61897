package host

import (
	"context"
	"time"
)

// patienceTick is how often time is counted. What passes beyond two ticks at once was not this process's own.
const patienceTick = 2 * time.Millisecond

// Patient returns a context that ends with ErrNoAnswer after a time in which this process had a processor. On a busy host, or where
// ttmem has a limit of its own, others' answers are late without their fault.
func Patient(parent context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	tick, from := min(patience, patienceTick), Now()
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		now := Now()
		patience -= min(time.Duration(now-from), 2*tick)
		from = now
		switch {
		case patience <= 0:
			end(ErrNoAnswer)
		case ctx.Err() == nil:
			timer.Reset(tick)
		}
	})
	timer.Reset(tick)
	return ctx, func() {
		timer.Stop()
		end(nil)
	}
}
