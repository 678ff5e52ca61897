package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
)

// One process makes more events while the service is stopped than its ring buffer holds, so some are
// lost. Ten quiet processes lose none, and no page about them has a warning. Once the loud process
// rests, its figures are right again.
func TestLoudProcessBesideQuietOnes(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	file := filepath.Join(t.TempDir(), "host.ttmem")
	s := startServer(t, "-o", file)
	s.discover(t, env)
	const pairs = 120_000
	loud := startTarget(t, env, rig.N150, program(t, "loop.py"), fmt.Sprint(pairs), "2")
	loud.expect(t, "ready")
	quiet := startTarget(t, env, rig.N150, program(t, "quiet.py"), "10")
	t.Cleanup(func() { quiet.stdin.Close() }) // otherwise its children stay
	var pids []int
	for _, pid := range strings.Fields(quiet.expect(t, "opened"))[1:] {
		var n int
		_, err := fmt.Sscan(pid, &n)
		qt.Assert(t, qt.IsNil(err))
		pids = append(pids, n)
	}
	for _, pid := range append(pids, loud.Process.Pid) {
		waitFor(t, "the service to know the process", func() bool { return s.knows(t, pid) })
	}

	qt.Assert(t, qt.IsNil(s.Process.Signal(unix.SIGSTOP)))
	loud.next()
	var took time.Duration
	_, err := fmt.Sscan(loud.expect(t, ""), &took)
	qt.Assert(t, qt.IsNil(err))
	t.Logf("the loud process made %.0f events a second of its processor time", 2*pairs/took.Seconds())
	quiet.next()
	quiet.expect(t, "holding")
	qt.Assert(t, qt.IsNil(s.Process.Signal(unix.SIGCONT)))

	of := func(pid int) (found memory.Process) {
		for _, p := range s.snapshot(t).Processes {
			if p.PID == pid {
				found = p
			}
		}
		return found
	}
	lost := func(pid int) uint64 { p := of(pid); return p.Count() }
	waitFor(t, "the loss", func() bool { return lost(loud.Process.Pid) > 0 })
	for _, pid := range pids {
		waitFor(t, "the buffers of a quiet process", func() bool { return dramBuffers(s.snapshot(t), pid) == 10 })
		qt.Check(t, qt.Equals(lost(pid), 0))
		const buffer = 24 << 10 // four tiles take a page of each of 12 banks
		devices := of(pid).Devices
		qt.Assert(t, qt.HasLen(devices, 1))
		qt.Check(t, qt.Equals(devices[0].Regions.DRAM.AllocatedBytes, 10*buffer))
		qt.Check(t, qt.Equals(devices[0].Regions.DRAM.PeakBytes, 20*buffer))
	}
	snapshot := s.snapshot(t)
	qt.Check(t, qt.HasLen(snapshot.Lost, 0)) // of no known process
	check := func(page string, pids ...int) {
		args := append(strings.Fields(page), "--socket", s.socket)
		for _, pid := range pids {
			args = append(args, "-p", fmt.Sprint(pid))
		}
		stdout, stderr, status := runTtmem(t, nil, args...)
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, stderr))
		qt.Check(t, qt.Not(qt.StringContains(stdout+stderr, "lost")), qt.Commentf("%s", args))
	}
	for _, pid := range pids {
		check("report", pid)
		check("top --once", pid)
	}
	for _, page := range []string{"dump", "map", "oom", "ops", "peak --duration 1s", "leaks --duration 1s"} {
		check(page, pids...)
	}

	log := []string{"log", file}
	for _, pid := range pids {
		log = append(log, "-p", fmt.Sprint(pid))
	}
	allocated := regexp.MustCompile(` alloc .* 8\.0 KiB +2\.0 KiB . 12 `) // as printed, × or x
	waitFor(t, "the recording to have the quiet processes' buffers", func() bool {
		stdout, stderr, status := runTtmem(t, nil, log...)
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
		qt.Assert(t, qt.Not(qt.StringContains(stdout+stderr, "lost")))
		return len(allocated.FindAllString(stdout, -1)) == 20*len(pids)
	})

	waitFor(t, "the figures of the loud process to be right", func() bool { return of(loud.Process.Pid).RightSinceNs > 0 })
	p := of(loud.Process.Pid)
	qt.Check(t, qt.HasLen(p.Lost, 0))
	qt.Check(t, qt.Equals(dramBuffers(s.snapshot(t), loud.Process.Pid), 0))
	t.Logf("%d events of the loud process were lost", p.Count())
	_, stderr, status := runTtmem(t, nil, "dump", "--socket", s.socket, "-p", fmt.Sprint(loud.Process.Pid))
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.Not(qt.StringContains(stderr, "lost")))
}
