package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/source"
)

// TestADifferenceHasAllThatWasNeverFreed compares what diff reads of recordings with what all
// their events say.
func TestADifferenceHasAllThatWasNeverFreed(t *testing.T) {
	for _, s := range goldenStories {
		path := filepath.Join(t.TempDir(), s.name+".ttmem")
		readStory(t, storyEvents(goldenFolder, s.name)).record(t, path, 200)
		side := newDiffSide(path, source.Moment{Text: "left"})
		_, err := readSides(nil, side, newDiffSide(path, source.Moment{Text: "left"}))
		qt.Assert(t, qt.IsNil(err))
		var want analyze.Parts
		state := aggregate.New()
		_, err = (&source.Options{File: path}).Watch(source.Completed(state, want.AddUnfreed))
		qt.Assert(t, qt.IsNil(err))
		want.AddLive(state, source.EveryRegion)
		lines := func(p *analyze.Parts) (list []string) {
			for _, one := range p.List {
				stack := one.Stack.Frames()
				one.Stack = nil
				list = append(list, fmt.Sprintf("%+v %+v", one, stack))
			}
			slices.Sort(list)
			return list
		}
		qt.Assert(t, qt.DeepEquals(lines(&side.Parts), lines(&want)), qt.Commentf("%s", s.name))
	}
}
