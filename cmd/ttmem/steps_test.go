package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/steps"
	"ttmem/e2e/fuzztest"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// answersOf is what `ttmem steps` answers of a story with steps between these events: the first
// one begins before the event ends[0] and ends before ends[1], where the next one begins.
func answersOf(t *testing.T, s *storyStream, ends ...int) string {
	t.Helper()
	var out bytes.Buffer
	follower := steps.New(&out)
	next := 0
	feed := func(to int) {
		for ; next < to; next++ {
			e := s.events[next]
			follower.Handle(&e)
		}
	}
	marks := 0
	input := strings.Repeat("begin step\nend\n", len(ends)-1)
	qt.Assert(t, qt.IsNil(follower.Listen(strings.NewReader(input), func(name string) error {
		feed(ends[(marks+1)/2])
		marks++
		follower.Handle(&event.Event{TimeNs: s.events[max(0, next-1)].TimeNs, Kind: event.Mark, Cause: name})
		return nil
	})))
	return out.String()
}

// stepStories are those of TestGoldenSteps: a model, a device that is opened again, several chips,
// and programs with circular buffers beside tensors in L1.
var stepStories = []string{"inference", "reopen", "mesh", "mix"}

// stepsFile is the golden file of a story.
func stepsFile(story string) string { return filepath.Join(goldenFolder, story, "steps.json") }

// TestGoldenSteps compares the answers of `ttmem steps` with golden files: of stories in thirds.
func TestGoldenSteps(t *testing.T) {
	for _, name := range stepStories {
		t.Run(name, func(t *testing.T) {
			story := readStory(t, storyEvents(goldenFolder, name))
			n := len(story.events)
			out := answersOf(t, story, n/3, 2*n/3, n)
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, `{"step"`) {
					pagetest.CheckSchema(t, "step", line)
				}
			}
			checkGoldenFile(t, stepsFile(name), brokenJSON(t, out), *updateGolden)
		})
	}
}

// TestNamesInSteps: the names of functions and files in an answer have nothing that a terminal acts on.
func TestNamesInSteps(t *testing.T) {
	const name = "evil\x1b[2J\r\n\u009b31m\u202e\u2028\x00\xff"
	story := readStory(t, storyEvents(goldenFolder, "mix"))
	for i := range story.events {
		if e := &story.events[i]; e.Stack != nil {
			frames := slices.Clone(e.Stack.Frames())
			for j := range frames {
				frames[j].Name, frames[j].Symbol, frames[j].File = name, name, "/"+name+".py"
			}
			e.Stack = event.StackOf(frames)
		}
	}
	out := answersOf(t, story, 0, len(story.events))
	qt.Check(t, qt.StringContains(out, "evil"))
	fuzztest.Printable(t, out)
}

// peaksOfStep are those of a step that is as long as the story.
func peaksOfStep(t *testing.T, s *storyStream) shownPeaks {
	t.Helper()
	var step struct {
		Peaks []struct {
			Device     int
			Region     string
			PeakBytes  uint64 `json:"peak_bytes"`
			PeakTimeNs uint64 `json:"peak_time_ns"`
		}
	}
	_, answer, _ := strings.Cut(answersOf(t, s, 0, len(s.events)), "\n")
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(answer), &step)))
	peaks := make(shownPeaks)
	for _, p := range step.Peaks {
		if p.PeakBytes > 0 {
			peaks[chipRegion{p.Device, p.Region}] = shownPeak{p.PeakTimeNs, p.PeakBytes}
		}
	}
	return peaks
}
