package service

import (
	"context"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// TestHealthNeedsNoPause: it is answered while the share of time in which the tracer may wait for
// clients is used up, which a snapshot waits for.
func TestHealthNeedsNoPause(t *testing.T) {
	hub := testHub().hub
	path, _ := serve(t, hub)
	end, err := hub.pausing.take(t.Context(), client{uid: 1000})
	qt.Assert(t, qt.IsNil(err))
	defer end(0, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = hub.Snapshot(ctx, root)
	qt.Assert(t, qt.ErrorIs(err, context.DeadlineExceeded))
	hub.Counts()
	qt.Check(t, qt.StringContains(talk(t, path, "GET /v1/health HTTP/1.0\r\n\r\n"), `"processes":`))
}
