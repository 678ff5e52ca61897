package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ttmem/cmd/ttmem/internal/page"
)

// mostFlags is how many pairs of a command and a flag there may be. A flag of all commands
// counts once. Four are of checks in CI: --junit of two commands, and the baseline of diff.
const mostFlags = 136

// eachCommand calls do with a command and all below it.
func eachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, do)
	}
}

// TestFlagsAreFewAndMeanOneThing: a user who knows a flag of one command knows it of all.
func TestFlagsAreFewAndMeanOneThing(t *testing.T) {
	pairs := 0
	first := make(map[string]*pflag.Flag)
	eachCommand(newRoot(), func(c *cobra.Command) {
		of := 0
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Hidden {
				return
			}
			pairs++
			of++
			if f.Name == "pid" && (c.Name() == "report" || c.Name() == "steps") { // they take one process
				qt.Check(t, qt.Equals(f.Usage, "only the process `PID`"))
				f.Usage += " (may be repeated)"
			}
			if c.Name() == "html" && f.Name == "output" || c.Name() == "export" && (f.Name == "to" || f.Name == "output" || f.Name == "by") { // no recording, and a format
				return
			}
			same := first[f.Name]
			if same == nil {
				first[f.Name] = f
				return
			}
			qt.Check(t, qt.Equals(f.Usage, same.Usage), qt.Commentf("--%s of %s", f.Name, c.CommandPath()))
			qt.Check(t, qt.Equals(f.Value.Type(), same.Value.Type()), qt.Commentf("--%s of %s", f.Name, c.CommandPath()))
			qt.Check(t, qt.Equals(f.Shorthand, same.Shorthand), qt.Commentf("--%s of %s", f.Name, c.CommandPath()))
		})
		t.Logf("%2d %s", of, c.CommandPath())
	})
	t.Logf("%d pairs, %d flags", pairs, len(first))
	qt.Check(t, qt.IsTrue(pairs <= mostFlags), qt.Commentf("%d pairs of command and flag", pairs))
}

// TestErrorsOfFlagsAreNotGos: whatever is wrong with a value is said in ttmem's words.
func TestErrorsOfFlagsAreNotGos(t *testing.T) {
	gos := regexp.MustCompile(`strconv|parse|invalid|syntax|time:|pflag|shorthand`)
	eachCommand(newRoot(), func(c *cobra.Command) {
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				kind := f.Value.Type()
				if kind == "string" || kind == "stringSlice" || kind == "stringArray" {
					return // every text is a value
				}
				args := append(strings.Fields(c.CommandPath())[1:], "--"+f.Name+"=x1.5e")
				err := execute(args...)
				qt.Assert(t, qt.IsNotNil(err), qt.Commentf("%v", args))
				qt.Check(t, qt.IsFalse(gos.MatchString(err.Error())), qt.Commentf("%v: %v", args, err))
			})
		}
	})
}

// TestHelpFitsAScreen: what is longer is a page in docs.
func TestHelpFitsAScreen(t *testing.T) {
	const mostLines, mostColumns = 40, 80
	for _, c := range append(newRoot().Commands(), newRoot()) {
		if c.Hidden {
			continue
		}
		root := newRoot()
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(c.CommandPath())[1:], "--help"))
		qt.Assert(t, qt.IsNil(root.Execute()))
		qt.Check(t, qt.IsTrue(strings.Count(out.String(), "\n") <= mostLines), qt.Commentf("%s", out.String()))
		for line := range strings.Lines(out.String()) {
			qt.Check(t, qt.IsTrue(page.Width(strings.TrimRight(line, "\n")) <= mostColumns), qt.Commentf("%s: %s", c.CommandPath(), line))
		}
		for _, path := range docsPage.FindAllString(out.String(), -1) {
			_, err := os.Stat("../../" + path)
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s", c.CommandPath()))
		}
	}
}

var docsPage = regexp.MustCompile(`docs/[\w-]+\.md`)

// checkFlags parses flags of a command and checks them as is done before it
// starts.
func checkFlags(command string, args ...string) error {
	c, _, err := newRoot().Find([]string{command})
	if err != nil {
		return err
	}
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	return c.PreRunE(c, nil)
}
