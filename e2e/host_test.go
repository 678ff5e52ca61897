package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// heldPerBank is the size of a buffer of host.py and hold.py in each DRAM bank: 512×512
// bfloat16 tiles, 256 pages on 12 banks.
const heldPerBank = 45056

// host is a trace of all processes of the host.
type host struct {
	*testing.T
	file   string // of the recording
	tracer *exec.Cmd
}

func traceHost(t *testing.T) *host {
	h := &host{T: t, file: filepath.Join(t.TempDir(), "events.ttmem")}
	h.tracer = attachTo(t, h.file)
	return h
}

// of returns the events of a process up to now. Other programs on this host are traced as
// well, and are ignored.
func (h *host) of(t *testing.T, pid int) []event.Event {
	t.Helper()
	return slices.DeleteFunc(readEvents(t, h.file), func(e event.Event) bool { return e.PID != pid })
}

// ended waits for the end of a process, the nth with this id, and returns its events.
func (h *host) ended(t *testing.T, pid, nth int) []event.Event {
	t.Helper()
	var events []event.Event
	waitFor(t, fmt.Sprintf("the end of process %d", pid), func() bool {
		events = h.of(t, pid)
		return kinds(events, event.ProcessExit) >= nth
	})
	return events
}

// holds checks that a process has this many live buffers, in time.
func (h *host) holds(t *testing.T, pid, buffers int) {
	t.Helper()
	var held uint64
	if !eventually(2*time.Minute, func() bool {
		state := aggregate.New()
		for _, e := range h.of(t, pid) {
			state.Apply(&e)
		}
		held = 0
		for _, b := range state.BuffersOf(pid) {
			held += b.BytesPerBank
		}
		return held == uint64(buffers)*heldPerBank
	}) {
		t.Errorf("process %d holds %d B of each bank, not those of %d buffers", pid, held, buffers)
	}
}

func kinds(events []event.Event, kind event.Kind) int {
	return count(events, func(e *event.Event) bool { return e.Kind == kind && !isLateName(e) })
}

// isLateName reports whether an event only adds the command line of a process that started before.
func isLateName(e *event.Event) bool { return e.Kind == event.ProcessStart && e.Reread }

// next is the command to continue.
func (p *target) next() { fmt.Fprintln(p.stdin) }

// traceLate starts processes of these releases, traces the host, and checks that they are traced when they load the
// library after that.
func traceLate(t *testing.T, releases ...string) *host {
	t.Helper()
	var late []*target
	for _, release := range releases {
		p := startTarget(t, setup(t, release, "3.10"), "n150", program(t, "host.py"), "late")
		p.expect(t, "started")
		late = append(late, p)
	}
	h := traceHost(t)
	for i, p := range late {
		p.next()
		p.expect(t, "holding")
		h.holds(t, p.Process.Pid, 3)
		start := h.of(t, p.Process.Pid)[0]
		qt.Check(t, qt.Equals(start.Kind, event.ProcessStart))
		qt.Check(t, qt.Equals(start.Start.Release, releases[i]))
		qt.Check(t, qt.Equals(start.Start.ContainerPID, 0))
	}
	for _, p := range late {
		p.next()
		p.expect(t, "closed")
		events := h.ended(t, p.Process.Pid, 1)
		qt.Check(t, qt.Equals(kinds(events, event.Alloc), 3))
		qt.Check(t, qt.Equals(explicit(events), 3))
	}
	return h
}

// One ttmem traces two releases on a host at once.
func TestTwoReleases(t *testing.T) {
	if tracetest.Tests("0.76.0") {
		traceLate(t, "0.76.0", "0.81.1")
	}
}

// One ttmem traces processes of all kinds on a host at once.
func TestHost(t *testing.T) {
	env, h := setup(t, "0.81.1", "3.10"), traceLate(t, "0.81.1")
	run := func(t *testing.T, what string) *target {
		return startTarget(t, env, "n150", program(t, "host.py"), what)
	}

	t.Run("fork", func(t *testing.T) {
		p := run(t, "fork")
		p.expect(t, "holding")
		p.next()
		var children []int
		for range 4 {
			children = append(children, p.expectPID(t, "child"))
		}
		p.expect(t, "forked")
		h.holds(t, p.Process.Pid, 3)
		p.next()
		p.expect(t, "holding 5")
		h.holds(t, p.Process.Pid, 5)
		p.next()
		p.expect(t, "closed")
		events := h.ended(t, p.Process.Pid, 1)
		qt.Check(t, qt.Equals(explicit(events), 5))
		qt.Check(t, qt.Equals(dropped(events), 0))
		for _, child := range children {
			for _, e := range h.of(t, child) {
				t.Errorf("a child that has only what it inherited: %+v", e)
			}
		}
	})

	t.Run("forked siblings", func(t *testing.T) {
		p := run(t, "siblings")
		p.expect(t, "holding")
		p.next()
		var children []int
		var addresses []string
		for range 2 {
			children = append(children, p.expectPID(t, "child"))
			addresses = append(addresses, p.expect(t, "address"))
		}
		qt.Assert(t, qt.Equals(addresses[0], addresses[1]))
		for pid, buffers := range map[int]uint64{p.Process.Pid: 3, children[0]: 1, children[1]: 3} {
			want := buffers * heldPerBank
			qt.Check(t, qt.Equals(waitForHeld(t, h.file, pid, want), want))
		}
		p.next()
		p.expect(t, "closed")
		qt.Check(t, qt.Equals(explicit(h.ended(t, p.Process.Pid, 1)), 3))
		for i, child := range children {
			events := h.ended(t, child, 1)
			qt.Check(t, qt.Equals(kinds(events, event.Alloc), 2*(i+1)))
			qt.Check(t, qt.Equals(explicit(events), 1))
			qt.Check(t, qt.Equals(kinds(events, event.Lost), 0))
		}
	})

	t.Run("posix_spawn and vfork", func(t *testing.T) {
		p := run(t, "spawn")
		p.expect(t, "holding")
		p.next()
		children := []int{p.expectPID(t, "child"), p.expectPID(t, "child")}
		p.expect(t, "spawned")
		h.holds(t, p.Process.Pid, 3)
		p.next()
		p.expect(t, "closed")
		events := h.ended(t, p.Process.Pid, 1)
		qt.Check(t, qt.Equals(explicit(events), 3))
		qt.Check(t, qt.Equals(kinds(events, event.ProcessExit), 1))
		for _, child := range children {
			qt.Check(t, qt.HasLen(h.of(t, child), 0))
		}
	})

	t.Run("exec", func(t *testing.T) {
		p := run(t, "become")
		p.expect(t, "holding 3")
		h.holds(t, p.Process.Pid, 3)
		p.next()
		p.expect(t, "holding 2")
		h.holds(t, p.Process.Pid, 2)
		p.next()
		events := h.ended(t, p.Process.Pid, 2)
		h.holds(t, p.Process.Pid, 0)
		qt.Check(t, qt.Equals(kinds(events, event.ProcessStart), 2))
		qt.Check(t, qt.Equals(dropped(events), 3+2))
		for _, e := range events {
			if e.Kind == event.ProcessExit {
				qt.Check(t, qt.Equals(e.ExitStatus, event.UnknownStatus))
			}
		}
	})

	t.Run("threads", func(t *testing.T) {
		p := run(t, "threads")
		p.expect(t, "holding")
		p.next()
		p.expect(t, "holding 20")
		h.holds(t, p.Process.Pid, 20)
		p.next()
		p.expect(t, "closed")
		tids := map[int]bool{}
		events := h.ended(t, p.Process.Pid, 1)
		for _, e := range events {
			if e.Kind == event.Alloc {
				tids[e.TID] = true
			}
		}
		qt.Check(t, qt.HasLen(tids, 4))
		qt.Check(t, qt.Equals(explicit(events), 20))
		qt.Check(t, qt.Equals(kinds(events, event.ProcessExit), 1))
	})

	t.Run("the first thread ends first", func(t *testing.T) {
		p := run(t, "first_thread_ends")
		p.expect(t, "started")
		p.waitForZombie(t)
		p.next()
		p.expect(t, "holding")
		h.holds(t, p.Process.Pid, 3)
		start := h.of(t, p.Process.Pid)[0]
		qt.Check(t, qt.Equals(start.Start.Release, "0.81.1"))
		qt.Check(t, qt.StringContains(start.Start.Command, "first_thread_ends"))
		p.next()
		events := h.ended(t, p.Process.Pid, 1)
		qt.Check(t, qt.Equals(explicit(events), 3))
		qt.Check(t, qt.Equals(events[len(events)-1].ExitStatus, 3<<8))
	})
}

// explicit counts the buffers that the process freed itself.
func explicit(events []event.Event) int {
	return count(events, func(e *event.Event) bool { return e.Kind == event.Free && e.Reason == event.ReasonExplicit })
}

// dropped counts the buffers that the end of the process freed.
func dropped(events []event.Event) int {
	return count(events, func(e *event.Event) bool { return e.Kind == event.Free && e.Reason == event.ReasonProcessExit })
}

// expectPID reads a process id that follows a word.
func (p *target) expectPID(t *testing.T, word string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(p.expect(t, word+" "), word+" "))
	qt.Assert(t, qt.IsNil(err))
	return pid
}

// waitForZombie waits until the process's first thread has ended.
func (p *target) waitForZombie(t *testing.T) {
	t.Helper()
	waitFor(t, "the first thread to end", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		qt.Assert(t, qt.IsNil(err))
		return strings.Contains(string(text), ") Z ")
	})
}

// A process can be attached to by its id although its first thread has ended.
func TestAttachAfterFirstThread(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "host.py"), "first_thread_ends")
	p.expect(t, "started")
	p.waitForZombie(t)
	p.next()
	p.expect(t, "holding")
	file := filepath.Join(t.TempDir(), "events.ttmem")
	tracer := attachTo(t, file, p.Process.Pid)
	qt.Check(t, qt.Equals(waitForHeld(t, file, p.Process.Pid, 3*heldPerBank), 3*heldPerBank)) // it is not considered ended
	p.next()
	p.expect(t, "closed")
	qt.Check(t, qt.IsNil(tracer.Wait()))
	events := readEvents(t, file)
	qt.Assert(t, qt.IsTrue(len(events) > 0))
	last := events[len(events)-1]
	qt.Check(t, qt.Equals(last.Kind, event.ProcessExit))
	qt.Check(t, qt.Equals(last.ExitStatus, 3<<8))
}
