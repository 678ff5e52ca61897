package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/top"
	"ttmem/cmd/ttmem/internal/top/feed"
	"ttmem/tracer/event"
)

// openTop opens a recording of a story, with a checkpoint for each so many events, and returns its
// events as well.
func openTop(t *testing.T, story string, checkpoints int) (*feed.Recording, *top.Options, *replayed) {
	t.Helper()
	path := filepath.Join(t.TempDir(), story+".ttmem")
	readStory(t, storyEvents(goldenFolder, story)).record(t, path, checkpoints)
	all := &replayed{t: t}
	_, err := (&source.Options{File: path}).Watch(func(e *event.Event) { all.events = append(all.events, *e) })
	qt.Assert(t, qt.IsNil(err))
	var view top.Options
	_, err = feed.OpenRecording(&source.Options{File: path}, &view)
	qt.Assert(t, qt.IsNil(err))
	return view.Source.(*feed.Recording), &view, all
}

// isAfter checks that the recording shows the state after so many events.
func isAfter(t *testing.T, r *feed.Recording, all *replayed, n int) {
	t.Helper()
	p := r.Present(0)
	qt.Assert(t, qt.Equals(p.Number, uint64(n)))
	want := all.after(n).Snapshot()
	qt.Check(t, qt.DeepEquals(p.Snapshot.Devices, want.Devices))
}

// Circular buffers and tensors fill L1 nearer to its capacity than DRAM.
func TestTopOpensARecordingAtThePeakNearestToItsCapacity(t *testing.T) {
	r, view, all := openTop(t, "peak", 100)
	var peak memory.RegionPeak
	for _, one := range all.after(len(all.events)).RegionPeaks() {
		if one.Region == event.L1 {
			peak = one
		}
	}
	qt.Check(t, qt.Equals(view.At.TimeNs, peak.TimeNs))
	isAfter(t, r, all, int(view.At.Number))
	d := r.Present(0).Devices[0]
	qt.Check(t, qt.Equals(d.L1PerCore.BufferBytes+d.L1PerCore.CBBytes, peak.Bytes))
	qt.Check(t, qt.Equals(len(r.Timelines()) > 0, true))
}

// TestTopOpensARecordingAtItsStory, which --at story finds as well: a failure, a leak when all of it is live.
func TestTopOpensARecordingAtItsStory(t *testing.T) {
	for story, kind := range map[string]moment.Kind{"fragments": moment.Failure, "leak": moment.Leak} {
		r, _, all := openTop(t, story, 100)
		at := moment.Moment{Kind: moment.Story, Text: "story"}
		file := filepath.Join(t.TempDir(), story+".ttmem")
		readStory(t, storyEvents(goldenFolder, story)).record(t, file, 100)
		_, err := (&source.Recording{Path: file}).StateAt(at, func(s *source.State, _ moment.Regions) {
			qt.Check(t, qt.Equals(s.At, kind))
			qt.Check(t, qt.Equals(r.Present(0).Number, s.Number()))
			isAfter(t, r, all, int(s.Number()))
			if kind == moment.Leak {
				survivors, _ := all.after(len(all.events)).Survivors()
				for _, site := range analyze.LeaksOf(survivors) {
					live := uint64(0)
					for _, b := range s.Buffers() {
						if memory.StackID(b.Stack) == memory.StackID(site.Stack) {
							live++
						}
					}
					qt.Check(t, qt.Equals(live, site.Count))
				}
			}
		})
		qt.Check(t, qt.IsNil(err))
	}
}

func TestTopShowsARecordingAtAnyMoment(t *testing.T) {
	for _, checkpoints := range []int{100, 1 << 30} {
		r, _, all := openTop(t, "fragments", checkpoints)
		kinds := make(map[top.StopKind]int)
		for _, stop := range r.Stops() {
			kinds[stop.Kind]++
			qt.Assert(t, qt.IsNil(r.Seek(stop.Point)))
			isAfter(t, r, all, int(stop.Number))
			e := &all.events[stop.Number-1]
			if stop.Kind == top.StopFailure {
				qt.Check(t, qt.Equals(e.Kind, event.AllocFailed))
			}
			qt.Check(t, qt.Equals(r.Present(0).Event.Kind, e.Kind))
		}
		qt.Check(t, qt.IsTrue(kinds[top.StopPeak] > 1 && kinds[top.StopFailure] > 1), qt.Commentf("%v", kinds))

		// by events, from the time between two
		first, last := r.Span()
		qt.Assert(t, qt.IsNil(r.Seek(memory.Point{TimeNs: (first.TimeNs + last.TimeNs) / 2})))
		at := int(r.Present(0).Number)
		qt.Assert(t, qt.IsTrue(at > 1 && at < len(all.events)))
		for _, n := range []int{at - 1, at - 2, at - 1, at, at + 1, 1} {
			point := memory.Point{Number: uint64(n), TimeNs: r.Present(0).BeforeNs} // or any other before it
			if n == 1 {
				point.TimeNs = 0
			}
			qt.Assert(t, qt.IsNil(r.Seek(point)))
			isAfter(t, r, all, n)
		}
		qt.Assert(t, qt.IsNil(r.Seek(last)))
		qt.Check(t, qt.DeepEquals(r.Present(0).Snapshot.Devices, all.after(len(all.events)).Snapshot().Devices))
	}
}

// A mark that is set at one moment shows at another what was allocated meanwhile.
func TestTopShowsTheGrowthBetweenTwoMoments(t *testing.T) {
	r, _, all := openTop(t, "leak", 100)
	var marks []top.Stop
	for _, stop := range r.Stops() {
		if stop.Kind == top.StopMark {
			marks = append(marks, stop)
		}
	}
	qt.Assert(t, qt.IsTrue(len(marks) > 25))
	qt.Assert(t, qt.IsNil(r.Seek(marks[4].Point)))
	r.Mark()
	qt.Assert(t, qt.IsNil(r.Seek(marks[24].Point)))
	p := r.Present(0)
	qt.Check(t, qt.Equals(p.MarkNs, marks[4].TimeNs))
	var fresh, want uint64
	for i := range p.CallSites {
		fresh += p.CallSites[i].Fresh.Count
	}
	s := all.after(int(marks[24].Number))
	for _, b := range s.Buffers() {
		if b.SinceNs > marks[4].TimeNs {
			want++
		}
	}
	for _, one := range s.Statics(0) {
		if one.SinceNs > marks[4].TimeNs && !one.Global {
			want++
		}
	}
	qt.Check(t, qt.Equals(fresh, want))
	qt.Check(t, qt.IsTrue(fresh >= 20))
}

// The view names the line that leaks as `ttmem leaks` does, already at the peak, before the first
// leaked buffer. It accuses no weights, caches or rings of results.
func TestTopNamesLeaks(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ story, want string }{
		{"leak", "\n !  720.0 KiB leaked: story_leak.py:21 forward\n"},
		{"crowd", "\n !  8.0 MiB leaked: serve_crowd.py:24\n"},
		{"repaired", ""}, {"ring", ""}, {"cache", ""}, {"inference", ""}, {"chips", ""},
	} {
		path := filepath.Join(dir, test.story+".ttmem")
		readStory(t, storyEvents(goldenFolder, test.story)).record(t, path, 100)
		out, errs, status := runSized(t, nil, []string{"top", "--once", path})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		qt.Check(t, qt.Equals(strings.Contains(out, "leaked"), test.want != ""), qt.Commentf("%s: %s", test.story, out))
		qt.Check(t, qt.StringContains(out, test.want))
	}
}
