package source

import (
	"context"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestTheLastLookIsSkipped by a second request to end, and is not taken by commands that show no owners.
func TestTheLastLookIsSkipped(t *testing.T) {
	l := newLastLook(t.Context(), &Options{Owners: true})
	looking, over := make(chan struct{}), make(chan error)
	go l.run(func(ctx context.Context) {
		close(looking)
		<-ctx.Done()
		over <- ctx.Err()
	})
	<-looking
	l.run(func(context.Context) { t.Error("a second look") })
	qt.Check(t, qt.ErrorIs(<-over, context.Canceled))

	l = newLastLook(t.Context(), &Options{})
	l.run(func(context.Context) { t.Error("a look") })
}
