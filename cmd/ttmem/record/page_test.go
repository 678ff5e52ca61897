package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// TestMain is also the process of a page, as the name of the test's program says.
func TestMain(m *testing.M) {
	if os.Args[0] == PageChild {
		os.Exit(pageChild())
	}
	os.Exit(m.Run())
}

// pageChild writes what it is and what it was given. The name of a process in the recording makes it
// write too much, or wait for its end.
func pageChild() int {
	if err := LimitPageChild(); err != nil {
		return 1
	}
	r, err := recording.NewReader(os.Stdin)
	if err != nil {
		return 1
	}
	asked := ""
	for e := (event.Event{}); r.Next(&e) == nil; {
		if e.Kind == event.ProcessStart {
			asked = e.Comm
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 1
	}
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
	fmt.Printf("args %s\nnice %d\n%s", strings.Join(os.Args[1:], " "), 20-nice, status)
	switch asked {
	case "too much":
		if _, err := os.Stdout.Write(make([]byte, pageBytes)); err != nil {
			return 1
		}
	case "for ever":
		time.Sleep(time.Hour)
	}
	return 0
}

// named is the start of a process.
func named(pid, uid int, comm string) event.Event {
	return event.Event{Kind: event.ProcessStart, PID: pid, UID: uid, Comm: comm}
}

// awaitPage calls Pause until no page is being made, as if the search for owners had ended.
func (b *box) awaitPage() {
	b.t.Helper()
	for _, k := range b.kept {
		if k.page != nil {
			k.page.seen = time.Time{}
		}
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		qt.Assert(b.t, qt.IsTrue(time.Now().Before(until)))
		if b.Pause(); b.making == nil {
			return
		}
	}
}

// names are the files of a folder, without the recording that is always written.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	for _, one := range entries {
		if !strings.HasPrefix(one.Name(), recentName) {
			list = append(list, one.Name())
		}
	}
	return list
}

// A page lies beside the kept recording, as private. Its process has no capabilities, cannot get
// any, and has the lowest priority; it is asked for the events before the failure.
func TestAFailureHasAPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	for range pageEvents + 10 {
		b.take(event.Event{Kind: event.Mark, Cause: "step"})
	}
	b.take(failed(7, event.L1))
	b.awaitPage()
	kept := NewestFailure(dir)
	page := PageOf(kept)
	qt.Assert(t, qt.Equals(page, strings.TrimSuffix(kept, ".ttmem")+".html"))
	info, err := os.Stat(page)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), 0o600))
	text, err := os.ReadFile(page)
	qt.Assert(t, qt.IsNil(err))
	for _, want := range []string{
		fmt.Sprintf("args %s %d %d\n", filepath.Base(kept), pageEvents/2, b.now), "nice 19\n",
		"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapInh:\t0000000000000000\n", "NoNewPrivs:\t1\n",
	} {
		qt.Check(t, qt.StringContains(string(text), want))
	}
	b.End(b.state.Snapshot())
}

// A later failure in the same recording makes the page anew, after a while. At the end nothing is
// missing.
func TestThePageEndsAtTheNewestFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	b.take(failed(7, event.L1))
	b.awaitPage()
	b.take(failed(7, event.DRAM))
	b.awaitPage()
	read := func() string {
		text, err := os.ReadFile(PageOf(NewestFailure(dir)))
		qt.Assert(t, qt.IsNil(err))
		return string(text)
	}
	qt.Check(t, qt.StringContains(read(), " 0 1\n"))
	// as if the first thread had run what has raised priority
	qt.Assert(t, qt.IsNil(unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), host.RaisedNiceness)))
	defer unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), ownNiceness)
	b.End(b.state.Snapshot())
	qt.Check(t, qt.StringContains(read(), " 0 2\n"))
	qt.Check(t, qt.HasLen(names(t, dir), 2))
}

// A process that writes too much, is killed or does not end leaves no page and no other file.
func TestAnUnfinishedPageLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(b *box)
	}{
		{"too much", func(b *box) { b.awaitPage() }},
		{"for ever", func(b *box) {
			b.kept[0].page.seen = time.Time{}
			b.Pause()
			qt.Check(b.t, qt.IsNil(b.making.child.Process.Kill()))
			b.awaitPage()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "failures")
			b := newBox(t, dir)
			b.take(named(7, 0, c.name), failed(7, event.L1))
			c.end(b)
			b.End(b.state.Snapshot())
			qt.Check(t, qt.HasLen(names(t, dir), 1))
			qt.Check(t, qt.Equals(PageOf(NewestFailure(dir)), ""))
		})
	}
	t.Run("ttmem was killed", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "failures")
		qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o700)))
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, ".failure-0-20260101-000000.000.html.7.0.tmp"), nil, 0o600)))
		b := newBox(t, dir)
		b.End(b.state.Snapshot())
		qt.Check(t, qt.HasLen(names(t, dir), 0))
	})
}

// A thousand causes of two users make few files, one process at a time; a page goes with its
// recording.
func TestManyCausesMakeFewPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	b := newBox(t, dir)
	b.take(named(7, 1000, "a"), named(8, 2000, "b"))
	for i := range uint64(1000) {
		e := failed(7+int(i%2), event.L1)
		e.Stack = event.StackOf([]event.Frame{{Name: fmt.Sprintf("cause_%d", i)}})
		b.take(e)
	}
	b.awaitPage()
	b.awaitPage()
	qt.Check(t, qt.HasLen(names(t, dir), 4)) // a recording and a page for each user
	for range failuresPerUser {
		b.fill()
		e := failed(7, event.L1)
		e.Stack = event.StackOf([]event.Frame{{Name: fmt.Sprintf("cause_%d", b.now)}})
		b.take(e)
		b.awaitPage()
	}
	b.End(b.state.Snapshot())
	count := make(map[string]int)
	for _, name := range names(t, dir) {
		count[strings.Split(name, "-")[1]+filepath.Ext(name)]++
	}
	qt.Check(t, qt.DeepEquals(count, map[string]int{
		"1000.ttmem": failuresPerUser, "1000.html": failuresPerUser, "2000.ttmem": 1, "2000.html": 1,
	}))
}
