package analyze_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/export"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// held is a process that was attached late. Two layers and a buffer without an owner are from
// before; a call site allocated one buffer for a list, one for a local variable, one that was freed,
// and one after the peak.
func held() (s *aggregate.State, w *story) {
	w = newStory()
	before := func(path string) {
		w.next++
		w.apply(event.Event{
			Kind: event.Alloc, BufferID: w.next, Allocator: 1, Devices: []int{0, 1}, BytesPerBank: 100, Banks: 10, BeforeAttach: true,
		})
		w.own(w.next, path)
	}
	before("model.layers[0].wq")
	before("model.layers[1].wq")
	before("")
	w.own(w.alloc("step"), "m.debug[0]")
	w.own(w.alloc("step"), "local x of step()")
	peak := w.alloc("step")
	w.free(peak)
	w.own(w.alloc("step"), "m.debug[1]")
	return w.state, w
}

func (w *story) own(id uint64, path string) {
	if path != "" {
		w.apply(event.Event{Kind: event.Owner, BufferID: id, Cause: path, Message: fmt.Sprintf("bf16[32,%d] TILE", id/3)})
	}
}

func TestHoldersOfACallSite(t *testing.T) {
	s, _ := held()
	h := analyze.HoldersOf(s)
	var got []string
	for _, c := range s.CallSites() {
		for _, perBank := range []bool{false, true} {
			for _, one := range h.Split(&c.Site, c.Amount, analyze.Now, perBank) {
				got = append(got, fmt.Sprint(c.BeforeAttach, " ", one.Path, " ", one.Tensor, " ", one.Count, " ", one.Bytes))
			}
		}
	}
	slices.Sort(got)
	qt.Check(t, qt.DeepEquals(got, []string{
		"false local x of step() bf16[32,1] TILE 1 100",
		"false local x of step() bf16[32,1] TILE 1 1000",
		"false m.debug[*]  2 200",
		"false m.debug[*]  2 2000",
		"true   1 1000",
		"true   1 2800",
		"true model.layers[*].wq bf16[32,0] TILE 2 200",
		"true model.layers[*].wq bf16[32,0] TILE 2 2000",
	}))
	// at the peak, only what had been allocated
	peak := s.RegionPeaks()[0]
	for i := range peak.Holders {
		p := &peak.Holders[i]
		for _, one := range h.Split(&p.Site, p.Amount, peak.TimeNs, false) {
			if one.Path == "m.debug[*]" {
				qt.Check(t, qt.Equals(one.Amount, memory.Amount{Count: 1, Bytes: 1000}))
			}
		}
	}
}

// TestProfilesByOwner: buffers without a stack are apart by owner, and with byOwner all have it as
// the outermost frame. No byte is lost.
func TestProfilesByOwner(t *testing.T) {
	s, _ := held()
	folded := func(byOwner bool, value string) string {
		var b bytes.Buffer
		_, err := export.Folded(&b, analyze.Profile(s, byOwner), export.Options{Value: value})
		qt.Assert(t, qt.IsNil(err))
		return b.String()
	}
	qt.Check(t, qt.Equals(folded(false, "inuse_space"), `[unknown] (7);device 0;DRAM;[no stack] 1000
[unknown] (7);device 0;DRAM;model.layers[*].wq 2000
[unknown] (7);device 0;DRAM;step (model.py:1) 3000
[unknown] (7);device 1;DRAM;[no stack] 1000
[unknown] (7);device 1;DRAM;model.layers[*].wq 2000
`))
	qt.Check(t, qt.Equals(folded(true, "inuse_space"), `[unknown] (7);device 0;DRAM;[owner not known] 1000
[unknown] (7);device 0;DRAM;local x of step();step (model.py:1) 1000
[unknown] (7);device 0;DRAM;m.debug[*];step (model.py:1) 2000
[unknown] (7);device 0;DRAM;model.layers[*].wq 2000
[unknown] (7);device 1;DRAM;[owner not known] 1000
[unknown] (7);device 1;DRAM;model.layers[*].wq 2000
`))
	qt.Check(t, qt.Equals(folded(true, "alloc_objects"), `[unknown] (7);device 0;DRAM;[owner not known] 1
[unknown] (7);device 0;DRAM;[owner not known];step (model.py:1) 1
[unknown] (7);device 0;DRAM;local x of step();step (model.py:1) 1
[unknown] (7);device 0;DRAM;m.debug[*];step (model.py:1) 2
[unknown] (7);device 0;DRAM;model.layers[*].wq 2
[unknown] (7);device 1;DRAM;[owner not known] 1
[unknown] (7);device 1;DRAM;model.layers[*].wq 2
`))
}

// TestPartsByOwner: what a comparison counts is apart by owner, and adds up.
func TestPartsByOwner(t *testing.T) {
	s, _ := held()
	var parts analyze.Parts
	parts.AddLive(s, func(int, event.Region) bool { return true })
	got := make(map[string]memory.Amount)
	for _, p := range parts.List {
		sum := got[p.Owner]
		sum.Add(p.Amount)
		got[p.Owner] = sum
	}
	qt.Check(t, qt.DeepEquals(got, map[string]memory.Amount{
		"": {Count: 1, Bytes: 1000}, "model.layers[*].wq": {Count: 2, Bytes: 2000},
		"m.debug[*]": {Count: 2, Bytes: 2000}, "local x of step()": {Count: 1, Bytes: 1000},
	}))
}

// TestOwnersAreKnownAfterTheEnd: what is known of a process that ended is the same as before, however
// its buffers ended, and in a checkpoint.
func TestOwnersAreKnownAfterTheEnd(t *testing.T) {
	text := func(list []analyze.Holder) (text string) {
		for _, one := range list {
			text += fmt.Sprint(" ", one.Path, " ", one.Count)
		}
		return text
	}
	parts := func(s *aggregate.State, add func(*analyze.Parts)) map[string]uint64 {
		var parts analyze.Parts
		add(&parts)
		got := make(map[string]uint64)
		for _, p := range parts.List {
			got[p.Owner] += p.Count
		}
		return got
	}
	unfreed := func(s *aggregate.State) map[string]uint64 {
		return parts(s, func(p *analyze.Parts) { p.AddUnfreed(s) })
	}
	// told is what the peak has, with the time of the peak
	told := func(s *aggregate.State) (list []string) {
		h := analyze.PastHoldersOf(s)
		for _, peak := range s.RegionPeaks() {
			for i := range peak.Holders {
				p := &peak.Holders[i]
				list = append(list, text(h.Split(&p.Site, p.Amount, peak.TimeNs, false)))
			}
		}
		return append(list, fmt.Sprint(parts(s, func(p *analyze.Parts) { p.AddPeaks(s) })))
	}
	for name, end := range map[string]func(w *story){
		"exit": (*story).exit, "close": (*story).close, "both": func(w *story) { w.close(); w.exit() },
		"freed": func(w *story) { w.free(1, 2, 3, 4, 5, 7); w.exit() },
	} {
		s, w := held()
		before, left := told(s), unfreed(s)
		qt.Assert(t, qt.DeepEquals(left, map[string]uint64{"": 1, "model.layers[*].wq": 2, "m.debug[*]": 2, "local x of step()": 1}))
		end(w)
		fresh := aggregate.New()
		fresh.Apply(s.Checkpoint())
		for _, s := range []*aggregate.State{s, fresh} {
			qt.Check(t, qt.DeepEquals(told(s), before), qt.Commentf("%s", name))
			if name == "freed" {
				left = map[string]uint64{}
			}
			qt.Check(t, qt.DeepEquals(unfreed(s), left), qt.Commentf("%s", name))
			// nothing is live now
			for _, c := range s.CallSites() {
				h := analyze.PastHoldersOf(s)
				qt.Check(t, qt.Equals(text(h.Split(&c.Site, c.Amount, analyze.Now, false)), ""))
			}
		}
	}
}

// TestContainersAreKnownAfterTheEnd of the process, also if it frees what leaked just before that. What
// it freed while it worked does not count.
func TestContainersAreKnownAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(w *story, ids []uint64){
		"no end": func(*story, []uint64) {}, "exit": func(w *story, _ []uint64) { w.exit() },
		"close":    func(w *story, _ []uint64) { w.close(); w.exit() },
		"teardown": func(w *story, ids []uint64) { w.free(ids...); w.close(); w.exit() },
		"again":    func(w *story, _ []uint64) { w.close(); w.own(w.alloc("other"), "m.debug[99]"); w.close(); w.exit() },
	} {
		w := newStory()
		var ids []uint64
		freed := w.alloc("first")
		w.own(freed, "m.debug[98]")
		for i := range 40 {
			w.step()
			ids = append(ids, w.alloc("leak"))
			w.own(ids[i], fmt.Sprintf("m.debug[%d]", i))
			if i == 20 {
				w.free(freed)
			}
		}
		end(w, ids)
		var got []string
		for _, v := range analyze.Leaks(w.state, analyze.LeakOptions{}).Sites {
			for _, c := range v.Containers {
				got = append(got, fmt.Sprint(c.Owner, " ", c.Held, " ", c.Count))
			}
		}
		qt.Check(t, qt.DeepEquals(got, []string{"m.debug[…] [0 20 40] 40"}), qt.Commentf("%s", name))
	}
}

// TestTheLastNumberOfAContainerIsOfNow, or is known to be too low: if survivors have no owner, and the
// process went on after the latest search.
func TestTheLastNumberOfAContainerIsOfNow(t *testing.T) {
	for name, c := range map[string]struct {
		unowned, later int
		atLeast        bool
	}{
		"all have owners":                    {0, 0, false},
		"some were allocated since":          {5, 1, true},
		"some have none that were there":     {5, 0, false},
		"the process went on, all are owned": {0, 1, false},
	} {
		w := newStory()
		for i := range 40 {
			w.step()
			if id := w.alloc("leak"); i < 40-c.unowned {
				w.own(id, fmt.Sprintf("m.debug[%d]", i))
			}
		}
		w.apply(event.Event{Kind: event.Owner, BufferID: event.NoBuffer})
		for range c.later {
			w.now += 3e9
			w.step()
		}
		for _, v := range w.sites(analyze.LeakOptions{}) {
			for _, one := range v.Containers {
				qt.Check(t, qt.Equals(one.AtLeast, c.atLeast), qt.Commentf("%s", name))
			}
		}
		qt.Check(t, qt.HasLen(w.sites(analyze.LeakOptions{})["leak"].Containers, 1), qt.Commentf("%s", name))
	}
}

// TestContainersBetweenMarksAreKnownAfterTheEnd: buffers that ended after the last mark were live at it.
func TestContainersBetweenMarksAreKnownAfterTheEnd(t *testing.T) {
	for _, toEnd := range []bool{false, true} {
		w := newStory()
		var ids, times []uint64
		mark := func() { times = append(times, w.now) }
		for i := range 40 {
			w.step()
			ids = append(ids, w.alloc("leak"))
			w.own(ids[i], fmt.Sprintf("m.debug[%d]", i))
			if i == 9 {
				w.state.FollowFrom(w.now)
				mark()
			}
			if i == 29 && !toEnd {
				w.state.FollowTo(w.now)
				mark()
			}
		}
		w.close()
		if w.exit(); toEnd {
			mark()
		}
		var got []string
		for _, v := range analyze.Leaks(w.state, analyze.LeakOptions{Times: times}).Sites {
			for _, c := range v.Containers {
				got = append(got, fmt.Sprint(c.Owner, " ", c.Held[0], " ", c.Held[2], " ", c.Count))
			}
		}
		want := "m.debug[…] 10 30 20"
		if toEnd {
			want = "m.debug[…] 10 40 30"
		}
		qt.Check(t, qt.DeepEquals(got, []string{want}))
	}
}

// TestAProfileHasTheOwnersOfTheEnded, under what was allocated and what the peak had.
func TestAProfileHasTheOwnersOfTheEnded(t *testing.T) {
	s, w := held()
	w.exit()
	for value, want := range map[string]string{
		"alloc_objects": `[unknown] (7);device 0;DRAM;[owner not known] 1
[unknown] (7);device 0;DRAM;[owner not known];step (model.py:1) 1
[unknown] (7);device 0;DRAM;local x of step();step (model.py:1) 1
[unknown] (7);device 0;DRAM;m.debug[*];step (model.py:1) 2
[unknown] (7);device 0;DRAM;model.layers[*].wq 2
[unknown] (7);device 1;DRAM;[owner not known] 1
[unknown] (7);device 1;DRAM;model.layers[*].wq 2
`,
		"peak_space": `[unknown] (7);device 0;DRAM;[owner not known] 1000
[unknown] (7);device 0;DRAM;[owner not known];step (model.py:1) 1000
[unknown] (7);device 0;DRAM;local x of step();step (model.py:1) 1000
[unknown] (7);device 0;DRAM;m.debug[*];step (model.py:1) 1000
[unknown] (7);device 0;DRAM;model.layers[*].wq 2000
[unknown] (7);device 1;DRAM;[owner not known] 1000
[unknown] (7);device 1;DRAM;model.layers[*].wq 2000
`,
	} {
		var b bytes.Buffer
		_, err := export.Folded(&b, analyze.Profile(s, true), export.Options{Value: value})
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(b.String(), want))
	}
}
