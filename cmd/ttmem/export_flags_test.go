package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

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

func TestFlagsOfExportsAreCheckedEarly(t *testing.T) {
	here, err := os.Getwd()
	qt.Assert(t, qt.IsNil(err))
	for name, test := range map[string]struct{ args, says string }{
		"nothing":            {"", ""},
		"all three":          {"--folded a --pprof b --flamegraph c", ""},
		"standard output":    {"--folded - --pprof b", ""},
		"twice the same":     {"--pprof x --folded ./x", "--pprof and --folded cannot both be ./x"},
		"a file's two names": {"--pprof x --folded " + here + "/x", "--pprof and --folded cannot both be .*/x"},
		"twice the output":   {"--pprof - --folded -", "--pprof and --folded cannot both be standard output"},
		"the report":         {"--json --folded -", "--json and --folded cannot both be standard output"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFlags("report", strings.Fields(test.args)...)
			if test.says == "" {
				qt.Check(t, qt.IsNil(err))
			} else {
				qt.Check(t, qt.ErrorMatches(err, test.says))
			}
		})
	}
}

func TestHelpShowsHowToExport(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"help", "report"})
	qt.Assert(t, qt.IsNil(root.Execute()))
	for _, want := range []string{"ttmem report model.ttmem --flamegraph memory.html", "go tool pprof -top -cum", "--folded FILE"} {
		qt.Check(t, qt.StringContains(out.String(), want))
	}
}
