package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// `ttmem run` sees the first allocation and every free up to the device's close, every
// time, even if it cannot know the library before the command maps it. Then it may lose some on a busy host, and
// says so, but not time and again.
func TestFirstAndLast(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	runs := 4
	switch {
	case *tracetest.Long:
		runs = 100
	case testing.Short():
		runs = 2
	}
	python := env.Command(context.Background(), "n150").Path
	for i := range runs {
		args := []string{python, program(t, "one.py")}
		hidden := i%4 == 3 // ttmem cannot see which Python the shell will start
		switch {
		case hidden:
			args = []string{"sh", "-c", `"${0%-}" "$1"; true`, python + "-", program(t, "one.py")}
		case i%2 == 1:
			args = []string{"sh", "-c", fmt.Sprintf("%s %s; true", python, program(t, "one.py"))}
		}
		var events []event.Event
		var out []byte
		for tries := 3; tries > 0; tries-- {
			dir := t.TempDir()
			file := filepath.Join(dir, "events.ttmem")
			cmd := exec.Command(ttmem, append([]string{"run", "-o", file, "--"}, args...)...)
			cmd.Dir = dir
			cmd.Env = testEnviron(env.Command(context.Background(), "n150").Env, "n150", dir)
			var err error
			out, err = cmd.CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			events = readEvents(t, file)
			if !hidden || !isLate(events) {
				break
			}
			t.Logf("run %d: %s", i, out)
		}
		var allocs []uint64
		for _, e := range events {
			if e.Kind == event.Alloc {
				allocs = append(allocs, e.BufferID)
			}
		}
		// views made by ttnn take the odd ids
		qt.Assert(t, qt.DeepEquals(allocs, []uint64{0, 2, 4, 6, 8}), qt.Commentf("run %d: %s", i, out))
		qt.Assert(t, qt.Equals(count(events, func(e *event.Event) bool { return e.Kind == event.Free }), 5))
		qt.Assert(t, qt.Equals(count(events, func(e *event.Event) bool { return e.Kind == event.DeviceOpen }), 1))
		assertEnded(t, events)
	}
}

// isLate reports whether a recording says that its program allocated before ttmem had attached to its library, of which
// ttmem did not know before: on a busy host a program may have ended by then.
func isLate(events []event.Event) bool {
	return slices.ContainsFunc(events, func(e event.Event) bool {
		return e.Kind == event.Lost && slices.Contains([]string{
			"allocated before all probes were in place", "process ended before its library was traced", "process ended before its code was read",
		}, e.Cause)
	})
}

// Killing ttmem in the middle of 100,000 events does not affect the target and leaves no
// probe in it.
func TestKilledTracer(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	p := startTarget(t, env, "n150", program(t, "loop.py"), "50000", "2")
	p.expect(t, "ready")
	file := filepath.Join(t.TempDir(), "events.ttmem")
	tracer := attachTo(t, file, p.Process.Pid)
	placed := probesIn(t, p)
	qt.Assert(t, qt.IsTrue(placed > 10), qt.Commentf("%d probes are seen in the target", placed))

	fmt.Fprintln(p.stdin) // the first round
	waitForSize(t, file, 16<<10)
	qt.Assert(t, qt.IsNil(tracer.Process.Kill()))
	tracer.Wait()
	p.expect(t, "")
	// a child that reads memory for it ends a moment later
	waitFor(t, "the probes to be gone", func() bool { return probesIn(t, p) == 0 })

	fmt.Fprintln(p.stdin) // the second
	p.expect(t, "")
	p.expect(t, "done")
	qt.Assert(t, qt.IsNil(p.Wait()))
	// what was written before can be read
	allocs := kinds(readEvents(t, file), event.Alloc)
	qt.Check(t, qt.IsTrue(allocs > 100 && allocs <= 50000), qt.Commentf("%d allocations", allocs))
}

// Processes that end during an attach are reported in one line, and nothing hangs.
func TestEndsDuringAttach(t *testing.T) {
	t.Parallel()
	times := 8
	if *tracetest.Long {
		times = 50
	}
	for range times {
		p := exec.Command("sleep", "0.02")
		qt.Assert(t, qt.IsNil(p.Start()))
		go p.Wait()
		_, stderr, status := runTtmem(t, nil, "attach", "-p", fmt.Sprint(p.Process.Pid))
		qt.Check(t, qt.Equals(status, 1))
		qt.Check(t, qt.HasLen(lines(stderr), 1), qt.Commentf("%s", stderr))
	}
}

// Processes with the same and with different library files are kept apart, and a killed one
// has nothing live.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			assertApart(t, setup(t, "0.81.1", "3.10"), setup(t, "0.81.1", "3.10"), setup(t, version, "3.10"))
		})
	}
}

func assertApart(t *testing.T, envs ...*rig.Env) {
	t.Helper()
	var targets []*target
	var pids []int
	for i, env := range envs {
		p := startTarget(t, env, "n150", program(t, "hold.py"), fmt.Sprint(3+i), "512", "wait")
		p.expect(t, "opened")
		targets, pids = append(targets, p), append(pids, p.Process.Pid)
	}
	file := filepath.Join(t.TempDir(), "events.ttmem")
	tracer := attachTo(t, file, pids...)
	for _, p := range targets {
		fmt.Fprintln(p.stdin)
	}
	for _, p := range targets {
		p.expect(t, "holding")
	}
	const perBank = 45056 // 512×512 bfloat16 tiles: 256 pages on 12 banks
	for i, pid := range pids {
		held := waitForHeld(t, file, pid, uint64(3+i)*perBank)
		qt.Check(t, qt.Equals(held, uint64(3+i)*perBank))
	}
	// Each of them has an allocator, which assigns the same addresses: these are in use once.
	checkTotal := func(used, again uint64) {
		t.Helper()
		region := regionOf(stateOf(t, file).Snapshot(), 0, event.DRAM)
		qt.Check(t, qt.Equals(region.BytesPerBank, used*perBank))
		qt.Check(t, qt.Equals(region.OverlapBytesPerBank, again*perBank))
	}
	checkTotal(5, 3+4)

	qt.Assert(t, qt.IsNil(targets[1].Process.Signal(syscall.SIGKILL)))
	targets[1].Wait()
	qt.Check(t, qt.Equals(waitForHeld(t, file, pids[1], 0), 0))
	checkTotal(5, 3)
	killed := count(readEvents(t, file), func(e *event.Event) bool {
		return e.Kind == event.Free && e.PID == pids[1] && e.Reason == event.ReasonProcessExit
	})
	qt.Check(t, qt.Equals(killed, 4))

	for _, i := range []int{0, 2} {
		targets[i].stdin.Close()
		qt.Check(t, qt.IsNil(targets[i].Wait()))
	}
	qt.Check(t, qt.IsNil(tracer.Wait())) // all of them have ended
	checkTotal(0, 0)
}

// A process is traced that is in its own mount namespace, with its own copy of the library, which
// is deleted before ttmem starts.
func TestOtherNamespace(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) { assertOtherNamespace(t, version) })
	}
}

func assertOtherNamespace(t *testing.T, version string) {
	t.Helper()
	env := setup(t, version, "3.10")
	dir := t.TempDir()
	p, own := startWithOwnLibrary(t, env, dir, program(t, "hold.py"), "6", "512", "wait")
	p.expect(t, "opened")
	qt.Assert(t, qt.IsNil(os.Remove(own)))

	file := filepath.Join(dir, "events.ttmem")
	attachTo(t, file, p.Process.Pid)
	fmt.Fprintln(p.stdin)
	p.expect(t, "holding")
	const perBank = 45056
	qt.Check(t, qt.Equals(waitForHeld(t, file, p.Process.Pid, 6*perBank), 6*perBank))
	for _, e := range readEvents(t, file) {
		if e.Kind == event.ProcessStart {
			qt.Check(t, qt.Equals(e.Start.Release, version))
		}
	}
	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()))
}

// A program that overwrites a library in place waits until the probes are gone; they would
// end up in the middle of other instructions.
func TestOverwrittenLibrary(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) { assertOverwritten(t, setup(t, version, "3.10")) })
	}
}

func assertOverwritten(t *testing.T, env *rig.Env) {
	t.Helper()
	dir := t.TempDir()
	p, own := startWithOwnLibrary(t, env, dir, program(t, "hold.py"), "6", "512")
	p.expect(t, "holding")
	file := filepath.Join(dir, "events.ttmem")
	tracer := attachTo(t, file, p.Process.Pid)
	qt.Assert(t, qt.IsTrue(probesIn(t, p) > 10))

	writer, err := os.OpenFile(own, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(probesIn(t, p), 0))
	qt.Assert(t, qt.IsNil(writer.Close()))

	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()))
	qt.Check(t, qt.IsNil(tracer.Wait()))
	qt.Check(t, qt.Equals(count(readEvents(t, file), func(e *event.Event) bool {
		return e.Kind == event.Lost && e.PID == p.Process.Pid && e.Cause == "library overwritten"
	}), 1))
}

// No event is lost of 200,000 in a tight loop.
func TestManyEvents(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	run := traceRun(t, env, "n150", program(t, "loop.py"), "50000")
	qt.Assert(t, qt.Equals(run.status, 0))
	for kind, want := range map[event.Kind]int{event.Alloc: 50000, event.Free: 50000, event.Lost: 0} {
		qt.Check(t, qt.Equals(count(run.events, func(e *event.Event) bool { return e.Kind == kind }), want))
	}
}

// Records that were not read when ttmem was stopped are still reported.
func TestEndWithFullRing(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "loop.py"), "30000", "1")
	p.expect(t, "ready")
	file := filepath.Join(t.TempDir(), "events.ttmem")
	attach := attachTo(t, file, p.Process.Pid)
	qt.Assert(t, qt.IsNil(attach.Process.Signal(syscall.SIGSTOP)))
	fmt.Fprintln(p.stdin)
	p.expect(t, "done")
	qt.Assert(t, qt.IsNil(attach.Process.Signal(syscall.SIGINT)))
	qt.Assert(t, qt.IsNil(attach.Process.Signal(syscall.SIGCONT)))
	waitEnd(t, attach.Wait)
	events := readEvents(t, file)
	for kind, want := range map[event.Kind]int{event.Alloc: 30000, event.Free: 30000, event.Lost: 0} {
		qt.Check(t, qt.Equals(count(events, func(e *event.Event) bool { return e.Kind == kind }), want))
	}
}
