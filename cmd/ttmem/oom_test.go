package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/e2e/browser"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// What a service kept of a failure is shown without naming it, and with the folder.
func TestOOMShowsTheNewestFailureThatWasKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "failures")
	s, err := newHostService(record.Options{CrashDir: dir}, term.NewLimiter(term.Warn))
	qt.Assert(t, qt.IsNil(err))
	for _, e := range pagetest.Failures() {
		if e.Kind == event.ProcessExit { // before, who held the buffers is found
			for id, path := range map[uint64]string{1: "model.weights", 2: "model.cache[0]", 3: "model.cache[1]"} {
				s.take(&event.Event{Kind: event.Owner, TimeNs: 1.9e9, PID: 7, BufferID: id, Cause: path, Message: "bf16[32] TILE", Count: 1e9})
			}
		}
		if e.PID == 7 {
			s.take(&e)
			s.pause()
		}
	}
	s.end(nil)
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("TTMEM_SOCKET", none)

	qt.Check(t, qt.ErrorMatches(execute("oom", "--socket", none+"-of-another"), "no ttmem service at .*"))
	for _, args := range [][]string{{"oom", dir}, {"oom"}, {"oom", "--socket", none}} { // the last as the agents' tool does
		out, _, _ := onStreams(t, nil, nil, func() int {
			root := newRoot()
			usual, _, err := root.Find(args)
			qt.Assert(t, qt.IsNil(err))
			root.RemoveCommand(usual)
			root.AddCommand(newOOM(dir))
			root.SetArgs(args)
			qt.Check(t, qt.IsNil(root.Execute()))
			return 0
		})
		qt.Check(t, qt.StringContains(out, "failure-0-"))
		qt.Check(t, qt.StringContains(out, "model.py:40"))
	}

	// its page begins at the failure, with what was live
	web := filepath.Join(t.TempDir(), "failure.html")
	qt.Assert(t, qt.IsNil(execute("html", record.NewestFailure(dir), "--to", "failure", "-o", web)))
	b := browser.New(t, 1280, 900)
	b.Call("Page.navigate", map[string]any{"url": "file://" + web})
	b.Wait("window.ttmem")
	qt.Check(t, qt.StringContains(b.Text("about"), "failed allocation: CB, PID 7"))
	qt.Check(t, qt.StringContains(b.Text("failureWay"), "It fits if you free 1 buffer, 500 B per bank: model.py:12"))
	var holders []string
	b.Eval("[...document.querySelectorAll('#holderTable tbody tr')].map(row => row.innerText.split('← ')[0].trim())", &holders)
	qt.Check(t, qt.DeepEquals(holders, []string{
		"39.1 KiB\t1\t0x1ea60 to 0x286a0\tmodel.py:10 call_10 · ttnn.empty", "1000 B\t2\t0x14e20 to 0x19e34\tmodel.py:12 call_12 · ttnn.empty",
	}))
	qt.Check(t, qt.StringContains(b.Text("holderTable"), "held by model.weights · bf16[32] TILE"))
	qt.Check(t, qt.StringContains(b.Text("holderTable"), "held by model.cache[*] · bf16[32] TILE"))
	b.CheckQuiet()

	empty := t.TempDir()
	qt.Check(t, qt.ErrorMatches(execute("oom", empty), ".* has no recording of a failed allocation: name a folder of --crash-dir, or a file"))
	qt.Check(t, qt.IsNil(os.Remove(empty)))
}

// TestOOMOfADamagedFile: damage before a failure, which a later checkpoint makes up for, takes the
// holders of buffers from the page, and nothing else. Views that have advice on such a file lack that.
func TestOOMOfADamagedFile(t *testing.T) {
	state := aggregate.New()
	path := filepath.Join(t.TempDir(), "x.ttmem")
	f, err := recording.Create(path, recording.FileOptions{
		Checkpoint:       func() func() *event.Event { return state.Freeze(nil) },
		CheckpointEvents: 1,
	})
	qt.Assert(t, qt.IsNil(err))
	size := f.Size()
	for i, e := range ownersStory() {
		e.TimeNs = 1000*pagetest.Second + uint64(i)*1e6
		state.Complete(&e)
		state.Apply(&e)
		f.Add(&e)
	}
	qt.Assert(t, qt.IsNil(f.Flush()))
	qt.Assert(t, qt.IsNil(f.Settle()))
	qt.Assert(t, qt.IsNil(f.Close(recording.End{})))
	whole, errs, status := runSized(t, nil, []string{"oom", path})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Assert(t, qt.StringContains(whole, "held by"))

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	qt.Assert(t, qt.IsNil(err))
	_, err = file.WriteAt([]byte("damage"), size+100)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(file.Close()))
	damaged, errs, status := runSized(t, nil, []string{"oom", path})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	first, _, _ := strings.Cut(whole, "\n")
	qt.Check(t, qt.StringContains(damaged, first))
	qt.Check(t, qt.Not(qt.StringContains(damaged, "held by")))
	for _, view := range []string{"report", "peak"} {
		out, errs, status := runSized(t, nil, []string{view, path})
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", view, errs))
		qt.Check(t, qt.StringContains(out, "DRAM"))
	}
}

// TestOOMSaysWhatCannotBeProved, and why, in one line.
func TestOOMSaysWhatCannotBeProved(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *storyStream)
		want   string
	}{
		"as recorded": {func(*storyStream) {}, "proved by replay: it goes to 0x20000"},
		"lost events": {func(s *storyStream) {
			i := slices.IndexFunc(s.events, func(e event.Event) bool { return e.Kind == event.AllocFailed })
			lost := event.Event{TimeNs: s.events[i].TimeNs, Kind: event.Lost, PID: s.events[i].PID, Count: 3, Cause: "the ring buffer was full"}
			s.events = slices.Insert(s.events, i, lost)
		}, "not proved: events of the process were lost"},
		"an event is missing": {func(s *storyStream) {
			i := slices.IndexFunc(s.events, func(e event.Event) bool { return e.Kind == event.Alloc && e.Region == event.L1 })
			s.events = slices.Delete(s.events, i, i+1)
		}, "not proved: an earlier address was another one than predicted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := readStory(t, storyEvents(goldenFolder, "fragments"))
			c.change(s)
			path := filepath.Join(t.TempDir(), "x.ttmem")
			s.record(t, path, 0)
			out, _, _ := runSized(t, nil, []string{"oom", path})
			qt.Check(t, qt.StringContains(out, "   "+c.want+"\n"))
		})
	}
}

// TestWhatIfFlags have errors that say what to give.
func TestWhatIfFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.ttmem")
	readStory(t, storyEvents(goldenFolder, "killed")).record(t, path, 0)
	for args, want := range map[string]string{
		"--set l1_small=3":            "--set l1_small=3: give one of l1_small_size, trace_region_size, worker_l1_size, and a size.*",
		"--set l1_small_size=much":    "--set l1_small_size=much: give one of .*",
		"--set l1_small_size":         "--set l1_small_size: give one of .*",
		"--without forward":           "--without forward: give a file and the number of a line: .*",
		"--without nowhere.py:3":      "--without nowhere.py:3: no allocation there; .*",
		"--without oom.py:1,other.py": "--without oom.py:1,other.py: give a file .*",
		"--move oom.py:34":            "--move oom.py:34: give a line and its new region, DRAM or L1: --move model.py:31:DRAM",
		"--move oom.py:L1":            "--move oom.py:L1: give a file and the number of a line: --move model.py:31:L1",
		"--first nowhere.py:3":        "--first nowhere.py:3: no allocation there; .*",
		"--clear-program-cache-at x":  "--clear-program-cache-at x: give a file .*",
		"--on n151":                   "--on n151: choose a board: n150, n300, p100, p150, p300",
		"--on p150:72":                "--on p150:72: choose a number of Tensix cores: 120 130 140",
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"oom", path}, strings.Fields(args)...)...), want))
	}
	out, errs, status := runSized(t, nil, []string{"oom", path, "--without", "oom.py:34", "--set", "worker_l1_size=1340KiB", "--set", "trace_region_size=1MiB"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	out = strings.ReplaceAll(out, "\n ", " ")
	qt.Check(t, qt.StringContains(out, "With worker_l1_size=1372160, trace_region_size=1048576, without oom.py:34: it fits: it goes to 0x21800; proved by replay"))
}
