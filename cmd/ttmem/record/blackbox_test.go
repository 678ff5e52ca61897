package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// A box is a BlackBox with its state.
type box struct {
	*BlackBox
	t     *testing.T
	state *aggregate.State
	now   uint64
}

func newBox(t *testing.T, dir string) *box {
	t.Helper()
	state := aggregate.New()
	b, err := NewBlackBox(Options{CrashDir: dir, version: "1", recentSize: leastMaxSize}, state)
	qt.Assert(t, qt.IsNil(err))
	return &box{b, t, state, 0}
}

// take takes events as a service does, with a pause after each.
func (b *box) take(events ...event.Event) {
	for _, e := range events {
		b.now++
		e.TimeNs = b.now
		b.state.Complete(&e)
		b.state.Apply(&e)
		b.Take(&e)
		b.Pause()
	}
}

// fill begins another recent recording, as it happens when one is full, and lets time pass.
func (b *box) fill() {
	b.t.Helper()
	before, err := b.folder.Lstat(recentName)
	qt.Assert(b.t, qt.IsNil(err))
	for i := uint64(0); ; i++ {
		qt.Assert(b.t, qt.IsTrue(i < 1<<24))
		stack := event.StackOf([]event.Frame{{Name: fmt.Sprintf("function_%d_%d", b.now, i)}})
		b.take(pagetest.Buffer(event.Alloc, 7, event.DRAM, i<<20, 1<<20, stack, 0), pagetest.Buffer(event.Free, 7, event.DRAM, i<<20, 1<<20, nil, 0))
		if i%1000 == 0 {
			qt.Assert(b.t, qt.IsNil(b.recent.file.Flush()))
			if now, err := b.folder.Lstat(recentName); err == nil && !os.SameFile(before, now) {
				break
			}
		}
	}
	for uid, k := range b.kept {
		k.at = k.at.Add(-keepInterval)
		b.kept[uid] = k
	}
}

func failed(pid int, region event.Region) event.Event {
	return event.Event{Kind: event.AllocFailed, PID: pid, Region: region, Reason: event.ReasonOutOfMemory, Devices: []int{0}}
}

// stateOf reads a recording to its end.
func stateOf(t *testing.T, path string) *aggregate.State {
	t.Helper()
	f, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	r, err := recording.NewReader(f)
	qt.Assert(t, qt.IsNil(err))
	s := aggregate.New()
	for e := (event.Event{}); r.Next(&e) == nil; {
		s.Apply(&e)
	}
	return s
}

// A kept recording has what was before the failure, the failure, and what followed; the folder
// and its files are private.
func TestABlackBoxKeepsARecordingOfAFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	b.take(pagetest.Failures()[:5]...)
	qt.Check(t, qt.Equals(NewestFailure(dir), ""))
	b.take(failed(7, event.L1))
	path := NewestFailure(dir)
	qt.Assert(t, qt.Matches(filepath.Base(path), `failure-0-\d{8}-\d{6}\.\d{3}\.ttmem`))
	b.take(event.Event{Kind: event.ProcessExit, PID: 7, TID: 7})
	b.End(b.state.Snapshot())

	s := stateOf(t, path).Snapshot()
	qt.Check(t, qt.Equals(s.FailureCount, 1))
	qt.Check(t, qt.HasLen(s.Failures[0].Evidence.Holders, 2)) // what was live then
	qt.Check(t, qt.Equals(s.ExitedProcesses, 1))
	for file, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		info, err := os.Stat(file)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Perm(), want))
	}
}

// One cause is kept once, and so is one recording; a later recording is kept for another cause.
func TestABlackBoxKeepsACauseOnce(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o700)))
	b := newBox(t, dir)
	count := func() int { return len(failuresIn(os.DirFS(dir))) }
	b.take(failed(7, event.L1), failed(7, event.L1), failed(7, event.DRAM))
	qt.Check(t, qt.Equals(count(), 1))
	b.fill()
	b.take(failed(7, event.L1))
	qt.Check(t, qt.Equals(count(), 1))
	b.take(failed(7, event.L1Small))
	qt.Check(t, qt.Equals(count(), 2))
	b.take(event.Event{Kind: event.ProcessStart, PID: 8, UID: 1000}, failed(8, event.L1)) // another user's cause
	qt.Check(t, qt.Equals(count(), 3))
	qt.Check(t, qt.Equals(stateOf(t, NewestFailure(dir)).Snapshot().FailureCount, 6)) // the first are in its checkpoint
}

// A thousand causes of two users make few files, and the user with many failures loses the oldest.
func TestManyCausesMakeFewRecordings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	cause := func(pid int) event.Event {
		e := failed(pid, event.L1)
		e.Stack = event.StackOf([]event.Frame{{Name: fmt.Sprintf("cause_%d", b.now)}})
		return e
	}
	count := func() map[string]int {
		n := make(map[string]int)
		for _, f := range failuresIn(os.DirFS(dir)) {
			n[f.uid]++
		}
		return n
	}
	b.take(event.Event{Kind: event.ProcessStart, PID: 7, UID: 1000}, event.Event{Kind: event.ProcessStart, PID: 8, UID: 2000})
	for i := range 1000 {
		b.take(cause(7 + i%2))
	}
	qt.Check(t, qt.DeepEquals(count(), map[string]int{"1000": 1, "2000": 1}))
	for range failuresPerUser {
		b.fill()
		b.take(cause(7))
	}
	b.End(b.state.Snapshot())
	qt.Check(t, qt.DeepEquals(count(), map[string]int{"1000": failuresPerUser, "2000": 1}))
}

// What an earlier service left does not keep the next one from starting.
func TestABlackBoxBeginsAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	recent := filepath.Join(dir, recentName)
	b := newBox(t, dir)
	b.take(failed(7, event.L1))
	b.End(b.state.Snapshot())
	first := NewestFailure(dir)
	b = newBox(t, dir)
	qt.Check(t, qt.Equals(stateOf(t, recent+".1").Snapshot().FailureCount, 1))
	b.End(b.state.Snapshot())
	qt.Assert(t, qt.IsNil(os.WriteFile(recent, []byte("damaged"), 0o600)))
	b = newBox(t, dir)
	b.End(b.state.Snapshot())
	qt.Check(t, qt.Equals(NewestFailure(dir), first))
}

// A user with many failures does not remove those of others.
func TestFailuresOfAUserMakeRoomFirst(t *testing.T) {
	var list []failureFile
	add := func(uid string, n int, bytes int64) {
		for i := range n {
			at := fmt.Sprintf("%02d", len(list))
			list = append(list, failureFile{fmt.Sprintf("%s-%d", uid, i), uid, at, bytes})
		}
	}
	add("1000", 2, 8<<20)
	add("2000", failuresPerUser+1, 8<<20)
	removed := surplus(append([]failureFile(nil), list...))
	qt.Assert(t, qt.HasLen(removed, 1))
	qt.Check(t, qt.Equals(removed[0].name, "2000-0"))
	list = nil
	add("1000", 2, 8<<20)
	add("2000", 5, 64<<20)
	for _, f := range surplus(append([]failureFile(nil), list...)) {
		qt.Check(t, qt.Equals(f.uid, "2000"))
	}
	list = nil
	add("1000", 1, 2*failureBytes) // the newest stays, whatever its size
	qt.Check(t, qt.HasLen(surplus(list), 0))
}

// A folder that others can use is not used, and no link is followed out of it.
func TestABlackBoxNeedsAFolderOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
	_, err := NewBlackBox(Options{CrashDir: dir}, aggregate.New())
	qt.Check(t, qt.ErrorMatches(err, "--crash-dir .*: other users can use this folder: .*chmod 700.*"))
	file := filepath.Join(dir, "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o600)))
	_, err = NewBlackBox(Options{CrashDir: file}, aggregate.New())
	qt.Check(t, qt.ErrorMatches(err, "--crash-dir .*/file: not a directory"))
	_, err = NewBlackBox(Options{CrashDir: filepath.Join(dir, "no", "such")}, aggregate.New())
	qt.Check(t, qt.ErrorMatches(err, "--crash-dir .*: no such file or directory"))
	qt.Assert(t, qt.IsNil(os.Symlink(file, filepath.Join(dir, "failure-0-20260101-000000.ttmem"))))
	qt.Check(t, qt.Equals(NewestFailure(dir), ""))
}

// TestNamesOfFailuresAreUTC: their times sort as texts also when the local time goes back.
func TestNamesOfFailuresAreUTC(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("", -9*3600)
	defer func() { time.Local = local }()
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	b.take(event.Event{Kind: event.AllocFailed, PID: 7, Region: event.L1, Reason: event.ReasonOutOfMemory})
	b.End(b.state.Snapshot())
	name := strings.TrimSuffix(filepath.Base(NewestFailure(dir)), failureSuffix)
	at, err := time.Parse(failureTime, name[strings.Index(name, "-0-")+3:])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(time.Since(at).Abs() < time.Hour), qt.Commentf("%s", name))
}
