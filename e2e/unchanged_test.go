package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// A command under ttmem has the signal dispositions, descriptors, limits, niceness, groups
// and environment that it has without.
func TestCommandUnchanged(t *testing.T) {
	dir := t.TempDir()
	show := filepath.Join(dir, "show.sh")
	qt.Assert(t, qt.IsNil(os.WriteFile(show, []byte(`
grep -E '^(SigBlk|SigIgn|SigCgt|ShdPnd|Umask|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status
ls -l /proc/$$/fd > fds; awk 'NR > 1 { print $9, $10, $11 }' fds
cat /proc/$$/limits /proc/$$/oom_score_adj /proc/$$/timerslack_ns /proc/$$/cgroup | sed s,^Max.pending.signals.*,,
cut -d' ' -f5,6,18,19 /proc/$$/stat # process group, session, priority, niceness
env | sort
pwd
`), 0o644)))
	run := func(command ...string) string {
		// some descriptors, limits and ignored signals that are not the usual ones
		script := `trap '' TERM PIPE INT HUP QUIT USR1 TTOU; ulimit -n 512; ulimit -c 0; umask 27
			exec 3>"$1" 7</etc/passwd; shift; exec nice -n 3 "$@"`
		out := filepath.Join(dir, "out")
		args := append([]string{"-c", script, "sh", filepath.Join(dir, "three")}, command...)
		cmd := exec.Command("sh", append(args, "sh", show)...)
		stdout, err := os.Create(out)
		qt.Assert(t, qt.IsNil(err))
		defer stdout.Close()
		cmd.Stdout, cmd.Dir = stdout, dir
		qt.Assert(t, qt.IsNil(cmd.Run()))
		b, err := os.ReadFile(out)
		qt.Assert(t, qt.IsNil(err))
		return string(b)
	}
	alone := run("env")
	// so the check can fail; this process may ignore others already
	ignores := regexp.MustCompile(`SigIgn:\s*([0-9a-f]+)`).FindStringSubmatch(alone)
	qt.Assert(t, qt.HasLen(ignores, 2))
	signals, err := strconv.ParseUint(ignores[1], 16, 64)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(signals&0x205207, 0x205207))
	qt.Assert(t, qt.StringContains(alone, "\n3 -> "))
	for _, args := range [][]string{{"run", "--no-record", "--"}, {"run", "-o", filepath.Join(dir, "model.ttmem"), "--"}} {
		qt.Check(t, qt.Equals(withoutReport(run(append([]string{ttmem}, args...)...)), alone))
	}
}

// withoutReport cuts off what ttmem writes after a command's output.
func withoutReport(output string) string {
	output, _, _ = strings.Cut(output, "Device memory ")
	return output
}
