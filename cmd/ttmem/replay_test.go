package main

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/replay"
)

// TestStoriesAreReplayed: of the recordings of real programs, each address is predicted or has a reason not to be, and
// each failure that the model knows is predicted.
func TestStoriesAreReplayed(t *testing.T) {
	// the stories with other classes than Predicted
	others := map[string]map[replay.Class]uint64{
		"classes":      {replay.OtherEnd: 6},
		"classes_late": {replay.BeforeAttach: 22},
		"late":         {replay.BeforeAttach: 172 + 14},
		"traces":       {replay.OtherEnd: 1},
	}
	failures := uint64(0)
	title := fmt.Sprintf("%-12s %8s", "", "failures")
	for class := range replay.NumClasses {
		title += fmt.Sprintf(" %*s", columnOf(class), class)
	}
	t.Log(title)
	for _, s := range goldenStories {
		stream := readStory(t, storyEvents(goldenFolder, s.name))
		r := replay.New()
		r.OnFailure = func(f *replay.Failure) {
			qt.Check(t, qt.Equals(f.Doubt, ""), qt.Commentf("%s: %s", s.name, f.Event.Message))
		}
		for i := range stream.events {
			r.Apply(&stream.events[i])
		}
		got := make(map[replay.Class]uint64)
		for class, n := range r.Counts {
			if n > 0 && replay.Class(class) != replay.Predicted {
				got[replay.Class(class)] = n
			}
		}
		want := others[s.name]
		if want == nil {
			want = make(map[replay.Class]uint64)
		}
		qt.Check(t, qt.DeepEquals(got, want), qt.Commentf("%s", s.name))
		row := fmt.Sprintf("%-12s %8d", s.name, r.Failures)
		for class, n := range r.Counts {
			row += fmt.Sprintf(" %*d", columnOf(replay.Class(class)), n)
		}
		t.Log(row)
		failures += r.Failures
	}
	qt.Check(t, qt.Equals(failures, 12))
}

// columnOf is the width of a class in a table.
func columnOf(class replay.Class) int { return max(len(class.String()), 6) }
