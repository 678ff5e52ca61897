package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// staticEvent is circular buffers of a program on the two chips of a run.
func staticEvent(program, address, bytes uint64) event.Event {
	return event.Event{
		Kind: event.CBAlloc, ProgramID: program, Devices: []int{0, 1}, Address: address, SizeBytes: bytes,
		Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer, Stack: pagetest.Stack("matmul", "Model.step", 40),
	}
}

// TestThePeakOfL1HasItsCircularBuffers: the two share a core's L1, so that its peak is
// when both together have most, as `ttmem peak` tells, and not when buffers have.
func TestThePeakOfL1HasItsCircularBuffers(t *testing.T) {
	r := newTrainingRun(100)
	early := r.alloc(event.L1, 3000, pagetest.Stack("zeros", "Model.__init__", 12)) // most of buffers
	r.free(early)
	r.alloc(event.L1, 2000, pagetest.Stack("add", "Model.step", 41))
	r.add(staticEvent(7, 0x8000, 1500)) // most of both
	r.add(event.Event{Kind: event.CBFree, ProgramID: 7, Devices: []int{0, 1}})
	r.add(staticEvent(8, 0x8000, 1200))
	path := writeEvents(t, "peak.ttmem", r.events)

	m := mapOf(t, path, viewOptions{at: "peak", regions: []string{"L1"}, devices: []int{0}})
	qt.Assert(t, qt.HasLen(m.Maps, 1))
	qt.Assert(t, qt.HasLen(m.Maps[0].Statics, 1))
	qt.Check(t, qt.Equals(m.Maps[0].Statics[0].BytesPerCore, 1500))
	qt.Assert(t, qt.HasLen(m.Maps[0].Space.Blocks, 1))
	qt.Check(t, qt.Equals(m.Maps[0].Space.Blocks[0].BytesPerBank, 2000))

	l, err := dumpOf(t, path, viewOptions{at: "peak"})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(l.All, 2)) // the same moment of both
	for _, row := range rowsOf(l) {
		qt.Check(t, qt.Equals(row.BytesPerBank, map[event.Region]uint64{event.L1: 2000, event.CB: 1500}[row.Region]))
	}

	peaks := aggregate.New()
	_, err = (&source.Options{File: path}).Watch(peaks.Apply)
	qt.Assert(t, qt.IsNil(err))
	for _, p := range peaks.RegionPeaks() {
		if p.Region == event.L1 && p.Device == 0 {
			qt.Check(t, qt.Equals(p.Bytes, 2000+1500))
		}
	}
}

// TestAMapOfCircularBuffersAlone: a program without buffers in L1 has a peak there, too.
func TestAMapOfCircularBuffersAlone(t *testing.T) {
	r := newTrainingRun(100)
	r.add(staticEvent(7, 0x8000, 1500))
	r.add(event.Event{Kind: event.ProcessExit})
	m := mapOf(t, writeEvents(t, "static.ttmem", r.events), viewOptions{at: "peak"})
	qt.Assert(t, qt.HasLen(m.Maps, 1))
	qt.Check(t, qt.HasLen(m.Maps[0].Statics, 1))
}

// TestTheBeginning: what was there before anything happened, in a file that a program
// begins with, one that begins with a checkpoint, and one of a process that ran already
// and goes on while it is read.
func TestTheBeginning(t *testing.T) {
	// ids are those of the buffers that are listed at a moment.
	ids := func(path, at string) (ids []uint64) {
		l, err := dumpOf(t, path, viewOptions{at: at})
		qt.Assert(t, qt.IsNil(err))
		for _, row := range rowsOf(l) {
			ids = append(ids, row.Buffer.BufferID)
		}
		slices.Sort(ids)
		return ids
	}
	run := newTrainingRun(100)
	kept := run.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 12))
	run.free(run.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 13)))
	path := writeEvents(t, "run.ttmem", run.events)
	qt.Check(t, qt.HasLen(ids(path, "begin"), 0))
	qt.Check(t, qt.DeepEquals(ids(path, "end"), []uint64{kept}))

	state := aggregate.New()
	_, err := (&source.Options{File: path}).Watch(state.Apply)
	qt.Assert(t, qt.IsNil(err))
	events := []event.Event{*state.Checkpoint()}
	later := pagetest.Buffer(event.Alloc, 50, event.DRAM, 0x9000, 4096, pagetest.Stack("add", "Model.step", 41), 0, 1)
	later.PID, later.TimeNs = 100, events[len(events)-1].TimeNs+pagetest.Second
	rotated := writeEvents(t, "rotated.ttmem", append(events, later))
	qt.Check(t, qt.DeepEquals(ids(rotated, "begin"), []uint64{kept}))
	qt.Check(t, qt.DeepEquals(ids(rotated, "end"), []uint64{kept, 50}))

	attached := newTrainingRun(100)
	meanwhile := attached.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.step", 41))
	found := pagetest.Buffer(event.Alloc, 60, event.DRAM, 0xa000, 4096, nil, 0, 1)
	found.BeforeAttach = true
	attached.add(found)
	last := attached.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.step", 41))
	// of a process that comes later, and is no part of the beginning
	attached.events = append(attached.events, event.Event{Kind: event.ProcessStart, PID: 200})
	found.BufferID, found.PID = 61, 200
	attached.events = append(attached.events, found)
	path = writeEvents(t, "attached.ttmem", attached.events)
	qt.Check(t, qt.DeepEquals(ids(path, "begin"), []uint64{meanwhile, 60}))
	qt.Check(t, qt.HasLen(ids(path, "end"), 4))
	qt.Check(t, qt.Equals(last, 2))
}

// TestAMarkOfBeforeTheFile: a checkpoint tells of a mark, and not what there was then. One
// of the same name in the file is found, and one at the checkpoint, of which that has the state.
func TestAMarkOfBeforeTheFile(t *testing.T) {
	run := newTrainingRun(100)
	kept := run.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 12))
	run.events = append(run.events, event.Event{Kind: event.Mark, Cause: "warm"}, event.Event{Kind: event.Mark, Cause: "again"})
	state := aggregate.New()
	_, err := (&source.Options{File: writeEvents(t, "run.ttmem", run.events)}).Watch(state.Apply)
	qt.Assert(t, qt.IsNil(err))
	events := []event.Event{*state.Checkpoint()}
	later := pagetest.Buffer(event.Alloc, 50, event.DRAM, 0x9000, 4096, pagetest.Stack("add", "Model.step", 41), 0, 1)
	later.PID = 100
	last := pagetest.Buffer(event.Alloc, 51, event.DRAM, 0xa000, 4096, pagetest.Stack("add", "Model.step", 41), 0, 1)
	last.PID = 100
	events = append(events, later, event.Event{Kind: event.Mark, Cause: "again"}, last)
	path := writeEvents(t, "rotated.ttmem", events)

	for _, args := range [][]string{{"diff", path, "--from", "warm"}, {"dump", path, "--at", "warm"}, {"map", path, "--at", "warm"}} {
		qt.Check(t, qt.ErrorMatches(commandSays(t, args...), "no mark warm in .*: the mark warm lies before .*rotated.ttmem begins"))
	}
	qt.Check(t, qt.ErrorMatches(commandSays(t, "dump", path, "--at", "cold"), "no mark cold in .*: there are again"))
	l, err := dumpOf(t, path, viewOptions{at: "again"})
	qt.Assert(t, qt.IsNil(err))
	var ids []uint64
	for _, row := range rowsOf(l) {
		ids = append(ids, row.Buffer.BufferID)
	}
	slices.Sort(ids)
	qt.Check(t, qt.DeepEquals(ids, []uint64{kept, 50}))
	_, err = leaksJSON(t, path, "--from", "warm")
	qt.Check(t, qt.ErrorMatches(err, "no mark warm in .*: the mark warm lies before .*rotated.ttmem begins"))
	doc, err := leaksJSON(t, path, "--from", "again")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(doc.Marks, 3))
	qt.Check(t, qt.Equals(doc.LeakedCount, 2))
}

// TestTheEndIsTheSameEverywhere: it is that of the file, at which a process that ended
// has nothing. What nobody had freed is what diff alone calls left.
func TestTheEndIsTheSameEverywhere(t *testing.T) {
	run := newTrainingRun(100)
	run.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 12))
	run.add(event.Event{Kind: event.ProcessExit})
	path := writeEvents(t, "run.ttmem", run.events)
	l, err := dumpOf(t, path, viewOptions{at: "end"})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(l.All, 0))
	qt.Check(t, qt.HasLen(mapOf(t, path, viewOptions{at: "end"}).Maps, 0))
	for _, args := range [][]string{{path, path, "--at", "end"}, {path, "--from", "begin", "--to", "end"}} {
		_, d := diffOf(t, page.Layout{}, args...)
		qt.Check(t, qt.HasLen(d.Totals, 0), qt.Commentf("%v", args))
	}
	for _, args := range [][]string{{path, path, "--at", "left"}, {path, "--from", "begin"}} {
		text, d := diffOf(t, page.Layout{}, args...)
		qt.Assert(t, qt.HasLen(d.Totals, 2), qt.Commentf("%v", args)) // on two chips
		qt.Check(t, qt.Equals(d.Totals[0].Amounts[1].Count, 1))
		qt.Check(t, qt.StringContains(text, "at the end: unfreed memory"))
	}
	for _, command := range []string{"dump", "map"} {
		qt.Check(t, qt.ErrorMatches(commandSays(t, command, path, "--at", "left"), "--at left: .*only diff takes left.*mark:left"))
	}
}

// TestAMomentThatCheckpointsHaveNoMore is found by reading the whole file: of marks and
// failures a State keeps the newest.
func TestAMomentThatCheckpointsHaveNoMore(t *testing.T) {
	r := newTrainingRun(100)
	for range 1200 {
		r.alloc(event.DRAM, 64, pagetest.Stack("add", "Model.step", 41))
		r.mark("step")
		r.add(event.Event{Kind: event.AllocFailed, Region: event.DRAM, Devices: []int{0, 1}})
	}
	path := writeEvents(t, "long.ttmem", r.events)
	for at, want := range map[string]int{"step#2": 2, "step#1199": 1199, "step": 1200, "failure#3": 3, "failure": 1200} {
		_, warnings, status := runOnStreams(t, false, []string{"dump", path, "--at", at, "--json"})
		qt.Check(t, qt.Equals(status, 0))
		old := !strings.Contains(at, "#") // the newest one is known
		qt.Check(t, qt.Equals(strings.Contains(warnings, "reading all of "+path), !old), qt.Commentf("%s: %s", at, warnings))
		l, err := dumpOf(t, path, viewOptions{at: at})
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(l.All, want), qt.Commentf("%s", at))
	}
	qt.Check(t, qt.ErrorMatches(commandSays(t, "dump", path, "--at", "step#1201"), "no mark step#1201 in .*: there are 1200 of that name"))
	qt.Check(t, qt.ErrorMatches(commandSays(t, "dump", path, "--at", "failure#1201"), "no failure#1201 in .*: 1200 allocations failed"))
}

// TestAPeakOfBeforeTheFileIsNotShown: the checkpoint has no more of it than call sites.
func TestAPeakOfBeforeTheFileIsNotShown(t *testing.T) {
	r := newTrainingRun(100)
	r.free(r.alloc(event.DRAM, 1<<20, pagetest.Stack("zeros", "Model.__init__", 12)))
	state := aggregate.New()
	for i := range r.events {
		state.Apply(&r.events[i])
	}
	events := []event.Event{*state.Checkpoint()}
	later := len(r.events)
	r.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.step", 41))
	path := writeEvents(t, "dram.ttmem", slices.Concat(events, r.events[later:]))
	for _, command := range []string{"dump", "map"} {
		err := commandSays(t, command, path, "--at", "peak")
		qt.Check(t, qt.ErrorMatches(err, "the peak of each region lies before .*dram.ttmem begins; `ttmem peak .*` lists its call sites"))
	}
	r.alloc(event.L1, 2048, pagetest.Stack("add", "Model.step", 42))
	path = writeEvents(t, "l1.ttmem", slices.Concat(events, r.events[later:]))
	l, err := dumpOf(t, path, viewOptions{at: "peak"})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(l.All, 1))
	qt.Check(t, qt.Equals(l.At(0).Region, event.L1))
	qt.Assert(t, qt.HasLen(l.Notes, 3))
	qt.Check(t, qt.Matches(l.Notes[0], "the peak of DRAM of chip 0 lies before .*"))
}
