package main

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
)

func TestServeLogsAProcessInALine(t *testing.T) {
	for _, c := range []struct {
		start event.Event
		want  string
	}{
		{event.Event{PID: 7, UID: 1000, Start: &event.Start{Command: "python model.py", Release: "0.81.1"}},
			"tracing PID 7 of user 1000: python model.py; ttnn 0.81.1"},
		{event.Event{PID: 7, Comm: "py", Start: &event.Start{AttachedLate: true}}, "tracing PID 7 of user 0: py; attached late"},
		{event.Event{PID: 7}, "tracing PID 7 of user 0: ?"},
		{event.Event{PID: 7, Start: &event.Start{Command: "a\nttmem: PID 1 ended\x1b[2J" + string(make([]byte, 3))}},
			"tracing PID 7 of user 0: a ttmem: PID 1 ended[2J"},
	} {
		qt.Check(t, qt.Equals(startLine(&c.start), c.want))
	}
	long := event.Event{PID: 7, Start: &event.Start{Command: string(make([]byte, 0, 1))}}
	for range 1000 {
		long.Start.Command += "x"
	}
	qt.Check(t, qt.IsTrue(len(startLine(&long)) < 200))
}

func TestServeLogsUnfreedBuffersOfAnEndedProcess(t *testing.T) {
	s, err := newHostService(record.Options{}, term.NewLimiter(term.Warn))
	qt.Assert(t, qt.IsNil(err))
	lines := make(map[int]string)
	take := func(e event.Event) {
		s.take(&e)
		if e.Kind == event.ProcessExit {
			p, _ := s.state.Ended(e.PID)
			lines[e.PID] = exitLine(p)
		}
	}
	alloc := func(pid int, id uint64, region event.Region, chips ...int) {
		take(event.Event{
			Kind: event.Alloc, PID: pid, BufferID: id, Devices: chips, Region: region, BytesPerBank: 1 << 10, Banks: 12,
		})
	}
	alloc(1, 1, event.DRAM, 0, 1)
	alloc(1, 2, event.DRAM, 0)
	alloc(1, 3, event.L1, 0)
	alloc(1, 4, event.L1, 0)
	take(event.Event{Kind: event.Free, PID: 1, BufferID: 4, Region: event.L1, Reason: event.ReasonExplicit})
	alloc(2, 1, event.DRAM, 0)
	take(event.Event{Kind: event.Free, PID: 2, BufferID: 1, Region: event.DRAM, Reason: event.ReasonExplicit})
	take(event.Event{Kind: event.ProcessExit, PID: 1, ExitStatus: 9})
	take(event.Event{Kind: event.ProcessExit, PID: 2, ExitStatus: 3 << 8})
	take(event.Event{Kind: event.ProcessStart, PID: 3})
	take(event.Event{Kind: event.ProcessExit, PID: 3, ExitStatus: event.UnknownStatus})
	take(event.Event{Kind: event.Alloc, PID: 4, BufferID: 1, Allocator: 9, Devices: []int{0}, BytesPerBank: 1 << 10, Banks: 12})
	take(event.Event{Kind: event.DeviceClose, PID: 4, Allocator: 9})
	take(event.Event{Kind: event.ProcessExit, PID: 4})
	qt.Check(t, qt.DeepEquals(lines, map[int]string{
		1: "PID 1 ended by SIGKILL; unfreed: 36.0 KiB of DRAM, 12.0 KiB of L1",
		2: "PID 2 ended with status 3; everything was freed",
		3: "PID 3 ended; everything was freed",
		4: "PID 4 ended; freed by closing the device: 12.0 KiB of DRAM",
	}))
}

func TestServeLogsItsEnd(t *testing.T) {
	qt.Check(t, qt.Equals(summaryLine(time.Second, 1, 1), "ended after 1.0 s: 1 process traced, 1 event lost"))
	qt.Check(t, qt.Equals(summaryLine(time.Second, 2, 0), "ended after 1.0 s: 2 processes traced, 0 events lost"))
}

func TestServeRefusesFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--max-size", "1GiB"}, ".*give -o too"},
		{[]string{"--keep", "3"}, ".*give -o too"},
		{[]string{"-o", "f", "--keep", "3"}, ".*needs --max-size: give both"},
		{[]string{"--allow-remote"}, ".*give --http too"},
		{[]string{"--token-file", "f"}, ".*give --http too"},
		{[]string{"extra"}, `serve takes no argument "extra": it traces the whole host`},
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"serve"}, c.args...)...), c.want), qt.Commentf("%v", c.args))
	}
}
