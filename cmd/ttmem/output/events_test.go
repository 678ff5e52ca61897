package output

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestAnEventFileThatFindsNoRoomIsIntact(t *testing.T) {
	f, err := CreateEvents("/dev/full", false)
	qt.Assert(t, qt.IsNil(err))
	f.Add(&event.Event{Kind: event.Alloc, PID: 7})
	qt.Check(t, qt.ErrorMatches(f.Close(), "--events /dev/full: no space left; everything written so far is intact"))
}

func TestEventsOfALiveTraceCanBeReadBeforeItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f, err := CreateEvents(path, false)
	qt.Assert(t, qt.IsNil(err))
	f.Add(&event.Event{Kind: event.Alloc, PID: 7})
	qt.Assert(t, qt.IsNil(f.Flush()))
	qt.Check(t, qt.StringContains(contents(t, path), `"kind":"alloc"`))
	_, err = CreateEvents("/no/such/folder/x", false)
	qt.Check(t, qt.ErrorMatches(err, "--events /no/such/folder/x: no such file or directory; name a file that can be written"))
}

func TestAnEventFileOfAllUsersIsReadByItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("old"), 0o644)))
	f, err := CreateEvents(path, true)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(f.Close()))
	info, err := os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode(), 0o600))
	qt.Check(t, qt.Equals(info.Size(), 0))
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	return string(b)
}
