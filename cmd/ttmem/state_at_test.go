package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/tracer/event"
)

// A replayed is the states of a recording at its moments, each made from its first event on
// and found without the index of a State.
type replayed struct {
	t      *testing.T
	events []event.Event
}

// after is the state after so many events.
func (r *replayed) after(n int) *aggregate.State {
	s := aggregate.New()
	for i := range r.events[:n] {
		s.Apply(&r.events[i])
	}
	s.Settle() // as at a moment of a recording
	return s
}

// moments are all moments of the recording that have a name, and after which event they are.
func (r *replayed) moments() map[string][]int {
	all := map[string][]int{"end": {len(r.events)}}
	marks, failures := make(map[string]int), 0
	running := make(map[int]bool)
	going, begin := false, 0
	first := r.events[0].TimeNs
	var last uint64
	for i := range r.events {
		e, n := &r.events[i], i+1
		last = max(last, e.TimeNs)
		switch e.Kind {
		case event.Mark:
			marks[e.Cause]++
			all["mark:"+e.Cause] = []int{n}
			all[fmt.Sprintf("mark:%s#%d", e.Cause, marks[e.Cause])] = []int{n}
		case event.AllocFailed:
			failures++
			all["failure"] = []int{n}
			all[fmt.Sprintf("failure#%d", failures)] = []int{n}
		}
		switch {
		case going && e.BeforeAttach && running[e.PID]:
			begin = n
		case going:
		case e.Kind >= event.Alloc && e.Kind <= event.KernelUnload && !e.BeforeAttach:
			going = true
		default:
			begin = n
			running[e.PID] = running[e.PID] || e.Kind == event.ProcessStart
		}
	}
	all["begin"] = []int{begin}
	for _, share := range []uint64{0, 10, 50, 99, 100} {
		after := (last - first) * share / 100
		n := 0
		for n < len(r.events) && r.events[n].TimeNs <= first+after {
			n++
		}
		all[time.Duration(after).String()] = []int{n}
	}
	return all
}

// known is all that a state says, as text: so that two can be compared.
func known(s *aggregate.State) string {
	snap := s.Snapshot()
	var lines []string
	add := func(values ...any) { lines = append(lines, jsonText(values)) }
	add(snap, s.Index(), s.Number(), s.BuffersAllocated())
	for _, f := range snap.Failures {
		add(f, f.Evidence)
	}
	for _, h := range s.Buffers() {
		add(h, h.Cores())
	}
	for i := range snap.Devices {
		add(s.Statics(snap.Devices[i].ID))
	}
	for _, p := range s.RegionPeaks() {
		add(p)
	}
	for _, h := range s.CallSites() {
		add(h)
	}
	ordered := len(lines)
	survivors, others := s.Survivors()
	for _, one := range survivors {
		add(one)
	}
	slices.Sort(lines[ordered:])
	add(others)
	return strings.Join(lines, "\n")
}

func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestAStateFromCheckpointsIsThatOfAllEvents compares each moment of all stories, whose
// recordings have many checkpoints, with what the events from the first one on say.
func TestAStateFromCheckpointsIsThatOfAllEvents(t *testing.T) {
	compared := make(map[moment.Kind]int)
	for _, story := range goldenStories {
		path := filepath.Join(t.TempDir(), story.name+".ttmem")
		stream := readStory(t, storyEvents(goldenFolder, story.name))
		// A state has owners that were found later, too; the events up to its moment do not.
		stream.events = slices.DeleteFunc(stream.events, func(e event.Event) bool { return e.Kind == event.Owner })
		stream.record(t, path, 100)
		all := &replayed{t: t}
		_, err := (&source.Options{File: path}).Watch(func(e *event.Event) { all.events = append(all.events, *e) })
		qt.Assert(t, qt.IsNil(err))
		for text, at := range all.moments() {
			m, err := source.ParseMoment("at", text)
			qt.Assert(t, qt.IsNil(err))
			m.Last = true
			comment := qt.Commentf("%s at %s", story.name, text)
			reached := 0
			_, err = (&source.Recording{Path: path}).StateAt(m, func(s *source.State, of moment.Regions) {
				qt.Check(t, qt.IsTrue(of(0, event.DRAM)), comment)
				qt.Check(t, qt.IsTrue(known(s.State) == known(all.after(at[reached]))), comment)
				reached++
			})
			qt.Assert(t, qt.IsNil(err), comment)
			qt.Assert(t, qt.Equals(reached, 1), comment)
			compared[m.Kind]++
		}
		compared[moment.Peak] += all.comparePeaks(path)
	}
	for _, kind := range []moment.Kind{moment.End, moment.Begin, moment.Peak, moment.Mark, moment.Failure, moment.After} {
		qt.Check(t, qt.IsTrue(compared[kind] > 0), qt.Commentf("kind %d", kind))
	}
}

// comparePeaks compares the states at peaks, and counts them.
func (r *replayed) comparePeaks(path string) (compared int) {
	type place struct {
		device int
		region event.Region
	}
	events, at := make(map[uint64]int), make(map[place]int) // the number of events, by that of State and by peak
	s := aggregate.New()
	for i := range r.events {
		if s.Apply(&r.events[i]); events[s.Number()] == 0 {
			events[s.Number()] = i + 1
		}
	}
	s.Settle()
	for _, peak := range s.Index().Peaks {
		at[place{peak.Device, peak.Region}] = events[peak.Number]
	}
	states := make(map[int]string)
	for _, n := range at {
		if states[n] == "" {
			states[n] = known(r.after(n))
		}
	}
	reached := 0
	_, err := (&source.Recording{Path: path}).StateAt(moment.Moment{Kind: moment.Peak, Text: "peak"}, func(s *source.State, of moment.Regions) {
		reached++
		now := known(s.State)
		for where, n := range at {
			if of(where.device, where.region) {
				compared++
				qt.Check(r.t, qt.IsTrue(now == states[n]), qt.Commentf("%s: peak of %s of chip %d", path, where.region, where.device))
			}
		}
	})
	qt.Check(r.t, qt.IsNil(err))
	qt.Check(r.t, qt.Equals(reached, len(states)))
	qt.Check(r.t, qt.Equals(compared, len(at)))
	return compared
}

// TestAStateFromADamagedFileIsRightOrAnError, whatever part of the file is damaged.
func TestAStateFromADamagedFileIsRightOrAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mix.ttmem")
	readStory(t, storyEvents(goldenFolder, "mix")).record(t, path, 100)
	content, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	all := &replayed{t: t}
	_, err = (&source.Options{File: path}).Watch(func(e *event.Event) { all.events = append(all.events, *e) })
	qt.Assert(t, qt.IsNil(err))
	want := make(map[string]string)
	for text, at := range all.moments() {
		if text != "end" && !strings.HasPrefix(text, "failure") { // the last one may be another one then
			want[text] = known(all.after(at[0]))
		}
	}
	right, failed := 0, 0
	for part := range 12 {
		damaged := slices.Clone(content)
		damaged[len(content)*(part+1)/14] ^= 0x55
		qt.Assert(t, qt.IsNil(os.WriteFile(path, damaged, 0o644)))
		for text := range want {
			m, err := source.ParseMoment("at", text)
			qt.Assert(t, qt.IsNil(err))
			m.Last = true
			_, err = (&source.Recording{Path: path}).StateAt(m, func(s *source.State, _ moment.Regions) {
				qt.Check(t, qt.IsTrue(known(s.State) == want[text]), qt.Commentf("%s, part %d", text, part))
				right++
			})
			if err != nil {
				failed++
				qt.Check(t, qt.ErrorMatches(err, ".*(damaged|nothing .* after its first event|cut short).*"), qt.Commentf("%s, part %d", text, part))
			}
		}
	}
	qt.Check(t, qt.IsTrue(right > 0 && failed > 0), qt.Commentf("%d right, %d failed", right, failed))
}
