package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
)

// attach answers only after it has read the existing memory of a process, even if that takes long. A
// service that has just started says that it is still reading.
func TestDurationStartsAfterReading(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), rig.N150, program(t, "hold.py"), "5000", "32")
	p.expect(t, "holding")
	stdout, stderr, status := runTtmem(t, nil, "attach", "-p", fmt.Sprint(p.Process.Pid), "--duration", "1ns", "--json", "--no-record")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	var attached memory.Snapshot
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(stdout), &attached)))
	qt.Check(t, qt.HasLen(attached.Lost, 0))
	qt.Check(t, qt.Equals(dramBuffers(&attached, p.Process.Pid), 5000))

	s := startServer(t)
	var served *memory.Snapshot
	waitFor(t, "the service to have read its memory", func() bool {
		served = s.snapshot(t)
		return !served.Reading
	})
	qt.Check(t, qt.Equals(dramBuffers(served, p.Process.Pid), 5000))
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

// A client gets what was live at marks that were set before it connected, also of a process that
// has ended, but no marks of other users.
func TestMarkFromBeforeConnecting(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	file := filepath.Join(t.TempDir(), "host.ttmem")
	s := startServer(t, "-o", file)
	s.discover(t, env)
	known := s.notKnownYet(t)
	qt.Assert(t, qt.IsNil(s.Mark(context.Background(), "warm")))
	p := startTarget(t, env, rig.N150, program(t, "hold.py"), "7", "512", "wait")
	p.expect(t, "opened")
	waitFor(t, "the service to meet it", func() bool { return s.knows(t, p.Process.Pid) })
	p.next()
	p.expect(t, "holding")
	waitFor(t, "the service to have its buffers", func() bool { return dramBuffers(s.snapshot(t), p.Process.Pid) == 7 })
	qt.Assert(t, qt.IsNil(s.Mark(context.Background(), "done")))
	of := []string{"leaks", "--socket", s.socket, "-p", fmt.Sprint(p.Process.Pid)} // other programs may run
	// a process is compared with a recording, which is written once a second
	waitFor(t, "the recording to have its buffers", func() bool { return len(stateOf(t, file).BuffersOf(p.Process.Pid)) == 7 })
	diff := diffPageOf(t, file, "--at", "begin", "--socket", s.socket, "-p", fmt.Sprint(p.Process.Pid), "--region", "DRAM")
	var held int64 // without the other programs of the host that the recording may have, which end
	for _, g := range diff.Groups {
		held += max(g.ChangeBuffers, 0)
	}
	qt.Check(t, qt.Equals(held, 7))

	site := "hold.py:"
	if s.notKnownYet(t) > known { // a host may be so busy: `make busy` bounds how often
		site = "(no call stack)"
	}
	checkBetween := func() {
		t.Helper()
		stdout, stderr, status := runTtmem(t, nil, append(of, "--from", "warm", "--to", "done", "--fail-above", "0")...)
		qt.Check(t, qt.Equals(status, 3), qt.Commentf("%s", stderr))
		qt.Check(t, qt.StringContains(stdout, site))
		qt.Check(t, qt.Matches(stdout, `(?s).* leaked from "warm" to "done" \(.*\): 7 buffers .*`))
		qt.Check(t, qt.IsFalse(strings.Contains(stderr, "Ctrl-C")), qt.Commentf("%s", stderr))
	}
	checkBetween()
	_, stderr, status := runTtmem(t, nil, append(of, "--to", "warm", "--fail-above", "0")...)
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))

	// by themselves they select nothing
	stdout, stderr, _ := runTtmem(t, nil, append(of, "--duration", "1s")...)
	qt.Check(t, qt.IsFalse(strings.Contains(stdout, "warm")), qt.Commentf("%s", stdout))
	qt.Check(t, qt.StringContains(stderr, "2 marks from before this command started are not used"))
	_, stderr, status = runTtmem(t, nil, "leaks", "--socket", s.socket, "-p", "4194304") // and does not wait for Ctrl-C
	qt.Check(t, qt.Equals(status, 1), qt.Commentf("%s", stderr))
	qt.Check(t, qt.StringContains(stderr, "ttmem: -p 4194304: no such process on this host"))

	binary := filepath.Join(filepath.Dir(s.socket), "ttmem") // this user can execute it
	qt.Assert(t, qt.IsNil(exec.Command("cp", ttmem, binary).Run()))
	cmd := exec.Command(binary, "leaks", "--socket", s.socket, "--from", "warm", "--duration", "1s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	qt.Check(t, qt.IsNotNil(err))
	qt.Check(t, qt.StringContains(string(out), "no mark warm "))

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

	qt.Assert(t, qt.IsNil(p.stdin.Close())) // it frees them, and ends
	qt.Assert(t, qt.IsNil(p.Wait()))
	waitFor(t, "the service to see the end", func() bool { return dramBuffers(s.snapshot(t), p.Process.Pid) == 0 })
	checkBetween()
}

// A full ring of results that a service or an attach joins is no leak, and a list that grows is.
func TestARingThatIsJoinedIsNoLeak(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	s := startServer(t)
	s.discover(t, env)
	p := startTarget(t, env, rig.N150, program(t, "ring.py"))
	for range 3 {
		p.expect(t, "full")
	}
	var rounds atomic.Int32
	go func() {
		for _, err := p.stdout.ReadString('\n'); err == nil; _, err = p.stdout.ReadString('\n') {
			rounds.Add(1)
		}
	}()
	var watching [2]struct {
		*exec.Cmd
		page bytes.Buffer
		says string
	}
	for i, how := range [][]string{{"--socket", s.socket}, {}} {
		w := &watching[i]
		w.Cmd = exec.Command(ttmem, append([]string{"leaks", "-p", fmt.Sprint(p.Process.Pid), "--fail-above", "0"}, how...)...)
		w.says = filepath.Join(t.TempDir(), "stderr")
		says, err := os.Create(w.says)
		qt.Assert(t, qt.IsNil(err))
		defer says.Close()
		w.Stdout, w.Stderr = &w.page, says
		qt.Assert(t, qt.IsNil(w.Start()))
		t.Cleanup(func() { w.Process.Kill() })
	}
	for i := range watching {
		waitFor(t, "ttmem leaks to watch", func() bool {
			text, err := os.ReadFile(watching[i].says)
			return err == nil && bytes.Contains(text, []byte("Ctrl-C"))
		})
	}
	began := rounds.Load()
	waitFor(t, "some rounds", func() bool { return rounds.Load() >= began+6 })
	for i := range watching {
		w := &watching[i]
		qt.Assert(t, qt.IsNil(w.Process.Signal(os.Interrupt)))
		_ = w.Wait()
		text, _ := os.ReadFile(w.says)
		qt.Check(t, qt.Equals(w.ProcessState.ExitCode(), 3), qt.Commentf("%s", text))
		leaked, _, _ := strings.Cut(w.page.String(), "Live but stable")
		qt.Check(t, qt.StringContains(leaked, lineMarked(t, "ring.py", "list")))
		qt.Check(t, qt.IsFalse(strings.Contains(leaked, lineMarked(t, "ring.py", "ring"))), qt.Commentf("%s", &w.page))
	}
	qt.Assert(t, qt.IsNil(p.stdin.Close()))
	qt.Assert(t, qt.IsNil(p.Wait()))
}
