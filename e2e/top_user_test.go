package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
)

// A user without processes sees the sum of other users, and a note that the page does not show
// everything.
func TestTopOfAnotherUser(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	s := startServer(t)
	p := startTarget(t, env, rig.N150, program(t, "hold.py"), "4", "1024")
	p.expect(t, "holding")
	waitFor(t, "the service to have its buffers", func() bool {
		return slices.ContainsFunc(s.snapshot(t).Processes, func(one memory.Process) bool {
			return one.PID == p.Process.Pid && len(one.Live) > 0
		})
	})
	binary := filepath.Join(filepath.Dir(s.socket), "ttmem") // this user can execute it
	qt.Assert(t, qt.IsNil(exec.Command("cp", ttmem, binary).Run()))
	const want = `Only your own processes are shown: other users hold [0-9.]+ .iB of 12\.0 GiB of DRAM` // and other programs

	cmd := exec.Command(binary, "top", "--once", "--socket", s.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.Matches(string(out), "(?s).*"+want+".*"))

	term := startTerminal(t, 120, 24, nil, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", binary, "top", "--socket", s.socket)
	screen := term.expect(want)
	qt.Check(t, qt.StringContains(screen, "0 processes  0 buffers"))
	term.press("q")
	term.end("0")
}

// sleepsOf counts how often a process has slept: top_model.py does after each step.
func sleepsOf(t *testing.T, pid string) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	qt.Assert(t, qt.IsNil(err))
	_, count, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
	_, err = fmt.Sscan(count, &n)
	qt.Assert(t, qt.IsNil(err))
	return n
}
