package perfetto_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/export/perfetto"
	"ttmem/aggregate/memory"
	"ttmem/e2e/pagetest"
	"ttmem/e2e/rig"
	"ttmem/e2e/scene"
	"ttmem/tracer/event"
)

// A trace is what the protos of PyPI's perfetto read in a file.
type trace struct {
	Counters map[string][][2]uint64
	Slices   []slice
	Instants []slice
	Profiles []profile
	Clocks   map[string]uint64
}

type slice struct {
	Track, Name                    string
	Time, Buffer, Program, Address uint64
	End                            uint64 // 0: none
	Weight                         float64
	Stack                          []string
	Owner                          string `json:"held by"`
	Tensor                         string
}

type profile struct {
	Time uint64
	Live map[string]uint64 // by process, region and chip
}

// A story writes a trace of events, and notes what it should have.
type story struct {
	t        *testing.T
	out      bytes.Buffer
	w        *perfetto.Writer
	state    *aggregate.State
	apply    func(*event.Event)
	counters map[string][][2]uint64
	buffers  map[[2]uint64]slice // by process and id: the latest
	ended    []slice
}

func newStory(t *testing.T, o perfetto.Options) *story {
	s := &story{t: t, state: aggregate.New(), counters: make(map[string][][2]uint64), buffers: make(map[[2]uint64]slice)}
	s.state.KeepSites()
	s.w = perfetto.New(&s.out, o)
	observed := false
	s.apply = s.state.Completed(func(e *event.Event) {
		s.w.Event(e, s.state)
		if !observed { // by the writer
			observed = true
			s.state.OnRun(func(r memory.ProgramRun) {
				s.w.Ran(r)
				s.set(r.Device, "L1 per core", r.TimeNs, r.Bytes)
				s.set(r.Device, "L1 per core: circular buffers", r.TimeNs, r.StaticBytes)
				s.set(r.Device, "L1 per core", r.TimeNs+1, r.Bytes-r.StaticBytes)
				s.set(r.Device, "L1 per core: circular buffers", r.TimeNs+1, 0)
			})
		}
		s.note(e)
	})
	return s
}

// note adds what the trace should have after an event.
func (s *story) note(e *event.Event) {
	key := [2]uint64{uint64(e.PID), e.BufferID}
	switch e.Kind {
	case event.Alloc:
		s.buffers[key] = slice{Time: e.TimeNs, Buffer: e.BufferID, Weight: float64(e.BytesPerBank * uint64(s.state.Banks(e)) * uint64(len(e.Devices)))}
	case event.Free:
		if b, ok := s.buffers[key]; ok {
			b.End = e.TimeNs
			s.ended = append(s.ended, b)
			delete(s.buffers, key)
		}
	}
	for _, d := range s.state.Snapshot().Devices {
		set := func(name string, bytes uint64) { s.set(d.ID, name, e.TimeNs, bytes) }
		set("DRAM", d.Regions.DRAM.AllocatedBytes)
		set("L1_SMALL", d.Regions.L1Small.AllocatedBytes)
		set("TRACE", d.Regions.Trace.AllocatedBytes)
		set("L1 per core", d.L1PerCore.BufferBytes)
	}
}

// set notes the value of a counter from a time on.
func (s *story) set(chip int, name string, ns, bytes uint64) {
	name = fmt.Sprintf("Chip %d/%s", chip, name)
	list := s.counters[name]
	if len(list) == 0 && bytes > 0 || len(list) > 0 && list[len(list)-1][1] != bytes {
		s.counters[name] = append(list, [2]uint64{ns, bytes})
	}
}

// read ends the trace and reads it.
func (s *story) read() *trace {
	s.t.Helper()
	qt.Assert(s.t, qt.IsNil(s.w.Close()))
	path := filepath.Join(s.t.TempDir(), "x.pftrace")
	qt.Assert(s.t, qt.IsNil(os.WriteFile(path, s.out.Bytes(), 0o644)))
	python, err := rig.PerfettoProtos(s.t.Context())
	qt.Assert(s.t, qt.IsNil(err))
	cmd := exec.Command(python, "testdata/read.py", path)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	qt.Assert(s.t, qt.IsNil(err), qt.Commentf("%s", errs.String()))
	read := new(trace)
	qt.Assert(s.t, qt.IsNil(json.Unmarshal(text, read)))
	return read
}

// live is the memory of a state as a profile has it.
func live(s *aggregate.State) map[string]uint64 {
	sums := make(map[string]uint64)
	for _, one := range s.Profile().Samples {
		if one.Live.Bytes > 0 {
			sums[fmt.Sprintf("%d %s chip %d", one.PID, one.Region, one.Device)] += one.Live.Bytes
		}
	}
	return sums
}

// check compares counters, the slices of buffers and the profile at the end with the state.
func (s *story) check(read *trace) {
	s.t.Helper()
	qt.Check(s.t, qt.DeepEquals(read.Counters, s.counters))
	want := make(map[string]int)
	text := func(b slice) string { return fmt.Sprintln(b.Buffer, b.Time, b.End, b.Weight) }
	for _, b := range s.ended {
		want[text(b)]++
	}
	for _, b := range s.buffers {
		want[text(b)]++
	}
	got := make(map[string]int)
	for _, b := range read.Slices {
		if b.Program == 0 {
			got[text(b)]++
		}
	}
	qt.Check(s.t, qt.DeepEquals(got, want))
	qt.Check(s.t, qt.DeepEquals(read.Profiles[len(read.Profiles)-1].Live, live(s.state)))
}

// TestPerfettoReadsATrace of a host with 32 chips and three processes.
func TestPerfettoReadsATrace(t *testing.T) {
	s := newStory(t, perfetto.Options{})
	of := scene.New(s.apply)
	of.Load()
	of.Steps(20)
	read := s.read()
	s.check(read)
	qt.Check(t, qt.HasLen(read.Counters, 32*4))
}

// TestATraceHasAllThatHappened: a program, a mark, a failure, lost events, a process that ends.
func TestATraceHasAllThatHappened(t *testing.T) {
	stack := pagetest.Stack("add", "Attention.forward", 31)
	hostile := event.StackOf([]event.Frame{{Kind: event.Python, Name: "</script>\x1b[2J\xff", File: "a\nb", Line: -1}})
	buffer := func(kind event.Kind, id uint64, region event.Region, perBank uint64, stack *event.Stack, chips ...int) event.Event {
		return pagetest.Buffer(kind, id, region, id<<12, perBank, stack, chips...)
	}
	circular := func(kind event.Kind, id, address uint64) event.Event {
		return event.Event{
			Kind: kind, PID: 4242, Devices: []int{0, 1}, Region: event.CB, ProgramID: id, StaticKind: event.CircularBuffer,
			Address: address, SizeBytes: 1000, Cores: []event.CoreRange{{X1: 7, Y1: 7}}, Stack: stack,
		}
	}
	events := []event.Event{
		{Kind: event.ProcessStart, PID: 4242, Comm: "python3", Start: &event.Start{Command: "python3 model.py"}},
		{Kind: event.DeviceOpen, PID: 4242, Devices: []int{0, 1}, Allocator: 1, Open: &event.Open{Capacities: pagetest.Capacities}},
		buffer(event.Alloc, 1, event.DRAM, 4096, stack, 0, 1), // overlaps the next
		buffer(event.Alloc, 2, event.DRAM, 1024, hostile, 0, 1),
		circular(event.CBAlloc, 7, 0x8000),
		circular(event.CBAlloc, 7, 0x9000),
		circular(event.CBAlloc, 7, 0x9000), // the same place again
		{Kind: event.KernelLoad, PID: 4242, Devices: []int{0, 1}, Region: event.Kernel, ProgramID: 7, SizeBytes: 500, Stack: stack},
		{Kind: event.ProgramRun, PID: 4242, Devices: []int{0, 1}, ProgramID: 7},
		circular(event.CBAlloc, 8, 0xa000),
		buffer(event.Free, 1, event.DRAM, 4096, nil),
		{Kind: event.Mark, Cause: "warm\x1b"},
		{Kind: event.Owner, PID: 4242, BufferID: 2, Cause: "model.wq\x1b", Message: "bf16[32,32] TILE"},
		{Kind: event.Owner, PID: 4242, BufferID: 2}, // not found again
		buffer(event.Alloc, 3, event.DRAM, 2048, nil, 0, 1),
		buffer(event.Alloc, 3, event.DRAM, 2048, stack, 0, 1), // a free was lost
		{Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.L1, SizeBytes: 1 << 30, Message: "Out of Memory\nbacktrace:", Stack: stack},
		{Kind: event.Lost, PID: 4242, Count: 12, Cause: "ring buffer full"},
		{Kind: event.KernelUnload, PID: 4242, ProgramID: 7},
		{Kind: event.CBFree, PID: 4242, ProgramID: 7},
		buffer(event.Alloc, 4, event.L1, 64, stack, 1),
		{Kind: event.ProcessExit, PID: 4242},
		{Kind: event.ProcessStart, PID: 4242, Comm: "python3"}, // with the same id
		buffer(event.Alloc, 1, event.DRAM, 512, stack, 0),
	}
	for i := range events {
		events[i].TimeNs = uint64(i+1) * pagetest.Second
	}
	first := aggregate.New() // to find the peaks
	for i := range events {
		first.Apply(&events[i])
	}
	peaks := first.Index().Peaks
	s := newStory(t, perfetto.Options{Peaks: peaks, Wall: func(ns uint64) int64 { return int64(ns) + 1e18 }})
	wanted := make(map[uint64]map[string]uint64) // of profiles, by time
	for i := range events {
		s.apply(&events[i])
		for _, p := range peaks {
			if p.TimeNs == events[i].TimeNs {
				wanted[p.TimeNs] = live(s.state)
			}
		}
		if events[i].Kind == event.Mark {
			wanted[events[i].TimeNs] = live(s.state)
		}
	}
	wanted[s.state.Now()] = live(s.state)
	read := s.read()
	// the buffer whose free was lost ended when its id came again
	s.ended = append(s.ended, slice{Time: 15 * pagetest.Second, Buffer: 3, Weight: 2 * 12 * 2048, End: 16 * pagetest.Second})
	s.check(read)
	got := make(map[uint64]map[string]uint64)
	for _, p := range read.Profiles {
		got[p.Time] = p.Live
	}
	qt.Check(t, qt.DeepEquals(got, wanted))
	qt.Check(t, qt.DeepEquals(read.Clocks, map[string]uint64{"1": 1e18 + pagetest.Second, "3": pagetest.Second, "4": pagetest.Second, "6": pagetest.Second}))

	var programs []slice
	for _, one := range read.Slices {
		qt.Check(t, qt.IsTrue(one.Track[:5] == "4242/"), qt.Commentf("%s", one.Track))
		if one.Program > 0 {
			one.Stack = nil
			programs = append(programs, one)
		}
	}
	name := "model.py:31 Attention.forward · ttnn.add"
	qt.Check(t, qt.DeepEquals(programs, []slice{
		{Track: "4242/programs chips 0-1", Name: name, Program: 7, Time: 5 * pagetest.Second, End: 20 * pagetest.Second, Weight: 2 * 64 * 2000},
		{Track: "4242/programs chips 0-1", Name: name, Program: 8, Time: 10 * pagetest.Second, End: 22 * pagetest.Second, Weight: 2 * 64 * 1000},
	}))
	one := read.Slices[0]
	qt.Check(t, qt.Equals(one.Track+" "+one.Name, "4242/DRAM chips 0-1 "+name))
	qt.Check(t, qt.Equals(one.Address, 1<<12))
	qt.Check(t, qt.DeepEquals(one.Stack[:2], []string{"<module> (run.py:7)", "Attention.forward (model.py:31)"}))
	qt.Check(t, qt.Equals(read.Slices[1].Stack[0], event.Printable("</script>\x1b[2J\xff (a\nb)")))
	qt.Check(t, qt.Equals(read.Slices[1].Owner+" "+read.Slices[1].Tensor, event.Printable("model.wq\x1b")+" bf16[32,32] TILE"))
	var instants []string
	for _, one := range read.Instants {
		instants = append(instants, one.Track+": "+one.Name)
	}
	qt.Check(t, qt.DeepEquals(instants, []string{
		"marks: " + event.Printable("warm\x1b"), "4242/failed allocations: Out of Memory", "4242/events lost: 12: ring buffer full",
	}))
}

// TestCountersKeepPeaks: with a shortest time between values, the highest ones and the last stay.
func TestCountersKeepPeaks(t *testing.T) {
	s := newStory(t, perfetto.Options{StepNs: 100})
	for i, perBank := range []uint64{5, 9, 2, 3, 1} {
		e := pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x1000, perBank, nil, 0)
		e.TimeNs = 1000 + uint64(i)*10
		s.apply(&e)
	}
	last := pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x1000, 4, nil, 0)
	last.TimeNs = 2000
	s.apply(&last)
	qt.Check(t, qt.DeepEquals(s.read().Counters, map[string][][2]uint64{
		"Chip 0/DRAM": {{1000, 5 * 12}, {1010, 9 * 12}, {1040, 12}, {2000, 4 * 12}},
	}))
}

// TestATraceThatBeginsWithACheckpointHasWhatIsLive from the time of its allocation.
func TestATraceThatBeginsWithACheckpointHasWhatIsLive(t *testing.T) {
	before := newStory(t, perfetto.Options{})
	of := scene.New(before.apply)
	of.Load()
	s := newStory(t, perfetto.Options{})
	s.apply(before.state.Checkpoint())
	s.buffers = before.buffers
	read := s.read()
	for name, list := range read.Counters {
		qt.Check(t, qt.DeepEquals(list, [][2]uint64{{of.NowNs, before.counters[name][len(before.counters[name])-1][1]}}))
	}
	s.counters = read.Counters
	s.check(read)
	bytes := 0.0
	for _, one := range read.Slices {
		if one.Program > 0 {
			bytes += one.Weight
		}
	}
	sum := uint64(0)
	for _, d := range s.state.Snapshot().Devices {
		sum += d.Regions.CB.SumBytes
	}
	qt.Check(t, qt.Equals(uint64(bytes), sum))
}
