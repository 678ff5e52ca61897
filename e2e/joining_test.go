package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
)

// An attach, and a service that has just started, answer only once they have read the
// memory of a process with much of it.
func TestDurationStartsAfterReading(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), rig.N150, program(t, "hold.py"), "20000", "32")
	p.expect(t, "holding")
	stdout, stderr, status := runTtmem(t, nil, "attach", "-p", fmt.Sprint(p.Process.Pid), "--duration", "1ns", "--json", "--no-record")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	var attached memory.Snapshot
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(stdout), &attached)))
	qt.Check(t, qt.HasLen(attached.Lost, 0))
	qt.Check(t, qt.Equals(dramBuffers(&attached, p.Process.Pid), 20000))

	served, err := startServer(t).Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(served.Reading))
	qt.Check(t, qt.Equals(dramBuffers(served, p.Process.Pid), 20000))
}

// dramBuffers counts the live DRAM buffers of a process.
func dramBuffers(s *memory.Snapshot, pid int) (n uint64) {
	for _, p := range s.Processes {
		if p.PID == pid && p.Exit == nil {
			for _, d := range p.Devices {
				n += d.Regions.DRAM.Buffers
			}
		}
	}
	return n
}

// A client gets what was allocated since a mark that was set before it connected, but no
// marks of other users.
func TestMarkFromBeforeConnecting(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	s := startServer(t)
	s.discover(t, env)
	qt.Assert(t, qt.IsNil(s.Mark(context.Background(), "warm")))
	p := startTarget(t, env, rig.N150, program(t, "hold.py"), "7", "512", "wait")
	p.expect(t, "opened")
	waitFor(t, "the service to meet it", func() bool { return s.knows(t, p.Process.Pid) })
	p.next()
	p.expect(t, "holding")
	waitFor(t, "the service to have its buffers", func() bool { return dramBuffers(s.snapshot(t), p.Process.Pid) == 7 })
	of := []string{"leaks", "--socket", s.socket, "-p", fmt.Sprint(p.Process.Pid)} // other programs may run
	stdout, stderr, status := runTtmem(t, nil, append(of, "--from", "warm", "--duration", "1s", "--fail-above", "0")...)
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Check(t, qt.StringContains(stdout, "hold.py:"))
	qt.Check(t, qt.StringContains(stdout, `Not enough allocations to judge from "warm" to the end`))
	qt.Check(t, qt.StringContains(stdout, "Live but stable  7 buffers"))
	qt.Check(t, qt.StringContains(stderr, `the mark "warm" lies before this command started`))

	// by itself it selects nothing, and is no end
	stdout, stderr, _ = runTtmem(t, nil, append(of, "--duration", "1s")...)
	qt.Check(t, qt.IsFalse(strings.Contains(stdout, "warm")), qt.Commentf("%s", stdout))
	qt.Check(t, qt.StringContains(stderr, "1 mark from before this command started not used"))
	for _, flags := range [][]string{{"--to", "warm"}, {"--from", "begin", "--to", "warm"}, {"-p", "4194304"}} {
		_, stderr, status = runTtmem(t, nil, append([]string{"leaks", "--socket", s.socket}, flags...)...) // and does not wait for Ctrl-C
		qt.Check(t, qt.Equals(status, 1), qt.Commentf("%v: %s", flags, stderr))
		qt.Check(t, qt.Matches(stderr, `(?s).*ttmem: (--to warm: the mark is from before this command started|-p 4194304: no such process on this host).*`))
	}

	binary := filepath.Join(filepath.Dir(s.socket), "ttmem") // this user can execute it
	qt.Assert(t, qt.IsNil(exec.Command("cp", ttmem, binary).Run()))
	cmd := exec.Command(binary, "leaks", "--socket", s.socket, "--from", "warm", "--duration", "1s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	qt.Check(t, qt.IsNotNil(err))
	qt.Check(t, qt.StringContains(string(out), `no mark "warm"`))

	// a page says that other users have memory too
	asNobody := func(args ...string) []byte {
		cmd := exec.Command(binary, append(args, "--socket", s.socket)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.Output()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		return out
	}
	for _, args := range [][]string{{"dump"}, {"dump", "--by", "op"}, {"map"}, {"oom"}} {
		qt.Check(t, qt.StringContains(string(asNobody(args...)), "Only your own processes are shown: other users hold "), qt.Commentf("%v", args))
	}
	out = asNobody("report")
	for _, want := range []string{"only your own processes are listed", " chip 0: other users (", "Your processes have nothing allocated."} {
		qt.Check(t, qt.StringContains(string(out), want))
	}
	qt.Check(t, qt.IsFalse(strings.Contains(string(out), "hold.py")))
}
