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

// newBox makes a box with short recordings.
func newBox(t *testing.T, dir string) *box {
	t.Helper()
	state := aggregate.New()
	b, err := NewBlackBox(Options{CrashDir: dir, version: "1"}, state, nil)
	qt.Assert(t, qt.IsNil(err))
	b.tape, err = recording.NewRolling(b.tape.Header, 8<<10, func() func() *event.Event { return state.Freeze(nil) })
	qt.Assert(t, qt.IsNil(err))
	b.size = 32 << 10
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

// fill adds events until recordings begin later, and lets time pass.
func (b *box) fill() {
	b.t.Helper()
	before := b.newest(0, b.size).First
	for i := uint64(0); i%1000 > 0 || b.newest(0, b.size).First == before; i++ {
		qt.Assert(b.t, qt.IsTrue(i < 1<<24))
		stack := event.StackOf([]event.Frame{{Name: fmt.Sprintf("function_%d_%d", b.now, i)}})
		b.take(pagetest.Buffer(event.Alloc, 7, event.DRAM, i<<20, 1<<20, stack, 0), pagetest.Buffer(event.Free, 7, event.DRAM, i<<20, 1<<20, nil, 0))
	}
	b.later()
}

// later lets time pass.
func (b *box) later() {
	for uid, f := range b.wanted {
		f.at = f.at.Add(-keepDelay)
		b.wanted[uid] = f
	}
	for uid, k := range b.kept {
		k.at = k.at.Add(-keepInterval)
		b.kept[uid] = k
	}
	b.Pause()
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
	b.take(failed(7, event.L1))
	qt.Check(t, qt.Equals(NewestFailure(dir), ""))
	b.take(event.Event{Kind: event.ProcessExit, PID: 7, TID: 7}) // nothing more follows
	path := NewestFailure(dir)
	qt.Assert(t, qt.Matches(filepath.Base(path), `failure-0-\d{8}-\d{6}\.\d{3}\.ttmem`))
	b.End()

	s := stateOf(t, path).Snapshot()
	qt.Check(t, qt.Equals(s.FailureCount, 1))
	qt.Check(t, qt.HasLen(s.Failures[0].Evidence.Holders, 2)) // what was live then
	qt.Check(t, qt.Equals(s.ExitedProcesses, 1))
	for file, want := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		info, err := os.Stat(file)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Perm(), want))
	}
	left, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 1))
}

// While the process of a failure runs, its recording is kept after some seconds, or many events.
func TestARecordingHasWhatFollowsAFailure(t *testing.T) {
	start := event.Event{Kind: event.ProcessStart, PID: 7}
	for name, passes := range map[string]func(b *box){
		"time": (*box).later, "events": func(b *box) { b.events += keepEvents; b.Pause() }, "the end": func(b *box) { b.End() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "failures")
			b := newBox(t, dir)
			b.take(start, failed(7, event.L1), pagetest.Buffer(event.Alloc, 7, event.DRAM, 0, 1<<20, nil, 0))
			qt.Check(t, qt.Equals(NewestFailure(dir), ""))
			passes(b)
			qt.Check(t, qt.HasLen(stateOf(t, NewestFailure(dir)).Buffers(), 1))
		})
	}
}

// One cause is kept once, and failures that follow each other are in one file; later ones are in another.
func TestABlackBoxKeepsACauseOnce(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o700)))
	b := newBox(t, dir)
	count := func() int { return len(failuresIn(os.DirFS(dir))) }
	b.take(failed(7, event.L1), failed(7, event.L1), failed(7, event.DRAM))
	first := NewestFailure(dir)
	qt.Check(t, qt.Equals(stateOf(t, first).Snapshot().FailureCount, 1)) // it is not written again at once
	b.later()
	qt.Check(t, qt.Equals(count(), 1))
	qt.Check(t, qt.Equals(stateOf(t, first).Snapshot().FailureCount, 3))
	b.fill()
	b.take(failed(7, event.L1))
	qt.Check(t, qt.Equals(count(), 1))
	b.take(failed(7, event.L1Small))
	qt.Check(t, qt.Equals(count(), 2))
	b.take(event.Event{Kind: event.ProcessStart, PID: 8, UID: 1000}, failed(8, event.L1)) // another user's cause
	b.later()
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
	b.later()
	qt.Check(t, qt.DeepEquals(count(), map[string]int{"1000": 1, "2000": 1}))
	for range failuresPerUser {
		b.fill()
		b.take(cause(7))
		b.later()
	}
	b.End()
	qt.Check(t, qt.DeepEquals(count(), map[string]int{"1000": failuresPerUser, "2000": 1}))
}

// What an earlier service left does not keep the next one from keeping failures.
func TestABlackBoxBeginsAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	for n := range 3 {
		b := newBox(t, dir)
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, partName), []byte("damaged"), 0o600)))
		b.take(event.Event{Kind: event.ProcessStart, PID: 7, UID: 1000 + n}, failed(7, event.L1))
		b.End()
		list := failuresIn(os.DirFS(dir))
		qt.Assert(t, qt.HasLen(list, n+1))
		for _, one := range list {
			qt.Check(t, qt.Equals(stateOf(t, filepath.Join(dir, one.name)).Snapshot().FailureCount, 1))
		}
	}
}

// A recording that cannot be written is reported, and the next failure is kept.
func TestABlackBoxSaysWhatItCouldNotKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	inTheWay := filepath.Join(dir, partName)
	qt.Assert(t, qt.IsNil(os.Mkdir(inTheWay, 0o700)))
	said := saidBy(t, func() { b.take(failed(7, event.L1)) })
	qt.Check(t, qt.Equals(said, "ttmem: --crash-dir: no recording of the failed allocation of PID 7: file exists\n"))
	qt.Assert(t, qt.IsNil(os.Remove(inTheWay)))
	b.take(failed(7, event.DRAM))
	b.later()
	qt.Check(t, qt.Equals(stateOf(t, NewestFailure(dir)).Snapshot().FailureCount, 2))
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
	add("1000", failuresPerUser, 1<<20)
	add("2000", 4, 64<<20) // fewer, and larger
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
	_, err := NewBlackBox(Options{CrashDir: dir}, aggregate.New(), nil)
	qt.Check(t, qt.ErrorMatches(err, "--crash-dir .*: other users can use this folder: .*chmod 700.*"))
	file := filepath.Join(dir, "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o600)))
	_, err = NewBlackBox(Options{CrashDir: file}, aggregate.New(), nil)
	qt.Check(t, qt.ErrorMatches(err, "--crash-dir .*/file: not a directory"))
	_, err = NewBlackBox(Options{CrashDir: filepath.Join(dir, "no", "such")}, aggregate.New(), nil)
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
	b.End()
	name := strings.TrimSuffix(filepath.Base(NewestFailure(dir)), failureSuffix)
	at, err := time.Parse(failureTime, name[strings.Index(name, "-0-")+3:])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(time.Since(at).Abs() < time.Hour), qt.Commentf("%s", name))
}
