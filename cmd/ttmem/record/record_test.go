package record

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// record records events until there are as many files.
func record(t *testing.T, o Options, files int) *Recorder {
	t.Helper()
	state := aggregate.New()
	r, err := New(o, state)
	qt.Assert(t, qt.IsNil(err))
	for i := uint64(0); i < 1<<20; i++ {
		if _, err := os.Stat(fmt.Sprintf("%s.%d", o.Path, files-1)); err == nil || i > 100 && files == 1 {
			return r
		}
		e := event.Event{Kind: event.Alloc, PID: 1, TimeNs: i * 1e6, BufferID: i, Object: rand.Uint64(), Address: rand.Uint64()}
		r.Add(&e)
		if i%1000 == 0 {
			qt.Assert(t, qt.IsNil(r.file.Flush()))
		}
	}
	t.Fatalf("never were there %d files", files)
	return nil
}

func TestRecordNamesAllFilesThatItWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.ttmem")
	for _, c := range []struct {
		o     Options
		files int
		want  string
	}{
		{Options{Path: path}, 1,
			"recorded %d events to " + path + " (%s)"},
		{Options{Path: path, MaxSize: 64 << 10}, 3,
			"recorded %d events to " + path + " (3 files up to " + path + ".2, %s in all)"},
		{Options{Path: path, MaxSize: 64 << 10, Keep: 3}, 3,
			"recorded %d events to " + path + " (3 files up to " + path + ".2, %s in all; older ones are not kept)"},
	} {
		r := record(t, c.o, c.files)
		qt.Assert(t, qt.IsNil(r.Close(&memory.Snapshot{})))
		files, err := filepath.Glob(path + "*")
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(files, c.files))
		size := int64(0)
		for _, file := range files {
			info, err := os.Stat(file)
			qt.Assert(t, qt.IsNil(err))
			size += info.Size()
		}
		qt.Check(t, qt.Equals(r.summary(true), fmt.Sprintf(c.want, r.events, page.Bytes(uint64(size)))))
		for _, file := range files {
			qt.Assert(t, qt.IsNil(os.Remove(file)))
		}
	}
}

func TestRecordOfNothingSaysWhatToCheck(t *testing.T) {
	r, err := New(Options{Path: filepath.Join(t.TempDir(), "x")}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(r.summary(false), "nothing was recorded to .*/x: no process that uses tt-metal was seen; `ttmem doctor` .*"))
}

func TestRecordDoesNotAdviseToReadWhatIsNoFile(t *testing.T) {
	r, err := New(Options{Path: "/dev/null"}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(r.isFile()))
	qt.Check(t, qt.Matches(r.summary(true), `recorded 0 events to /dev/null \([^;]*\)`))
}

// A recording that nobody named gets a new file, which says what was traced.
func TestRecordChoosesANewFile(t *testing.T) {
	t.Chdir(t.TempDir())
	choose := func(command string, pid int) string {
		o := Options{}
		o.Choose(ProgramName(strings.Fields(command)), pid)
		qt.Check(t, qt.IsTrue(o.Unnamed))
		qt.Check(t, qt.Equals(o.Keep, unnamedKeep))
		return o.Path
	}
	qt.Check(t, qt.Equals(choose("python -u /srv/model.py --batch 2", 42), "ttmem-model-42.ttmem"))
	qt.Check(t, qt.Equals(choose("sudo -u me env python model.py", 42), "ttmem-model-42.ttmem"))
	qt.Check(t, qt.Equals(choose("./build/bench", 42), "ttmem-bench-42.ttmem"))
	qt.Check(t, qt.Equals(choose("./a\x1b[2J;/b\xff$c", 42), "ttmem-b__c-42.ttmem"))
	qt.Check(t, qt.Equals(choose(strings.Repeat("x", 300), 42), "ttmem-"+strings.Repeat("x", fileNameLength)+"-42.ttmem"))
	qt.Check(t, qt.Matches(choose("x", 0), `ttmem-host-\d{8}-\d{6}\.ttmem`))

	qt.Assert(t, qt.IsNil(os.WriteFile("ttmem-model-42.ttmem", nil, 0o600)))
	qt.Assert(t, qt.IsNil(os.Symlink("elsewhere", "ttmem-model-42-2.ttmem")))
	qt.Check(t, qt.Equals(choose("model.py", 42), "ttmem-model-42-3.ttmem"))

	named := Options{Path: "mine"}
	named.Choose("x", 42)
	qt.Check(t, qt.DeepEquals(named.Path, "mine"))
	qt.Check(t, qt.IsFalse(named.Unnamed))
}

func TestARecordingOfTheWholeHostIsItsOwnersAlone(t *testing.T) {
	for private, want := range map[bool]os.FileMode{true: 0o600, false: 0o644} {
		path := filepath.Join(t.TempDir(), "x")
		_, err := New(Options{Path: path, Private: private}, aggregate.New())
		qt.Assert(t, qt.IsNil(err))
		info, err := os.Stat(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Perm(), want))
	}
}

// An event is written at once if no other was written shortly before it.
func TestAnEventAfterAPauseIsWrittenAtOnce(t *testing.T) {
	r, err := New(Options{Path: filepath.Join(t.TempDir(), "x")}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	added := func() (bytes int64) {
		before := r.file.Size()
		r.Add(&event.Event{Kind: event.ProcessStart, PID: 1, TimeNs: 1})
		qt.Assert(t, qt.IsNil(r.Flush()))
		return r.file.Size() - before
	}
	qt.Assert(t, qt.IsNil(r.Flush())) // of nothing, as in a pause
	qt.Check(t, qt.IsTrue(added() > 0))
	r.flushed = time.Now().Add(time.Hour) // as if that had been just now
	qt.Check(t, qt.Equals(added(), 0))
}
