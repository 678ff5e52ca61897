package service

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestAnswersWaitForWhatWasThereBefore: a service that has just begun does not
// report an empty chip while the memory of a process is read; nor does the client wait for ever.
func TestAnswersWaitForWhatWasThereBefore(t *testing.T) {
	var reading atomic.Bool
	reading.Store(true)
	host := testHub()
	path, _ := serveWith(t, host.hub, Options{Reading: reading.Load})
	c, err := Dial(path) // health is answered at once
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	h, err := c.Health(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(h.Reading))

	time.AfterFunc(300*time.Millisecond, func() {
		host.apply(event.Event{Kind: event.ProcessStart, PID: 11, UID: os.Getuid()})
		reading.Store(false)
	})
	s, err := c.Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(s.Reading))
	qt.Check(t, qt.HasLen(s.Processes, 2))

	reading.Store(true)
	time.Sleep(readPatience)
	began := time.Now()
	s, err = c.Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(s.Reading))
	qt.Check(t, qt.IsTrue(time.Since(began) < readPatience/2))
}

// TestAStreamHasTheVersionOfItsService, as ttmem --version has it.
func TestAStreamHasTheVersionOfItsService(t *testing.T) {
	path, _ := serve(t, testHub().hub)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r, err := c.Stream(ctx)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(r.Header().Ttmem, "1.2.3"))
}
