package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// tell has the program do what a word says.
func (p *target) tell(t *testing.T, word string) {
	t.Helper()
	fmt.Fprintln(p.stdin, word)
	p.expect(t, word)
}

// ownersIn are the owners that `ttmem dump` lists, in order; none if there is nothing to list yet.
func ownersIn(args ...string) (list []string) {
	text, err := exec.Command(ttmem, append([]string{"dump", "--json"}, args...)...).Output()
	var dump struct{ Buffers []struct{ Owner string } }
	if err != nil || json.Unmarshal(text, &dump) != nil {
		return nil
	}
	for _, b := range dump.Buffers {
		if b.Owner != "" {
			list = append(list, b.Owner)
		}
	}
	slices.Sort(list)
	return list
}

// heldBy are the owners of the tensors of owners_told.py with that many in its list.
func heldBy(cache int) (list []string) {
	for i := range cache {
		list = append(list, fmt.Sprintf("cache[%d]", i))
	}
	return append(list, "model.layers[0]", "model.layers[1]")
}

// awaitOwners waits until a dump lists these owners.
func awaitOwners(t *testing.T, want []string, args ...string) {
	t.Helper()
	waitFor(t, fmt.Sprint(want, " of dump ", args), func() bool { return slices.Equal(ownersIn(args...), want) })
}

// TestOwnersOfAnAttach: who holds buffers is looked for after a failed allocation, at marks that ask
// for it, and when tracing ends.
func TestOwnersOfAnAttach(t *testing.T) {
	t.Parallel()
	p := startTarget(t, setup(t, "0.81.1", "3.10"), rig.N150, program(t, "owners_told.py"))
	p.expect(t, "ready")
	pid := fmt.Sprint(p.Process.Pid)
	file := filepath.Join(t.TempDir(), "a.ttmem")
	attach := exec.Command(ttmem, "attach", "-p", pid, "-o", file, "--owners", "marks")
	var errs strings.Builder
	attach.Stderr = &errs
	qt.Assert(t, qt.IsNil(attach.Start()))
	t.Cleanup(func() { _ = attach.Process.Kill() })
	awaitOwners(t, heldBy(0), file)
	p.tell(t, "grow")
	p.tell(t, "fail")
	awaitOwners(t, heldBy(1), file, "--at", "failure#1")
	p.tell(t, "grow")
	p.tell(t, "step")
	awaitOwners(t, heldBy(2), file, "--at", "step")
	p.tell(t, "grow")
	qt.Assert(t, qt.IsNil(attach.Process.Signal(os.Interrupt)))
	qt.Assert(t, qt.IsNil(attach.Wait()), qt.Commentf("%s", errs.String()))
	qt.Check(t, qt.DeepEquals(ownersIn(file), heldBy(3)))
	// A mark and a failure do not have what came later.
	qt.Check(t, qt.DeepEquals(ownersIn(file, "--at", "step"), heldBy(2)))
	qt.Check(t, qt.DeepEquals(ownersIn(file, "--at", "failure"), heldBy(1)))

	file = filepath.Join(t.TempDir(), "b.ttmem")
	qt.Assert(t, qt.IsNil(exec.Command(ttmem, "attach", "-p", pid, "-o", file, "--duration", "1ns").Run()))
	qt.Check(t, qt.DeepEquals(ownersIn(file), heldBy(3)))

	// The process is killed while it is searched.
	attach, said := attachReading(t, filepath.Join(t.TempDir(), "c.ttmem"), p.Process.Pid)
	qt.Assert(t, qt.IsNil(p.Process.Kill()))
	qt.Check(t, qt.IsNil(attach.Wait()), qt.Commentf("%s", said()))
	qt.Check(t, qt.Not(qt.StringContains(said(), "owners of")))
}

// TestOwnersOfARun: a run looks after failed allocations.
func TestOwnersOfARun(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.12")
	python := env.Command(t.Context(), rig.N150, program(t, "owners_told.py"))
	file := filepath.Join(t.TempDir(), "run.ttmem")
	p := &target{env: env, Cmd: exec.Command(ttmem, append([]string{"run", "-o", file, "--", python.Path}, python.Args[1:]...)...)}
	p.Dir = t.TempDir()
	p.Env = testEnviron(python.Env, rig.N150, p.Dir)
	p.start(t)
	p.expect(t, "ready")
	p.tell(t, "grow")
	p.tell(t, "flood")
	awaitOwners(t, heldBy(1), file, "--at", "failure#1")
	qt.Assert(t, qt.IsNil(p.stdin.Close()))
	qt.Assert(t, qt.IsNil(p.Wait()), qt.Commentf("%s", p.stderr.String()))
	qt.Check(t, qt.DeepEquals(ownersIn(file, "--at", "failure#1"), heldBy(1)))
}

// TestOwnersNever: with --owners never nothing is searched, and the report names the largest callers of a line
// that allocates for all parts of a model. TestNewcomer has what it names otherwise.
func TestOwnersNever(t *testing.T) {
	t.Parallel()
	_, report, status := askOf(t, t.TempDir(), []string{"run", "-o", "a.ttmem", "--owners", "never"}, program(t, "newcomer/transformer.py"))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", report))
	qt.Check(t, qt.Not(qt.StringContains(report, "model.blocks")))
	for _, line := range []string{"30", "31"} {
		qt.Check(t, qt.Matches(report, `(?s).*\n +6\.0 MiB +\d+% +6 buffers +transformer\.py:16 weight ← transformer\.py:`+line+` __init__.*`), qt.Commentf("%s", report))
	}
}

// TestOwnersOfAServe: the service looks after failed allocations, and when the user of a process or
// root asks. Other users are refused.
func TestOwnersOfAServe(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	s := startServer(t)
	python := env.Command(t.Context(), rig.N150, program(t, "owners_told.py"))
	p := &target{env: env, Cmd: exec.Command("sh", append([]string{"-c", `exec "$0" "$@"`, python.Path}, python.Args[1:]...)...)}
	p.Dir, p.Env = "/", testEnviron(python.Env, rig.N150, t.TempDir())
	p.SysProcAttr = &syscall.SysProcAttr{ // as in TestServeShowsUsersTheirOwn
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: []uintptr{unix.CAP_DAC_OVERRIDE},
	}
	p.start(t)
	p.expect(t, "ready")
	known := func() (list []string) {
		r, err := s.State(t.Context())
		qt.Assert(t, qt.IsNil(err))
		state := aggregate.New()
		for e := new(event.Event); r.Next(e) == nil; {
			state.Apply(e)
		}
		for _, b := range state.BuffersOf(p.Process.Pid) {
			if b.Owner.Path != "" {
				list = append(list, b.Owner.Path)
			}
		}
		slices.Sort(list)
		return list
	}
	ask := func(uid int) int {
		c := dialAs(t, s.socket, uid)
		fmt.Fprintf(c, "POST /v1/owners?pid=%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", p.Process.Pid)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		qt.Assert(t, qt.IsNil(err))
		return answer.StatusCode
	}
	p.tell(t, "grow")
	qt.Check(t, qt.Equals(ask(nobody-1), http.StatusForbidden))
	qt.Check(t, qt.HasLen(known(), 0)) // nobody asked
	waitFor(t, "owners after a failure", func() bool {
		p.tell(t, "fail") // the service may have the program's probes only now
		return slices.Equal(known(), heldBy(1))
	})
	p.tell(t, "grow")
	qt.Check(t, qt.Equals(ask(nobody), http.StatusNoContent))
	qt.Check(t, qt.DeepEquals(known(), heldBy(2)))
	p.tell(t, "drop")
	p.tell(t, "grow")
	qt.Check(t, qt.DeepEquals(ownersIn("--socket", s.socket, "-p", fmt.Sprint(p.Process.Pid)), heldBy(1))) // root asks
	s.stop(t)
}
