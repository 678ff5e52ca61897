package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/browser"
	"ttmem/tracer/event"
)

// pageTotals are what a page adds up at a row: count and bytes on all chips, by process and
// region; without the program that runs.
const pageTotals = `(row => {
	const { recording } = ttmem, sums = {};
	recording.tally({ from: 0, to: row, at: row, chip: "" });
	for (const s of recording.sites) {
		const { count, bytes } = recording.amount(s.i, "live");
		if (s.region === "KERNEL" || s.kind === "circular buffers" || !count) continue;
		const sum = (sums[s.pid + " " + s.region] ||= [0, 0]);
		sum[0] += count; sum[1] += bytes;
	}
	return sums;
})`

// pageDiffers lists the regions of chips whose call sites do not add up to the use that the page's heading has.
const pageDiffers = `(row => {
	const { recording } = ttmem, list = [];
	for (const line of recording.lines) {
		recording.tally({ from: row, to: row, at: row, chip: String(line.devices[0]) });
		let sum = 0;
		for (const s of recording.sites) if (s.region === line.region) sum += recording.amount(s.i, "live").bytes;
		const use = recording.useAt(line, row).bytes;
		if (sum !== use) list.push(line.region + " of chip " + line.devices[0] + ": " + sum + " in the graph, " + use + " in the heading");
	}
	return list;
})`

type totals map[string][2]uint64

func (s totals) add(pid int, region string, chips []int, bytes uint64) {
	key := fmt.Sprintf("%d %s", pid, region)
	n := uint64(max(1, len(chips)))
	s[key] = [2]uint64{s[key][0] + n, s[key][1] + n*bytes}
}

// dumpTotals are the totals that `ttmem dump` lists.
func dumpTotals(t *testing.T, file, at string) totals {
	var d dumped
	jsonOf(t, &d, "dump", "--json", "--at", at, file)
	sums := make(totals)
	for _, b := range d.Buffers {
		sums.add(b.PID, b.Region, b.Devices, inRegion(b.Region, b.BytesPerBank, b.AllocatedBytes))
	}
	for _, s := range d.Statics {
		cores := 0
		for _, r := range s.Cores {
			cores += event.CoreRange{X0: r[0], Y0: r[1], X1: r[2], Y1: r[3]}.Cores()
		}
		if !s.Global {
			sums.add(s.PID, "CB", s.Devices, s.BytesPerCore*uint64(cores))
		}
	}
	return sums
}

// TestThePageAgrees: at the end, at each mark and failure, at its story, and at other times, the browser adds up
// what `ttmem dump` lists, and its timelines have the peaks of `ttmem peak`; on the recordings of
// all stories.
func TestThePageAgrees(t *testing.T) {
	root, err := filepath.Abs(goldenFolder)
	qt.Assert(t, qt.IsNil(err))
	t.Chdir(t.TempDir())
	b := browser.New(t, 1280, 900)
	moments, peaks, kinds := 0, 0, make(map[string]int)
	for _, s := range goldenStories {
		file := s.name + ".ttmem"
		readStory(t, storyEvents(root, s.name)).record(t, file, 0)
		_, errs, status := runOnStreams(t, false, []string{"html", file})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		path, err := filepath.Abs(s.name + ".html")
		qt.Assert(t, qt.IsNil(err))
		b.Open(path)
		var last int
		b.Eval("ttmem.recording.last", &last)
		var stops []struct {
			Row        int
			Kind, Text string
		}
		b.Eval("ttmem.recording.stops", &stops)
		rows := map[string]int{"end": last}
		count := make(map[string]int)
		for _, stop := range stops {
			name := map[string]string{"mark": "mark:" + strings.TrimPrefix(stop.Text, "mark "), "failure": "failure"}[stop.Kind]
			if count[name]++; name != "" {
				rows[fmt.Sprintf("%s#%d", name, count[name])] = stop.Row
			}
		}
		for part := 1; part < 8; part++ { // of the recording
			var at struct {
				Row     int
				Seconds float64
			}
			b.Eval(fmt.Sprintf(`(r => { const row = r.rowAt(r.time[r.last] * %d / 8); return { row, seconds: r.time[row] + 1e-9 }; })(ttmem.recording)`, part), &at)
			rows[fmt.Sprintf("%.9fs", at.Seconds)] = at.Row
		}
		var opened struct {
			Kind string
			Row  int
		}
		b.Eval("ttmem.recording.head.story", &opened)
		if opened.Kind != "peak" { // each region has its own
			rows["story"] = opened.Row
		}
		kinds[opened.Kind]++
		for at, row := range rows {
			moments++
			got := make(totals)
			b.Eval(fmt.Sprintf("%s(%d)", pageTotals, row), &got)
			qt.Check(t, qt.DeepEquals(got, dumpTotals(t, file, at)), qt.Commentf("%s at %s, row %d", s.name, at, row))
			var differ []string
			b.Eval(fmt.Sprintf("%s(%d)", pageDiffers, row), &differ)
			if s.name != "mesh" && s.name != "crowd" { // what several allocators assigned is in the sum several times
				qt.Check(t, qt.HasLen(differ, 0), qt.Commentf("%s at %s, row %d: %v", s.name, at, row, differ))
			}
		}

		var known []struct {
			Device           int
			Region           string
			Bytes, Now, Most uint64
		}
		b.Eval(`ttmem.recording.head.peaks.map(p => {
			const line = ttmem.recording.lines.find(l => l.region === p.region && l.devices.includes(p.device));
			return { ...p, now: ttmem.recording.useAt(line, p.row).bytes, most: line.pyramid.range(0, line.bytes.length).high };
		})`, &known)
		want, _, _ := peaksOfPeak(t, file)
		qt.Check(t, qt.HasLen(known, len(want)))
		for _, p := range known {
			peaks++
			bytes := want[chipRegion{p.Device, p.Region}].Bytes
			qt.Check(t, qt.DeepEquals([]uint64{p.Bytes, p.Now, p.Most}, []uint64{bytes, bytes, bytes}), qt.Commentf("%s: %s of chip %d", s.name, p.Region, p.Device))
		}
	}
	qt.Check(t, qt.IsTrue(moments > 100 && peaks > 30), qt.Commentf("%d moments, %d peaks", moments, peaks))
	qt.Check(t, qt.IsTrue(kinds["failure"] > 0 && kinds["leak"] > 0 && kinds["peak"] > 0), qt.Commentf("stories %v", kinds))
	b.CheckQuiet()
}

// TestAPageOfAPart begins with what is live at --from, and ends at --to.
func TestAPageOfAPart(t *testing.T) {
	mistakenFiles(t) // with the story leak
	_, errs, status := runOnStreams(t, false, []string{"html", "model.ttmem", "-o", "part.html", "--from", "token#2", "--to", "token#6"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	path, err := filepath.Abs("part.html")
	qt.Assert(t, qt.IsNil(err))
	b := browser.New(t, 1280, 900)
	b.Open(path)
	for row, at := range map[string]string{"0": "token#2", "ttmem.recording.last": "token#6"} {
		got := make(totals)
		b.Eval(fmt.Sprintf("%s(%s)", pageTotals, row), &got)
		qt.Check(t, qt.DeepEquals(got, dumpTotals(t, "model.ttmem", at)), qt.Commentf("%s", at))
	}
	b.CheckQuiet()

	o := htmlOptions{most: 100}
	o.source.File = "model.ttmem"
	qt.Check(t, qt.ErrorMatches(writeHTML(t.Context(), &o), "model.ttmem has more than 100 events: choose a part with --from and --to"))
}

// TestThePageNamesWhatHoldsALeak, with the numbers of its tensors.
func TestThePageNamesWhatHoldsALeak(t *testing.T) {
	path := writeEvents(t, "late.ttmem", ownersStory())
	_, errs, status := runOnStreams(t, false, []string{"html", path})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	b := browser.New(t, 1280, 900)
	b.Open(strings.TrimSuffix(path, ".ttmem") + ".html")
	b.Press("5")
	const held = "held by model.debug[…]: 6 → 18 → 30 tensors"
	qt.Check(t, qt.StringContains(b.Text("leakTable"), held))
	b.Press("/")
	b.Write("model.debug")
	qt.Check(t, qt.StringContains(b.Text("leakTable"), held))
	b.Write("model.state")
	qt.Check(t, qt.Not(qt.StringContains(b.Text("leakTable"), held)))
	b.CheckQuiet()
}

// TestThePageHasAdvice on what to free earlier: a view, and a click goes to the peak. A part of a recording, and one in which
// uses are not recorded, have none.
func TestThePageHasAdvice(t *testing.T) {
	events := lateEvents()
	path := writeEvents(t, "late.ttmem", events)
	write := func(path string, args ...string) *browser.Browser {
		page := filepath.Join(t.TempDir(), "page.html")
		_, errs, status := runOnStreams(t, false, append([]string{"html", path, "-o", page}, args...))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		b := browser.New(t, 1280, 900)
		b.Open(page)
		return b
	}
	b := write(path)
	b.Press("7")
	qt.Check(t, qt.StringContains(b.Text("views"), "Advice (1)"))
	for _, text := range []string{
		"2.0 KiB", "6.0 KiB", "model.py:10 call_10 · ttnn.empty", "held by residual (local of forward)", "last used by model.py:20 call_20 · ttnn.add, 1 run before the peak",
		"L1 per core, tensors: peak 8.0 KiB; if all is freed after its last use 6.0 KiB, proved by replay.",
	} {
		qt.Check(t, qt.StringContains(b.Text("adviceTable"), text))
	}
	b.Press("/")
	b.Write("residual")
	qt.Check(t, qt.StringContains(b.Text("adviceTable"), "model.py:10"))
	b.Write("other")
	qt.Check(t, qt.StringContains(b.Text("adviceTable"), "Nothing is held after its last use here."))
	b.Press("Escape")
	b.Eval("(document.querySelector('#adviceTable td button').click(), true)", new(bool))
	qt.Check(t, qt.StringContains(b.Text("about"), "L1 per core of chip 0: 8.0 KiB of 10.0 KiB, 80.0 %"))
	b.CheckQuiet()
	b = write(path, "--from", "0.1s")
	qt.Check(t, qt.Not(qt.StringContains(b.Text("views"), "Advice")))
	for i := range events {
		events[i].Uses = nil
	}
	b = write(writeEvents(t, "unknown.ttmem", events))
	qt.Check(t, qt.Not(qt.StringContains(b.Text("views"), "Advice")))
}

// TestThePageIsWrittenBeside the recording, by default, and replaces nothing.
func TestThePageIsWrittenBesideTheRecording(t *testing.T) {
	mistakenFiles(t)
	_, errs, status := runOnStreams(t, false, []string{"html", "model.ttmem"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.Equals(errs, "ttmem: wrote 2369 events to model.html: open it in a browser\n"))
	_, errs, status = runOnStreams(t, false, []string{"html", "model.ttmem"})
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(errs, "model.html exists"))
	_, _, status = runOnStreams(t, false, []string{"html", "model.ttmem", "-o", "model.html"})
	qt.Check(t, qt.Equals(status, 0))
	page, err := os.ReadFile("model.html")
	qt.Assert(t, qt.IsNil(err))
	for _, sign := range []string{"http:", "https:", "src=", "@import", "url("} {
		qt.Check(t, qt.IsFalse(strings.Contains(string(page), sign)), qt.Commentf("%s", sign))
	}

	// a page of a private recording is private
	qt.Assert(t, qt.IsNil(os.Chmod("model.ttmem", 0o600)))
	defer unix.Umask(unix.Umask(0o022))
	_, _, status = runOnStreams(t, false, []string{"html", "model.ttmem", "-o", "private.html"})
	qt.Check(t, qt.Equals(status, 0))
	info, err := os.Stat("private.html")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), 0o600))
}

// TestAPageWithoutStacks has the rest, and says so. Where nothing was allocated, none is missing.
func TestAPageWithoutStacks(t *testing.T) {
	events := []event.Event{
		{Kind: event.ProcessStart, PID: 7, Comm: "python3", TimeNs: 1},
		{Kind: event.Alloc, PID: 7, BufferID: 1, Devices: []int{0}, SizeBytes: 4096, BytesPerBank: 4096, Banks: 1, TimeNs: 2},
	}
	_, errs, status := runOnStreams(t, false, []string{"html", writeEvents(t, "bare.ttmem", events)})
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.StringContains(errs, "has no call stacks: the page has sizes, times, addresses and known owners only\n"))
	_, errs, status = runOnStreams(t, false, []string{"html", writeEvents(t, "empty.ttmem", events[:1])})
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.Not(qt.StringContains(errs, "call stacks")))
}

// TestCtrlCLeavesNoHalfFile: a page or an export that is interrupted while it is written is removed.
func TestCtrlCLeavesNoHalfFile(t *testing.T) {
	mistakenFiles(t)
	before, err := os.ReadDir(".")
	qt.Assert(t, qt.IsNil(err))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	commands := [][]string{{"html"}}
	for _, f := range exportFormats {
		commands = append(commands, []string{"export", "--to", f.name, "-o", "interrupted"})
	}
	for _, args := range commands {
		_, errs, status := onStreams(t, nil, nil, func() int {
			root := newRoot()
			root.SetArgs(append(args, "model.ttmem"))
			if err := root.ExecuteContext(ctx); !errors.Is(err, term.ErrInterrupted) {
				return 1
			}
			return 0
		})
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%v: %s", args, errs))
		after, err := os.ReadDir(".")
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.HasLen(after, len(before)), qt.Commentf("%v: %v", args, after))
	}
}

var pagePictures = flag.String("page-pictures", "", "write the pictures of docs/html.md to the `folder`")

// TestThePageOfAStory of a real program shows its failed allocation with the map of the banks.
func TestThePageOfAStory(t *testing.T) {
	root, err := filepath.Abs(goldenFolder)
	qt.Assert(t, qt.IsNil(err))
	t.Chdir(t.TempDir())
	b := browser.New(t, 1280, 760)
	open := func(story, hash string) {
		readStory(t, storyEvents(root, story)).record(t, story+".ttmem", 0)
		_, _, status := runOnStreams(t, false, []string{"html", story + ".ttmem"})
		qt.Assert(t, qt.Equals(status, 0))
		path, err := filepath.Abs(story + ".html")
		qt.Assert(t, qt.IsNil(err))
		b.Open(path + hash)
	}
	picture := func(name string) {
		b.Screenshot(name)
		if *pagePictures != "" {
			b.WritePicture(filepath.Join(*pagePictures, name+".png"))
		}
	}
	open("inference", "#range=150-420&region=DRAM")
	picture("html")

	// the operations with the least headroom are first, as in `ttmem ops`
	var doc struct{ Operations []struct{ Name string } }
	jsonOf(t, &doc, "ops", "--json", "inference.ttmem")
	var names []string
	b.Press("4")
	b.Eval("[...document.querySelectorAll('#operationTable tbody b')].map(b => b.textContent)", &names)
	qt.Assert(t, qt.Not(qt.HasLen(names, 0)))
	for i, name := range names {
		qt.Check(t, qt.Equals(name, doc.Operations[i].Name))
	}
	open("fragments", "")
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1280, "height": 940, "deviceScaleFactor": 1, "mobile": false})
	b.Dark(true)
	b.Press("6")
	b.Eval("(document.querySelector('#failureTable td button').click(), true)", new(bool))
	b.Settle()
	qt.Check(t, qt.StringContains(b.Text("failureAbout"), "L1 of chip 0 at +"))
	var blocks int
	b.Eval("ttmem.failureMap.blocks().length", &blocks)
	qt.Check(t, qt.IsTrue(blocks > 3))
	picture("html-failure")
	for _, view := range []string{"1", "2", "3", "4", "5"} {
		b.Press(view)
		b.Screenshot("story" + view)
	}
	b.CheckQuiet()
}
