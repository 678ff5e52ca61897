package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/record"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestALiveReportIsOfOneMoment: between the two answers of the service something was
// allocated.
func TestALiveReportIsOfOneMoment(t *testing.T) {
	r := pagetest.Emptied()
	r.State.Begin(5)
	shown := r.State.Snapshot()
	shown.Reading = true
	r.From(7, pagetest.Stack("add", "forward", 3), event.DRAM, 1<<20, 1)
	later := &source.State{State: aggregate.New(), NowNs: r.Now + pagetest.Second}
	later.Apply(r.State.Checkpoint())
	for _, root := range []bool{true, false} {
		now := atOneTime(shown, later, root)
		p := &now.Processes[0]
		qt.Check(t, qt.Equals(p.Devices[0].Regions.DRAM.Buffers, 2))
		qt.Check(t, qt.Equals(p.Live[0].Buffers, 2))
		qt.Check(t, qt.Equals(now.TimeNs, r.Now+pagetest.Second))
		qt.Check(t, qt.Equals(now.BeganNs, 5))
		qt.Check(t, qt.IsTrue(now.Reading))
		// a user does not get the buffers of other users
		want := uint64(1)
		if root {
			want = 2
		}
		qt.Check(t, qt.Equals(now.Devices[0].Regions.DRAM.Buffers, want))
	}
	qt.Check(t, qt.Equals(shown.Processes[0].Devices[0].Regions.DRAM.Buffers, 1))
}

// TestAReportOfOneProcess: also of one that has ended.
func TestAReportOfOneProcess(t *testing.T) {
	alloc := func(pid int, id, perBank uint64) event.Event {
		e := pagetest.Buffer(event.Alloc, id, event.DRAM, 0x1000*id, perBank, pagetest.Stack("add", "forward", pid), 0)
		e.PID = pid
		return e
	}
	path := writeEvents(t, "two.ttmem", []event.Event{
		{Kind: event.ProcessStart, PID: 7, Start: &event.Start{Command: "python3 seven.py"}}, alloc(7, 1, 3<<20),
		{Kind: event.ProcessExit, PID: 7},
		{Kind: event.ProcessStart, PID: 8, Start: &event.Start{Command: "python3 eight.py"}}, alloc(8, 2, 1<<20),
	})
	for _, c := range []struct {
		pid       string
		want, not []string
	}{
		{"7", []string{"Device memory of PID 7 over 0.200 s", "36.0 MiB", "seven.py"}, []string{"12.0 MiB", "eight.py"}},
		{"8", []string{"Device memory of PID 8 over", "12.0 MiB", "eight.py"}, []string{"36.0 MiB", "seven.py"}},
	} {
		text, err := commandOutput(t, "report", path, "-p", c.pid)
		qt.Assert(t, qt.IsNil(err))
		for _, s := range c.want {
			qt.Check(t, qt.StringContains(text, s))
		}
		for _, s := range c.not {
			qt.Check(t, qt.Not(qt.StringContains(text, s)))
		}
	}
	qt.Check(t, qt.ErrorMatches(execute("report", path, "-p", "9"), "-p 9: no such process in .*two.ttmem; .*"))
	qt.Check(t, qt.ErrorMatches(execute("report", path, "-p", "0"), "-p 0: not a process id: .*"))
	// the error says where to find what an ended process had
	qt.Check(t, qt.ErrorMatches(execute("dump", path, "-p", "7"), "-p 7: the process has ended, .* `ttmem report … -p 7` shows its memory; .*"))
}

// TestAPartOfARecordingNamesTheOneBefore: as a note of the report, and on the page of
// peaks.
func TestAPartOfARecordingNamesTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.ttmem")
	recorded(t, record.Options{Path: path, MaxSize: 64 << 10}, 3)
	says := func(file string) string {
		t.Helper()
		report, err := commandOutput(t, "report", file)
		qt.Assert(t, qt.IsNil(err))
		peak, err := commandOutput(t, "peak", file)
		qt.Assert(t, qt.IsNil(err))
		f, err := source.Open(file)
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		about := f.Older()
		flat := strings.Join(strings.Fields(report), "")
		qt.Check(t, qt.Equals(strings.Contains(flat, "continues"), about != ""))
		qt.Check(t, qt.StringContains(flat, strings.ReplaceAll(about, " ", "")))
		qt.Check(t, qt.StringContains(strings.Join(strings.Fields(peak), ""), strings.ReplaceAll(about, " ", "")))
		return strings.TrimPrefix(about, file)
	}
	qt.Check(t, qt.Equals(says(path), " continues m.ttmem.1, which has the earlier events"))
	qt.Check(t, qt.Equals(says(path+".1"), " continues m.ttmem.2, which has the earlier events"))
	qt.Check(t, qt.Equals(says(path+".2"), ""))
	// A number may be free; and what is there may be of another recording.
	qt.Assert(t, qt.IsNil(os.Rename(path+".2", path+".3")))
	qt.Check(t, qt.Equals(says(path+".1"), " continues m.ttmem.3, which has the earlier events"))
	qt.Assert(t, qt.IsNil(os.Rename(path, path+".3")))
	qt.Check(t, qt.Equals(says(path+".1"), " continues an older file, which is not in its folder"))
}
