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
