package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// An anonymiser replaces what only one machine has in the events of a story: folders,
// the host's name, ids of containers.
type anonymiser struct {
	replaced map[*event.Stack]*event.Stack
	// forbidden are texts that no event may have afterwards.
	forbidden []string
}

func newAnonymiser(t *testing.T) *anonymiser {
	t.Helper()
	a := &anonymiser{replaced: make(map[*event.Stack]*event.Stack), forbidden: []string{os.TempDir() + "/"}}
	repository, err := filepath.Abs("../..")
	qt.Assert(t, qt.IsNil(err))
	host, err := os.Hostname()
	qt.Assert(t, qt.IsNil(err))
	home, err := os.UserHomeDir()
	qt.Assert(t, qt.IsNil(err))
	for _, own := range []string{repository, host, home} {
		if len(own) > 2 { // "/" or "c" would be anywhere
			a.forbidden = append(a.forbidden, own)
		}
	}
	return a
}

// ownPaths are paths of one machine, and what they are replaced by, in order.
var ownPaths = []struct {
	path *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`/[^\s"']*/site-packages/`), "/usr/lib/python3/site-packages/"},
	{regexp.MustCompile(`/[^\s"']*/lib/(python3\.\d+)/`), "/usr/lib/$1/"},
	{regexp.MustCompile(`/[^\s"']*/bin/python[0-9.]*`), "/usr/bin/python3"},
	// the programs, also those that a test edited in a folder of its own
	{regexp.MustCompile(`/[^\s"']*/(\w+\.py)\b`), "/home/user/model/$1"},
}

// libraryFile is a file of Python's own library or of a package, which has its folder.
var libraryFile = regexp.MustCompile(`/(site-packages|lib/python3\.\d+)/`)

func (a *anonymiser) text(t *testing.T, s string) string {
	t.Helper()
	for i, own := range ownPaths {
		if i == len(ownPaths)-1 && libraryFile.MatchString(s) {
			break
		}
		s = own.path.ReplaceAllString(s, own.with)
	}
	for _, own := range a.forbidden {
		qt.Assert(t, qt.IsFalse(strings.Contains(s, own)), qt.Commentf("%q has %q: add it to ownPaths", s, own))
	}
	return s
}

// event replaces the texts of an event and of its stack.
func (a *anonymiser) event(t *testing.T, e *event.Event) {
	t.Helper()
	e.Start, e.Open = e.Started(), e.Opened()
	for _, s := range []*string{&e.Comm, &e.Message, &e.Open.Board, &e.Open.Arch, &e.Start.Command, &e.Start.Library, &e.Start.Release, &e.Cause} {
		*s = a.text(t, *s)
	}
	if e.Start.Container != "" {
		e.Start.Container = strings.Repeat("c0", 32)
	}
	if e.Start.Pod != "" {
		e.Start.Pod = "00000000-0000-0000-0000-000000000000"
	}
	if e.Stack == nil {
		return
	}
	if a.replaced[e.Stack] == nil {
		a.replaced[e.Stack] = a.stack(t, e.Stack)
	}
	e.Stack = a.replaced[e.Stack]
}

func (a *anonymiser) stack(t *testing.T, s *event.Stack) *event.Stack {
	t.Helper()
	var calls []*event.Call
	for _, c := range s.Calls() {
		frames := slices.Clone(c.Frames)
		for i := range frames {
			f := &frames[i]
			for _, s := range []*string{&f.Name, &f.Symbol, &f.File, &f.Module} {
				*s = a.text(t, *s)
			}
			f.Path, f.BuildID = "", "" // lines must not depend on the files of a host
		}
		calls = append(calls, event.NewCall(frames))
	}
	return event.NewStack(s.ID, func() []*event.Call { return calls })
}
