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

// TestAnswersWaitForWhatWasThereBefore: a service that has just begun does not report an empty
// chip while the memory of a process is read.
func TestAnswersWaitForWhatWasThereBefore(t *testing.T) {
	var reading atomic.Bool
	var looks atomic.Int32
	reading.Store(true)
	host := testHub()
	server := NewServer(host.hub, Options{Version: "1.2.3", Reading: func() bool { looks.Add(1); return reading.Load() }})
	server.started = time.Now().Add(time.Hour) // however slow the machine is, patience does not end
	path, _ := serveOn(t, server)
	c, err := Dial(path) // health is answered at once
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	h, err := c.Health(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(h.Reading))

	begun := looks.Load()
	go func() {
		for looks.Load() < begun+3 { // until the answer waits
			time.Sleep(time.Millisecond)
		}
		host.apply(event.Event{Kind: event.ProcessStart, PID: 11, UID: os.Getuid()})
		reading.Store(false)
	}()
	s, err := c.Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(s.Reading))
	qt.Check(t, qt.HasLen(s.Processes, 2))
}

// TestAnswersDoNotWaitForEver: once patience is over, an answer looks once whether it has to wait,
// and once what to say.
func TestAnswersDoNotWaitForEver(t *testing.T) {
	var looks atomic.Int32
	server := NewServer(testHub().hub, Options{Version: "1.2.3", Reading: func() bool { looks.Add(1); return true }})
	server.started = time.Now().Add(-readPatience)
	path, _ := serveOn(t, server)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	begun := looks.Load()
	s, err := c.Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(s.Reading))
	qt.Check(t, qt.Equals(looks.Load()-begun, 2))
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
