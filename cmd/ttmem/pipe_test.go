package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// pipedSays is what a command prints that is given a file on standard input, by a pipe, and
// its error.
func pipedSays(t *testing.T, path string, args ...string) (string, error) {
	t.Helper()
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	read, write, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	stdin, err := unix.Dup(0)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(unix.Dup2(int(read.Fd()), 0)))
	read.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = write.Write(content) // not all of it has to be read
		write.Close()
	}()
	text, failed := commandOutput(t, args...)
	qt.Assert(t, qt.IsNil(unix.Dup2(stdin, 0))) // and nobody reads the pipe any more
	qt.Assert(t, qt.IsNil(unix.Close(stdin)))
	<-written
	return text, failed
}

// ofReplay is what oom says of a recording that it reads again.
var ofReplay = regexp.MustCompile(`"smallest":\[.*?\}\}\],`)

// TestAPipeIsReadAsAFileIs: what is written of it is the same, by every command that reads
// it once; who would have to read it twice says that it takes a file.
func TestAPipeIsReadAsAFileIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.ttmem")
	readStory(t, storyEvents(goldenFolder, goldenStories[0].name)).record(t, path, 200)
	for _, args := range [][]string{
		{"peak", path, "--json"}, {"leaks", path, "--json"}, {"dump", path, "--json"},
		{"oom", path, "--json"}, {"log", path, "--json"}, {"report", path, "--json"}, {"map", path, "--at", "end", "--json"},
		{"diff", path, path + "2", "--json"}, {"diff", path + "2", path, "--json"},
	} {
		content, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile(path+"2", content, 0o600)))
		want, err := commandOutput(t, slices.Clone(args)...)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v", args))
		want = ofReplay.ReplaceAllString(want, "")
		args[slices.Index(args, path)] = "-"
		got, err := pipedSays(t, path, args...)
		qt.Check(t, qt.IsNil(err), qt.Commentf("%v", args))
		for _, name := range []string{path, "standard input"} {
			for _, text := range []*string{&want, &got} {
				*text = strings.ReplaceAll(*text, `"`+name+`"`, `"-"`)
				*text = strings.ReplaceAll(*text, "ttmem: "+name+" ", "ttmem: - ")
			}
		}
		qt.Check(t, qt.Equals(got, want), qt.Commentf("%v", args))
	}
	text, err := pipedSays(t, path, "map", "-")
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(text, "at the end of standard input"))
	for _, args := range [][]string{
		{"dump", "-", "--at", "peak"}, {"map", "-", "--at", "peak"}, {"diff", "-", "--from", "begin"}, {"diff", path, "-", "--at", "begin"},
	} {
		_, err := pipedSays(t, path, args...)
		qt.Check(t, qt.ErrorMatches(err, "standard input is not a file: it can be read only once, .*; give a file"), qt.Commentf("%v", args))
	}
}
