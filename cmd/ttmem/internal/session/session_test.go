package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
)

// Where no recording can be written, tracing goes on; a file that was named is an error.
func TestTracingGoesOnWithoutARecording(t *testing.T) {
	for _, unnamed := range []bool{true, false} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		qt.Assert(t, qt.IsNil(unix.Mkfifo(pipe, 0o600)))
		reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
		qt.Assert(t, qt.IsNil(err))
		s, err := newSession(Options{Record: record.Options{Path: pipe, Unnamed: unnamed}})
		qt.Assert(t, qt.IsNil(err))
		reader.Close() // so that the rest cannot be written
		s.handle(&event.Event{Kind: event.ProcessStart, PID: 1, TimeNs: 1})
		qt.Check(t, qt.IsNil(s.end(2, nil, page.Clock{})))
		qt.Check(t, qt.Equals(s.failed, !unnamed))
	}
	s, err := newSession(Options{Record: record.Options{Path: "/no/such/folder/x", Unnamed: true}})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(s.record))
	_, err = newSession(Options{Record: record.Options{Path: "/no/such/folder/x"}})
	qt.Check(t, qt.ErrorMatches(err, "/no/such/folder/x: no such file or directory; name a file that can be written"))
}
