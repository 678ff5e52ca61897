package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// TestMarksOfTheFileAreCompleted: after the words that always are; of a pipe nothing is
// read.
func TestMarksOfTheFileAreCompleted(t *testing.T) {
	r := newTrainingRun(1)
	for _, name := range []string{"warm", "epoch 1", "step", "step"} {
		r.mark(name)
	}
	path := writeEvents(t, "a.jsonl", r.events)
	pipe := filepath.Join(t.TempDir(), "pipe")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(pipe, 0o600)))
	for args, want := range map[string]string{
		"leaks " + path + " --from":            "begin warm step",
		"leaks " + path + " --to":              "end warm step",
		"diff " + path + " --from":             "begin peak warm step",
		"diff " + path + " --to":               "left end peak warm step",
		"dump " + path + " --at":               "begin end peak failure warm step",
		"map " + path + " --at":                "begin end peak failure warm step",
		"map --at":                             "begin end peak failure",
		"map " + pipe + " --at":                "begin end peak failure",
		"map " + path + ".none --at":           "begin end peak failure",
		"dump " + filepath.Dir(path) + " --at": "begin end peak failure",
	} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append(append([]string{"__complete"}, strings.Fields(args)...), ""))
		qt.Assert(t, qt.IsNil(root.Execute()))
		offered, _, _ := strings.Cut(out.String(), ":")
		qt.Check(t, qt.Equals(strings.Join(strings.Fields(offered), " "), want), qt.Commentf("%s", args))
	}
}
