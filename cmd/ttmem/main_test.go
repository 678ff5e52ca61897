package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/term"
)

// asCommand is set where this test is to be ttmem itself.
const asCommand = "TTMEM_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		status := run(os.Args[1:])
		if to := os.Getenv(statusFile); to != "" {
			text, _ := os.ReadFile("/proc/self/status")
			_ = os.WriteFile(to, text, 0o600)
		}
		os.Exit(status)
	}
	os.Unsetenv("COLUMNS") // the width of golden files does not depend on who runs the tests
	os.Exit(m.Run())
}

// execute gives the error of a command line.
func execute(args ...string) error {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root.Execute()
}

// TestExitStatusOfFailures: run tells its own failures from those of the command.
func TestExitStatusOfFailures(t *testing.T) {
	for args, want := range map[string]int{
		"run":                   125,
		"run --frob":            125,
		"run --rules x -- true": 125,
		"record -- true":        1,
		"run -o - -- true":      125,
		"report /no/file":       1,
		"frob":                  1,
		"--frob":                1,
		"-- true":               1,
		"--version":             0,
	} {
		_, _, status := runOnStreams(t, false, strings.Fields(args))
		qt.Check(t, qt.Equals(status, want), qt.Commentf("%s", args))
	}
}

// The list of commands fits a terminal of 80 columns and 24 rows, with the command line and the
// next prompt.
func TestTheListOfCommandsFitsATerminal(t *testing.T) {
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{}) // nil: those of the test
	qt.Assert(t, qt.IsNil(root.Execute()))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	qt.Check(t, qt.IsTrue(len(lines) <= 22), qt.Commentf("%s", out.String()))
	for _, line := range lines {
		qt.Check(t, qt.IsTrue(len(line) <= 80), qt.Commentf("%s", line))
	}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			qt.Check(t, qt.StringContains(out.String(), "\n  "+c.Name()+" "))
		}
	}
}

func TestEveryCommandHasAManualPage(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(execute("man", dir)))
	for _, c := range newRoot().Commands() {
		if c.Hidden && !c.HasExample() {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "ttmem-"+c.Name()+".1"))
		qt.Assert(t, qt.IsNil(err))
		for _, want := range []string{"TTMEM-" + strings.ToUpper(c.Name()), ".SH EXAMPLE", "ttmem(1)"} {
			qt.Check(t, qt.StringContains(string(page), want))
		}
		for _, flag := range []string{flags.Color, flags.JSON, flags.Rules, flags.Socket, flags.UTC} {
			listed := strings.Contains(string(page), `\fB--`+flag+`\fP`)
			qt.Check(t, qt.Equals(listed, flags.TakesGlobal(c, flag)), qt.Commentf("--%s of %s", flag, c.Name()))
		}
	}
	qt.Check(t, qt.ErrorMatches(execute("man", filepath.Join(dir, "none")), "man .*: no such file or directory; name a file that can be written"))
}

func TestArgumentsAreCompleted(t *testing.T) {
	for args, want := range map[string]string{
		"report":             "ttmem\n:8\n",
		"report model.ttmem": ":4\n",
		"run -o":             "ttmem\n:8\n",
		"run --keep":         ":4\n",
		"attach --max-size":  "100MiB\n500MiB\n1GiB\n:4\n",
		"doctor":             "so\n:8\n",
		"man":                ":16\n",
		"export":             "ttmem\n:8\n",
		"export x --at":      "begin\nend\npeak\nfailure\nstory\n:4\n",
	} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append(append([]string{"__complete"}, strings.Fields(args)...), ""))
		qt.Assert(t, qt.IsNil(root.Execute()))
		qt.Check(t, qt.Equals(out.String(), want), qt.Commentf("%s", args))
	}
}

func TestTheVersionIsThatOfTheBuild(t *testing.T) {
	defer func(was string) { build = was }(build)
	build = "v1.2-3-gabcdef"
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"--version"})
	qt.Assert(t, qt.IsNil(root.Execute()))
	qt.Check(t, qt.Equals(out.String(), "ttmem version v1.2-3-gabcdef\n"))
}

// Joined errors are a line each, and an exit status is none.
func TestErrorLines(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	for _, c := range []struct {
		err  error
		want []string
	}{
		{first, []string{"first"}},
		{term.ExitStatus(3), nil},
		{errors.Join(first, term.ExitStatus(3)), []string{"first"}},
		{errors.Join(first, errors.Join(second, term.ExitStatus(1))), []string{"first", "second"}},
		{fmt.Errorf("both: %w, %w", first, second), []string{"both: first, second"}},
	} {
		qt.Check(t, qt.DeepEquals(errorLines(c.err), c.want))
	}
}
