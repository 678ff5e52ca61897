package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

var busyForm = flag.String("busy", "", "TestBusyHost plays the first minutes with ttmem on a busy host: short or full")

// busyLoad is how many programs of another user want to run all the time, and busyStarters how many of
// them start short processes.
const busyLoad, busyStarters = 40, 8

// TestBusyHost plays the README's first minutes while all processors are taken: everything may come
// later, and nothing comes wrong. `make busy` runs it. The commands run beside each other, as most of their
// time is waiting for a processor.
func TestBusyHost(t *testing.T) {
	if *busyForm == "" {
		t.Skip("no -busy: make busy")
	}
	diagnoses, starts, ofUser := 1, 3, 2
	if *busyForm == "full" {
		diagnoses, starts, ofUser = 20, 200, 20
	}
	env := setup(t, "0.81.1", "3.10")
	p := startTarget(t, env, rig.N150, program(t, "hold.py"), "3", "512")
	p.expect(t, "holding")
	u := newOrdinaryUser(t, "TTMEM_SOCKET="+startServer(t).socket)
	takeProcessors(t)

	var sum startsOf
	t.Run("minutes", func(t *testing.T) { // until all have ended
		parallel := func(name string, f func(*testing.T)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				f(t)
				load, _ := os.ReadFile("/proc/loadavg")
				t.Logf("%.0f s; load %s", time.Since(began).Seconds(), load)
			})
		}
		parallel("demo", checkDemosReport)
		parallel("top", func(t *testing.T) {
			out, errs, status := runTtmem(t, nil, "top", "--once", "-p", fmt.Sprint(p.Process.Pid))
			qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			qt.Check(t, qt.StringContains(out, fmt.Sprint(p.Process.Pid)))
			qt.Check(t, qt.StringContains(out, "hold.py"))
			qt.Check(t, qt.StringContains(out, "1.5 MiB"))
		})
		parallel("attach", func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "late.ttmem")
			attach := attachTo(t, file, p.Process.Pid)
			waitFor(t, "the buffers", func() bool { return len(stateOf(t, file).BuffersOf(p.Process.Pid)) == 3 })
			qt.Assert(t, qt.IsNil(attach.Process.Signal(os.Interrupt)))
			waitEnd(t, attach.Wait)
			qt.Check(t, qt.StringContains(stateOf(t, file).Snapshot().Processes[0].Command, "hold.py"))
		})
		for range diagnoses {
			parallel("doctor", func(t *testing.T) {
				out, errs, status := runTtmem(t, nil, "doctor")
				qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s%s", out, errs))
				qt.Check(t, qt.StringContains(out, "\nTracing works here.\n"))
			})
		}
		for range starts {
			parallel("run", func(t *testing.T) {
				file, out := recordProgram(t, "0.81.1", "hold.py", "8", "64")
				sum.add(t, file, out)
			})
		}
		for i := range ofUser {
			parallel("run of a user", func(t *testing.T) { // through the host's service
				name := fmt.Sprintf("%d.ttmem", i)
				said, status := u.runs(t, "run", "-o", name, "--", u.env.Command(t.Context(), rig.N150).Path, program(t, "hold.py"), "8", "64")
				qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", said))
				sum.addOfUser(t, readEvents(t, filepath.Join(u.dir, name)), said)
			})
		}
	})
	t.Logf("%d starts: %d stacks, %d of them with Python, %d incomplete, %d events lost",
		starts+ofUser, sum.taken, sum.python, sum.incomplete, sum.lost)
	most := sum.taken / 100
	if *busyForm != "full" {
		most = 8 // of one start: a few starts cannot show a hundredth
	}
	qt.Check(t, qt.IsTrue(sum.incomplete <= most))
	qt.Check(t, qt.Equals(sum.lost, 0))
}

// startsOf adds up what recordings of hold.py's starts have.
type startsOf struct {
	sync.Mutex
	taken, python, incomplete, lost uint64
}

func (s *startsOf) add(t *testing.T, file string, out []byte) {
	text, errs, status := runTtmem(t, nil, "report", "--json", file)
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s%s", out, errs))
	var page memory.Snapshot
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), &page)))
	qt.Assert(t, qt.HasLen(page.Processes, 1), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(page.Processes[0].Command, "hold.py"))
	qt.Check(t, qt.IsTrue(page.Stacks != nil && page.Stacks.Taken >= 8 && page.Stacks.Python >= 8), qt.Commentf("%s", text))
	s.Lock()
	defer s.Unlock()
	s.taken += page.Stacks.Taken
	s.python += page.Stacks.Python
	for _, ends := range []map[string]uint64{page.Stacks.Incomplete, page.Stacks.IncompletePython} {
		for _, n := range ends {
			s.incomplete += n
		}
	}
	s.lost += page.LostEvents
	for _, n := range page.Processes[0].Lost {
		s.lost += n
	}
}

// addOfUser adds the events of a user's recording, which has no counts of stacks.
func (s *startsOf) addOfUser(t *testing.T, events []event.Event, said string) {
	s.Lock()
	defer s.Unlock()
	taken, lost := s.taken, s.lost
	for _, e := range events {
		switch e.Kind {
		case event.Lost:
			t.Logf("lost: %s", e.Cause)
			s.lost += e.Count
		case event.Alloc:
			s.taken++
			var frames []event.Frame
			if e.Stack != nil {
				frames = e.Stack.Frames()
			}
			python := slices.ContainsFunc(frames, func(f event.Frame) bool { return f.Kind == event.Python && filepath.Base(f.File) == "hold.py" })
			if python {
				s.python++
			}
			if n := len(frames); n == 0 || frames[n-1].Name != "_start" || !python {
				t.Logf("process %d at %d: %d calls, Python %v, incomplete", e.PID, e.TimeNs, n, python)
				s.incomplete++
			}
		}
	}
	qt.Check(t, qt.Equals(s.taken-taken+s.lost-lost, 8), qt.Commentf("%s", said))
}

// takeProcessors runs programs of another user that want to run all the time, until the test ends.
func takeProcessors(t *testing.T) {
	t.Helper()
	for i := range busyLoad {
		loop := "while :; do :; done"
		if i < busyStarters {
			loop = "while :; do /bin/true; done"
		}
		cmd := exec.Command("sh", "-c", loop)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		qt.Assert(t, qt.IsNil(cmd.Start()))
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	waitFor(t, "the load", func() bool {
		text, _ := os.ReadFile("/proc/loadavg")
		var running int
		_, _ = fmt.Sscanf(strings.Fields(string(text))[3], "%d/", &running)
		return running >= busyLoad-busyStarters
	})
}
