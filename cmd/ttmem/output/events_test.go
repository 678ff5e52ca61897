package output

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestACopyOfEventsHasItsNameWhenItIsComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("before"), 0o640)))
	for _, interrupted := range []bool{true, false} {
		f, err := CopyEvents(path)
		qt.Assert(t, qt.IsNil(err))
		f.Add(&event.Event{Kind: event.Alloc, PID: 7})
		qt.Assert(t, qt.IsNil(f.Flush()))
		qt.Check(t, qt.Equals(contents(t, path), "before"))
		want := "before"
		if !interrupted {
			qt.Assert(t, qt.IsNil(f.Close()))
			want = string((&event.Event{Kind: event.Alloc, PID: 7}).AppendJSON(nil)) + "\n"
		}
		f.Discard()
		qt.Check(t, qt.Equals(contents(t, path), want))
		files, err := os.ReadDir(filepath.Dir(path))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.HasLen(files, 1))
	}
	info, err := os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), 0o640)) // it is for whom the one before was
}

func TestACopyThatFindsNoRoomIsNotThere(t *testing.T) {
	f, err := CopyEvents("/dev/full")
	qt.Assert(t, qt.IsNil(err))
	f.Add(&event.Event{Kind: event.Alloc, PID: 7})
	qt.Check(t, qt.ErrorMatches(f.Close(), "--events /dev/full: no space left; nothing was written"))
}

func TestEventsOfALiveTraceCanBeReadBeforeItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f, err := CreateEvents(path, false)
	qt.Assert(t, qt.IsNil(err))
	f.Add(&event.Event{Kind: event.Alloc, PID: 7})
	qt.Assert(t, qt.IsNil(f.Flush()))
	qt.Check(t, qt.StringContains(contents(t, path), `"kind":"alloc"`))
	f.Discard() // what there is stays, also where tracing fails
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
