package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/diagnosis"
	"ttmem/cmd/ttmem/internal/page/report"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/kernel"
)

// captures are the pages of docs/captures: commands on recordings of TestGolden's stories.
var captures = []string{
	"report leak.ttmem", "report fragments.ttmem", "report mesh.ttmem",
	"leaks repaired.ttmem", "leaks leak.ttmem", "leaks cache.ttmem", "leaks leak.ttmem --from token#5 --to token#25",
	`log leak.ttmem --stacks --kind free --grep story_leak\.py:21`,
	"peak peak.ttmem --region DRAM", "peak mix.ttmem --region L1",
	"dump held.ttmem", "dump leak.ttmem", "dump leak.ttmem --at peak", "dump leak.ttmem --at peak --by op",
	"oom fragments.ttmem", "map fragments.ttmem --at failure#1 --region L1",
	"diff repaired.ttmem leak.ttmem", "log leak.ttmem", "ops inference.ttmem",
	"top --once --color=never leak.ttmem",
}

// byTheClock are pages with longer times. They have to fit, too.
var byTheClock = []string{
	"report fragments.ttmem --utc", "oom fragments.ttmem --utc", "peak mix.ttmem --utc", "log leak.ttmem --utc",
	"dump leak.ttmem --utc --at peak", "map fragments.ttmem --utc --at peak", "diff repaired.ttmem leak.ttmem --utc --at token",
	"top --once leak.ttmem --utc",
}

// printed are the pages of docs/captures that no command prints of a recording, each with the
// command that prints it. ttmem steps has none: it answers programs, in JSON.
var printed = []struct {
	command string
	print   func(t *testing.T, stories map[string]*storyStream)
}{
	{"run -- python story_leak.py 30", func(t *testing.T, stories map[string]*storyStream) {
		endRun(t, stories["leak"], "ttmem-python-22323.ttmem")
	}},
	{"run -- python story_fragments.py", func(t *testing.T, stories map[string]*storyStream) {
		endRun(t, stories["fragments"], "ttmem-python-22910.ttmem")
	}},
	{"report", func(t *testing.T, stories map[string]*storyStream) {
		state := aggregate.New()
		story := stories["inference"]
		state.Begin(story.header.MonotonicNs)
		for _, e := range story.events[:len(story.events)/2] {
			state.Apply(&e)
		}
		snapshot := state.Snapshot()
		shown := &report.Page{Snapshot: snapshot, Options: report.Options{State: state, Live: true}}
		qt.Assert(t, qt.IsNil(output.Print(shown, term.Format{}, page.NewSupplement(page.Clock{}, snapshot), "report")))
	}},
	{"doctor", func(t *testing.T, _ map[string]*storyStream) {
		p := diagnosis.New([]kernel.Feature{
			{Name: "kernel", OK: true, Detail: "Linux 5.15.0-164-generic"},
			{Name: "processor", OK: true, Detail: "x86-64"},
			{Name: "privileges", OK: true, Detail: "root"},
			{Name: "BTF", OK: true},
			{Name: "PID namespace", OK: true, Detail: "the host's"},
			{Name: "mapping events", OK: true},
			{Name: "BPF programs", OK: true, Detail: "loaded as tracing loads them"},
			{Name: "probes", OK: true, Detail: "2 of 2 calls of a test program seen"},
			{Name: "call stacks", OK: true, Detail: "2 of 2 stacks of 8 frames right"},
			{Name: "uprobe_multi", OK: true, Detail: "invalid argument", Instead: "a perf event for each probe: ttmem ends two seconds after its report"},
		}, true, true)
		qt.Assert(t, qt.IsNil(output.Print(p, term.Format{}, new(page.Supplement), "diagnosis")))
	}},
}

// endRun prints what ttmem run prints at the end.
func endRun(t *testing.T, story *storyStream, path string) {
	t.Helper()
	state := aggregate.New()
	recorder, err := record.New(record.Options{Path: path}, state)
	qt.Assert(t, qt.IsNil(err))
	state.Begin(story.header.MonotonicNs)
	for _, e := range story.events {
		state.Complete(&e)
		state.Apply(&e)
		recorder.Add(&e)
	}
	state.Advance(story.end.TimeNs)
	snapshot := state.Snapshot()
	qt.Assert(t, qt.IsNil(recorder.Close(snapshot)))
	shown := &report.Page{Snapshot: snapshot, Options: report.Options{State: state}}
	qt.Assert(t, qt.IsNil(output.PrintTo(os.Stderr, shown, term.Format{}, page.NewSupplement(page.Clock{}, snapshot), "report")))
	recorder.Describe(snapshot, true)
	qt.Assert(t, qt.IsNil(os.Remove(path)))
}

// recordedSize is the size of a recording, which depends on the host's name.
var recordedSize = regexp.MustCompile(`\([\d.]+ KiB\)`)

// TestCaptures compares the first screens of all pages with docs/captures, and of runs the last
// screen; -update writes them. No line of them is longer than the terminal is wide.
func TestCaptures(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LC_ALL", "C.UTF-8")
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.UTC
	docs, err := filepath.Abs("../../docs/captures")
	qt.Assert(t, qt.IsNil(err))
	root, err := filepath.Abs(goldenFolder)
	qt.Assert(t, qt.IsNil(err))
	t.Chdir(t.TempDir())
	stories := make(map[string]*storyStream)
	for _, s := range goldenStories {
		stories[s.name] = readStory(t, storyEvents(root, s.name))
		stories[s.name].record(t, s.name+".ttmem", 0)
	}
	for _, size := range []unix.Winsize{{Row: 24, Col: 80}, {Row: 50, Col: 200}} {
		name := fmt.Sprintf("%dx%d", size.Col, size.Row)
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			fmt.Fprintf(&text, "# Pages on a terminal of %d columns and %d rows\n\nThe first screen of each page, for recordings of real programs; of `ttmem run` the last. "+
				"The live view and its help are at the end. `go test ./cmd/ttmem -run TestCaptures -update` writes this file.\n", size.Col, size.Row)
			rowsOf := func(name string, do func() int) []string {
				out, errs, status := onStreams(t, &size, &size, do)
				qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", name, errs))
				rows := strings.Split(strings.TrimSuffix(out+errs, "\n"), "\n")
				for _, row := range rows {
					width := ansi.StringWidth(row)
					qt.Check(t, qt.IsTrue(width <= int(size.Col)), qt.Commentf("%s: %d columns: %s", name, width, row))
				}
				return rows
			}
			rows := func(args string) []string { return rowsOf(args, func() int { return run(strings.Fields(args)) }) }
			add := func(name string, rows []string) {
				fmt.Fprintf(&text, "\n```\n$ ttmem %s\n", name)
				for _, row := range rows {
					text.WriteString(strings.TrimRight(row, " ") + "\n")
				}
				text.WriteString("```\n")
			}
			fits := int(size.Row) - 2 // with the command and the next prompt
			for _, one := range printed {
				shown := rowsOf(one.command, func() int { one.print(t, stories); return 0 })
				first := 0
				if strings.HasPrefix(one.command, "run ") {
					first = max(0, len(shown)-fits)
				}
				for i := range shown {
					shown[i] = recordedSize.ReplaceAllString(shown[i], "(…)")
				}
				add(one.command, shown[first:min(len(shown), first+fits)])
			}
			for _, args := range captures {
				shown := rows(args)
				add(args, shown[:min(len(shown), fits)])
			}
			for _, view := range topViews {
				golden, err := os.ReadFile(filepath.Join(root, "../../internal/top/testdata", strings.TrimSuffix(name+"_"+view, "_live")+".golden"))
				qt.Assert(t, qt.IsNil(err))
				add("top  # "+view, strings.Split(strings.TrimSuffix(string(golden), "\n"), "\n"))
			}
			for _, args := range byTheClock {
				rows(args)
			}
			for _, s := range goldenStories { // fit a screen of 40 rows, with what ttmem run writes below
				qt.Check(t, qt.IsTrue(len(rows("report "+s.name+".ttmem")) <= 36), qt.Commentf("%s", s.name))
			}
			checkGoldenFile(t, filepath.Join(docs, name+".md"), text.String(), *updateGolden)
		})
	}
}

// topViews are the golden files of the live view that docs/captures shows, by their names.
var topViews = []string{"live", "held", "held_by_owner", "held_several", "graph", "growth", "process", "stack", "unfolded", "by_op", "one_chip", "own_part", "recording", "help"}

// TestPictureOfARealRun compares README.md's picture with what top shows of a recording: -update
// draws it anew.
func TestPictureOfARealRun(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	picture, err := filepath.Abs("../../docs/images/top-recording.svg")
	qt.Assert(t, qt.IsNil(err))
	story := readStory(t, storyEvents(goldenFolder, "fragments"))
	t.Chdir(t.TempDir())
	story.record(t, "fragments.ttmem", 0)
	out, errs, status := runSized(t, &unix.Winsize{Row: 24, Col: 100}, strings.Fields("top --once --color=always fragments.ttmem"))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	checkGoldenFile(t, picture, pagetest.DrawSVG(strings.Split(strings.TrimSuffix(out, "\n"), "\n"), 100), *updateGolden)
}
