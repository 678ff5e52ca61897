package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/pagetest"
)

// captures are the pages of docs/captures: commands on recordings of TestGolden's stories.
var captures = []string{
	"report leak.ttmem", "report fragments.ttmem", "report mesh.ttmem",
	"leaks leak.ttmem", "leaks cache.ttmem", "leaks leak.ttmem --from ttnn::log#5 --to ttnn::log#25",
	`log leak.ttmem --stacks --kind free --grep story_leak\.py:21`,
	"peak peak.ttmem --region DRAM", "peak mix.ttmem --region L1",
	"dump leak.ttmem --at peak", "dump leak.ttmem --at peak --by op",
	"oom fragments.ttmem", "map fragments.ttmem --at failure#1 --region L1",
	"diff repaired.ttmem leak.ttmem", "log leak.ttmem", "ops inference.ttmem",
	"top --once --color=never leak.ttmem",
}

// byTheClock are pages with longer times. They have to fit, too.
var byTheClock = []string{"report fragments.ttmem --utc", "oom fragments.ttmem --utc", "peak mix.ttmem --utc", "log leak.ttmem --utc", "top --once leak.ttmem --utc"}

// TestCaptures compares the first screens of all pages with docs/captures; -update writes them.
// No line of them is longer than the terminal is wide.
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
	for _, s := range goldenStories {
		readStory(t, storyEvents(root, s.name)).record(t, s.name+".ttmem", 0)
	}
	for _, size := range []unix.Winsize{{Row: 24, Col: 80}, {Row: 50, Col: 200}} {
		name := fmt.Sprintf("%dx%d", size.Col, size.Row)
		t.Run(name, func(t *testing.T) {
			var page strings.Builder
			fmt.Fprintf(&page, "# Pages on a terminal of %d columns and %d rows\n\nThe first screen of each page, for recordings of real programs. "+
				"`go test ./cmd/ttmem -run TestCaptures -update` writes this file.\n", size.Col, size.Row)
			rows := func(args string) []string {
				out, errs, status := runSized(t, &size, strings.Fields(args))
				qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, errs))
				rows := strings.Split(strings.TrimSuffix(out+errs, "\n"), "\n")
				for _, row := range rows {
					width := ansi.StringWidth(row)
					qt.Check(t, qt.IsTrue(width <= int(size.Col)), qt.Commentf("%s: %d columns: %s", args, width, row))
				}
				return rows
			}
			for _, args := range captures {
				fmt.Fprintf(&page, "\n```\n$ ttmem %s\n", args)
				shown := rows(args)
				for _, row := range shown[:min(len(shown), int(size.Row)-2)] { // the command and the next prompt
					page.WriteString(strings.TrimRight(row, " ") + "\n")
				}
				page.WriteString("```\n")
			}
			for _, args := range byTheClock {
				rows(args)
			}
			for _, s := range goldenStories { // fit a screen of 40 rows, with what ttmem run writes below
				qt.Check(t, qt.IsTrue(len(rows("report "+s.name+".ttmem")) <= 36), qt.Commentf("%s", s.name))
			}
			checkGoldenFile(t, filepath.Join(docs, name+".md"), page.String(), *updateGolden)
		})
	}
}

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
