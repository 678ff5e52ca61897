package source

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// TestACommandWaitsForItsEvents: on a busy host a service has the events of a command after its end, as of a program that
// takes less than a second.
func TestACommandWaitsForItsEvents(t *testing.T) {
	hub := service.NewHub(aggregate.New())
	var asked atomic.Int32
	server := service.NewServer(hub, service.Options{Version: "1.2.3", HandledNs: func() uint64 {
		if asked.Add(1) < 3 {
			return 1
		}
		hub.Apply(&event.Event{Kind: event.ProcessStart, PID: 7, TimeNs: host.Now(), Comm: "late", UID: os.Getuid(), Start: new(event.Start)})
		hub.Flush()
		return math.MaxUint64
	}})
	socket, err := service.Listen(filepath.Join(t.TempDir(), "s"))
	qt.Assert(t, qt.IsNil(err))
	served := make(chan error)
	go func() { served <- server.ServeUnix(socket) }()
	defer func() {
		server.Close()
		qt.Check(t, qt.IsNil(<-served))
		qt.Check(t, qt.IsNil(socket.Close()))
	}()
	client, err := service.Dial(socket.Path())
	qt.Assert(t, qt.IsNil(err))
	of, err := newOrdinary(client, func(why string) { t.Error(why) }, []int{7}, true, "")
	qt.Assert(t, qt.IsNil(err))
	defer of.Close()
	ctx, end := context.WithCancel(t.Context())
	end()
	var got []string
	qt.Assert(t, qt.IsNil(of.Run(ctx, func(e *event.Event) { got = append(got, e.Comm) }, func() {})))
	qt.Check(t, qt.IsTrue(asked.Load() >= 3))
	qt.Check(t, qt.IsTrue(of.Discovered()))
	qt.Check(t, qt.DeepEquals(got[max(0, len(got)-1):], []string{"late"}))
}
