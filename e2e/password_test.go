package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// A typist is an ordinary user at a terminal, whom sudo asks for a password. As newer versions do by default, sudo runs
// what it starts in a terminal of its own.
type typist struct {
	*ordinaryUser
	rules, shadow string // sudo's configuration and the passwords, of the mount namespace of the user's programs
}

const password = "correct horse"

func newTypist(t *testing.T) *typist {
	t.Helper()
	u := &typist{ordinaryUser: newOrdinaryUser(t)}
	u.more = []string{"TMPDIR=" + u.dir, "TTMEM_SOCKET=" + filepath.Join(u.dir, "none.sock"), "XDG_RUNTIME_DIR="}
	hash, err := exec.Command("openssl", "passwd", "-6", password).Output()
	qt.Assert(t, qt.IsNil(err))
	shadow := fmt.Sprintf("nobody:%s:20000:0:99999:7:::\nroot:*:20000:0:99999:7:::\n", bytes.TrimSpace(hash))
	dir := t.TempDir()
	u.rules, u.shadow = filepath.Join(dir, "sudoers"), filepath.Join(dir, "shadow")
	qt.Assert(t, qt.IsNil(os.WriteFile(u.rules, []byte("Defaults timestamp_timeout=0, lecture=never, use_pty\nnobody ALL=(root) ALL\n"), 0o440)))
	qt.Assert(t, qt.IsNil(os.WriteFile(u.shadow, []byte(shadow), 0o600)))
	return u
}

// types runs ttmem at a terminal.
func (u *typist) types(t *testing.T, args ...string) *terminal {
	t.Helper()
	return startTerminal(t, 120, 50, u.command(t, "").Env, append([]string{"unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/sudoers && mount --bind "$1" /etc/shadow && cd "$2" && shift 2 &&
		exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override "$@"`,
		u.rules, u.shadow, u.dir, u.ttmem}, args...)...)
}

// answers waits until sudo asks for the n-th time, and types a line.
func (u *typist) answers(term *terminal, n int, line string) {
	term.expect(fmt.Sprintf(`(?s)(\[sudo\] password for nobody:.*){%d}`, n))
	term.press("-l", line)
	term.press("Enter")
}

// leftNothing checks that nothing is left of a service that sudo did not start.
func (u *typist) leftNothing(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(u.dir, "ttmem-*"))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 0))
}

// TestPasswordAtATerminal: sudo asks for the password at the user's terminal. The command has that terminal, and Ctrl-C ends
// it with a report.
func TestPasswordAtATerminal(t *testing.T) {
	u := newTypist(t)
	term := u.types(t, "run", "-o", "typed.ttmem", "--", u.env.Command(t.Context(), rig.N150).Path, program(t, "at_terminal.py"))
	u.answers(term, 1, "wrong")
	term.expect("Sorry, try again")
	u.answers(term, 2, password)
	term.expect("terminal True True True True")
	term.press("-l", "some words")
	term.press("Enter")
	term.expect("read some words")
	term.expect("holding")
	term.press("C-c")
	screen := term.expect("Device memory over")
	qt.Check(t, qt.StringContains(screen, "KeyboardInterrupt"))
	term.end("130")
	qt.Check(t, qt.IsFalse(strings.Contains(term.screen(), password)))
	waitFor(t, "the tracer to end with the command", func() bool {
		left, _ := filepath.Glob(filepath.Join(u.dir, "ttmem-*"))
		return len(left) == 0
	})
	_, err := os.Stat(filepath.Join(u.dir, "typed.ttmem"))
	qt.Check(t, qt.IsNil(err))
}

// TestWrongPasswords: three end ttmem with one line, before the command starts.
func TestWrongPasswords(t *testing.T) {
	u := newTypist(t)
	term := u.types(t, "run", "--", "sh", "-c", "echo started")
	for n := range 3 {
		u.answers(term, n+1, "wrong")
	}
	term.end("125")
	qt.Check(t, qt.Matches(term.screen(), regexp.QuoteMeta(`[sudo] password for nobody:
Sorry, try again.
[sudo] password for nobody:
Sorry, try again.
[sudo] password for nobody:
ttmem: tracing needs root, no ttmem service runs on this host, and with sudo none began: sudo: 3 incorrect password
       attempts`)+`\n*`))
	u.leftNothing(t)
}

// TestCtrlCAtThePrompt ends ttmem and sudo, before the command starts.
func TestCtrlCAtThePrompt(t *testing.T) {
	u := newTypist(t)
	term := u.types(t, "run", "--", "sh", "-c", "echo started")
	term.expect(`\[sudo\] password for nobody:`)
	term.press("C-c")
	term.end("130")
	qt.Check(t, qt.Matches(term.screen(), `\[sudo\] password for nobody: *\nttmem: interrupted before tracing began: nothing was traced\n*`))
	u.leftNothing(t)
}
