package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/tracer/event"
)

func TestFlagsOfRecordingsAreCheckedEarly(t *testing.T) {
	for args, want := range map[string]string{
		"-o f":                           "",
		"-o f --max-size 64KiB --keep 2": "",
		"-o -":                           "a recording is binary: name a file; /dev/stdout is standard output",
		"-o f --max-size 63KiB":          "--max-size: give 64KiB or more, .*",
		"-o f --max-size 0":              "--max-size: give 64KiB or more, .*",
		"-o f --keep 2":                  "--keep is about several files: give --max-size too",
		"-o f --keep -1":                 "--keep -1: must not be negative; 0 keeps all",
		"-o f --no-record":               "--no-record writes no recording: leave out -o, --max-size and --keep",
		"--no-record --max-size 64KiB":   "--no-record writes no recording: .*",
		"--output=":                      "-o: name a file, .*",
		"-o x --events x":                "--events and -o cannot both be x",
		"-o x --flamegraph ./x":          "-o and --flamegraph cannot both be ./x",
		"-o - --no-stacks --full-stacks": "--full-stacks takes call stacks: leave out --no-stacks", // one at a time
	} {
		err := checkFlags("run", strings.Fields(args)...)
		if want == "" {
			qt.Check(t, qt.IsNil(err), qt.Commentf("%s", args))
		} else {
			qt.Check(t, qt.ErrorMatches(err, want), qt.Commentf("%s", args))
		}
	}
}

// record records events until there are as many files.
func record(t *testing.T, o recordOptions, files int) *recorder {
	t.Helper()
	state := aggregate.New()
	r, err := newRecorder(o, state)
	qt.Assert(t, qt.IsNil(err))
	for i := uint64(0); i < 1<<20; i++ {
		if _, err := os.Stat(fmt.Sprintf("%s.%d", o.path, files-1)); err == nil || i > 100 && files == 1 {
			return r
		}
		e := event.Event{Kind: event.Alloc, PID: 1, TimeNs: i * 1e6, BufferID: i, Object: rand.Uint64(), Address: rand.Uint64()}
		r.add(&e)
		if i%1000 == 0 {
			qt.Assert(t, qt.IsNil(r.file.Flush()))
		}
	}
	t.Fatalf("never were there %d files", files)
	return nil
}

func TestRecordTellsOfAllFilesThatItWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.ttmem")
	for _, c := range []struct {
		o     recordOptions
		files int
		want  string
	}{
		{recordOptions{path: path}, 1,
			"recorded %d events to " + path + " (%s)"},
		{recordOptions{path: path, maxSize: 64 << 10}, 3,
			"recorded %d events to " + path + " (3 files up to " + path + ".2, %s in all)"},
		{recordOptions{path: path, maxSize: 64 << 10, keep: 3}, 3,
			"recorded %d events to " + path + " (3 files up to " + path + ".2, %s in all; older ones are not kept)"},
	} {
		r := record(t, c.o, c.files)
		qt.Assert(t, qt.IsNil(r.close(&memory.Snapshot{})))
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
	r, err := newRecorder(recordOptions{path: filepath.Join(t.TempDir(), "x")}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Matches(r.summary(false), "nothing was recorded to .*/x: no process that uses tt-metal was seen; `ttmem doctor` .*"))
}

func TestRecordDoesNotAdviseToReadWhatIsNoFile(t *testing.T) {
	r, err := newRecorder(recordOptions{path: "/dev/null"}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(r.isFile()))
	qt.Check(t, qt.Matches(r.summary(true), `recorded 0 events to /dev/null \([^;]*\)`))
}

// A recording that nobody named gets a new file, which says what was traced.
func TestRecordChoosesANewFile(t *testing.T) {
	t.Chdir(t.TempDir())
	choose := func(command string, pid int) string {
		o := recordOptions{}
		o.choose(programName(strings.Fields(command)), pid)
		qt.Check(t, qt.IsTrue(o.unnamed))
		qt.Check(t, qt.Equals(o.keep, unnamedKeep))
		return o.path
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

	named := recordOptions{path: "mine"}
	named.choose("x", 42)
	qt.Check(t, qt.DeepEquals(named.path, "mine"))
	qt.Check(t, qt.IsFalse(named.unnamed))
}

// Where no recording can be written, tracing goes on; a file that was named is an error.
func TestTracingGoesOnWithoutARecording(t *testing.T) {
	for _, unnamed := range []bool{true, false} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		qt.Assert(t, qt.IsNil(unix.Mkfifo(pipe, 0o600)))
		reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
		qt.Assert(t, qt.IsNil(err))
		s, err := newSession(sessionOptions{record: recordOptions{path: pipe, unnamed: unnamed}})
		qt.Assert(t, qt.IsNil(err))
		reader.Close() // so that the rest cannot be written
		s.handle(&event.Event{Kind: event.ProcessStart, PID: 1, TimeNs: 1})
		qt.Check(t, qt.IsNil(s.end(2, nil, os.Stderr, report.Options{})))
		qt.Check(t, qt.Equals(s.failed, !unnamed))
	}
	s, err := newSession(sessionOptions{record: recordOptions{path: "/no/such/folder/x", unnamed: true}})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(s.record))
	_, err = newSession(sessionOptions{record: recordOptions{path: "/no/such/folder/x"}})
	qt.Check(t, qt.ErrorMatches(err, "/no/such/folder/x: no such file or directory; name a file that can be written"))
}

func TestARecordingOfTheWholeHostIsItsOwnersAlone(t *testing.T) {
	for private, want := range map[bool]os.FileMode{true: 0o600, false: 0o644} {
		path := filepath.Join(t.TempDir(), "x")
		_, err := newRecorder(recordOptions{path: path, private: private}, aggregate.New())
		qt.Assert(t, qt.IsNil(err))
		info, err := os.Stat(path)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Perm(), want))
	}
}

// The commands that run ends with exist, and fit a terminal.
func TestNextCommandsCanBeTyped(t *testing.T) {
	r := &recorder{path: "ttmem-story_fragments-22910.ttmem"}
	for failures, first := range []string{"leaks", "oom"} {
		list := r.next(&memory.Snapshot{FailureCount: uint64(failures)})
		qt.Check(t, qt.HasLen(list, 3))
		for i, one := range list {
			words := strings.Fields(one[0])
			c, _, err := newRoot().Find(words[:1])
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(c.Name(), words[0]))
			qt.Check(t, qt.IsTrue(i > 0 || words[0] == first), qt.Commentf("%v", list))
			qt.Check(t, qt.IsTrue(len("  ttmem leaks "+r.path+"  # "+one[1]) <= 80), qt.Commentf("%v", one))
		}
	}
}
