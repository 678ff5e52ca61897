package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// Every command that runs another one exits like a shell: 127 if there is no such program,
// 126 if it cannot be executed, with one line.
func TestNotStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "model.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(plain, []byte("print(1)\n"), 0o644)))
	script := filepath.Join(dir, "model")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("echo 1\n"), 0o755)))
	for _, command := range [][]string{
		{"run"}, {"run", "--json"}, {"run", "-o", filepath.Join(dir, "model.ttmem")}, {"leaks"}, {"peak"}, {"oom"}, {"log"},
	} {
		for _, c := range []struct {
			program, says string
			status        int
		}{
			{"no-such-program", "no-such-program: no such command", 127},
			{"./no/such/program", "./no/such/program: no such command", 127},
			{plain, "`chmod +x` makes it executable", 126},
			{dir, "is a directory", 126},
			{script, "does not begin with #!: name the program that runs it", 126},
		} {
			stdout, stderr, status := runTtmem(t, nil, append(command, "--", c.program)...)
			what := qt.Commentf("ttmem %s -- %s", strings.Join(command, " "), c.program)
			qt.Check(t, qt.Equals(stdout, ""), what)
			qt.Check(t, qt.StringContains(stderr, c.says), what)
			qt.Check(t, qt.Equals(strings.Count(stderr, "\n"), 1), what)
			qt.Check(t, qt.Equals(status, c.status), what)
		}
	}
	left, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 2), qt.Commentf("a recording was begun"))
}
