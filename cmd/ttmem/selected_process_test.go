package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestOneProcessIsShownAlone: -p selects in each view of what is live, as in recordings.
func TestOneProcessIsShownAlone(t *testing.T) {
	var events []event.Event
	for i, pid := range []int{100, 200} {
		r := newTrainingRun(pid)
		r.alloc(event.DRAM, uint64(i+1)<<20, pagetest.Stack("empty", []string{"OfFirst", "OfSecond"}[i]+".load", 7))
		events = append(events, r.events...)
	}
	file := writeEvents(t, "run.ttmem", events)
	path := filepath.Join(t.TempDir(), "s")
	serveEvents(t, path, events)

	for _, from := range [][]string{{file}, {"--socket", path}} {
		for _, view := range [][]string{{"map"}, {"map", "--json"}, {"top", "--once"}, {"dump"}} {
			args := append(append(view, from...), "-p", "200")
			out, err := commandOutput(t, args...)
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", args, out))
			qt.Check(t, qt.StringContains(out, "OfSecond"), qt.Commentf("%v", args))
			qt.Check(t, qt.IsFalse(strings.Contains(out, "OfFirst")), qt.Commentf("%v:\n%s", args, out))
			args[len(args)-1] = "300"
			qt.Check(t, qt.StringContains(commandSays(t, args...).Error(), "-p 300: "), qt.Commentf("%v", args))
		}
	}
}

// serveEvents returns the hub of a service that has seen events.
func serveEvents(t *testing.T, path string, events []event.Event) *service.Hub {
	t.Helper()
	return serveWith(t, path, events, service.Options{Version: "1"})
}

func serveWith(t *testing.T, path string, events []event.Event, o service.Options) *service.Hub {
	t.Helper()
	hub := service.NewHub(aggregate.New())
	for i := range events {
		hub.Apply(&events[i])
	}
	socket, err := service.Listen(path)
	qt.Assert(t, qt.IsNil(err))
	server := service.NewServer(hub, o)
	t.Cleanup(server.Close)
	go server.ServeUnix(socket)
	return hub
}
