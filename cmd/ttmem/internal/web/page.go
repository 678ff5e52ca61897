// Package web writes a recording as one HTML page for a browser: a timeline of every chip and
// region and, for the moment or range that the reader selects, flame graphs, call sites,
// addresses, operations, leaks and failures.
//
// The page has one row for each event, and one life for each allocation: its first and last row,
// its call site, its size and its address. From these the browser adds up any selection. The use
// of the regions over time comes from State, and so do peaks, leaks, failures and operations.
// A Page keeps about 100 bytes for each event in memory.
package web

import (
	"math"
	"slices"
	"sort"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Page collects what the page of a recording shows, while the recording is played.
type Page struct {
	// timeNs and number are those of each row: number counts as memory.Point does. Row 0 is the
	// beginning, and each other row an event.
	timeNs, number []uint64
	lives          lives
	lines          [event.BankedRegions]lines
	marks          []mark
	failures       []uint32
	runs           runs
	// observes is true if ran gets the runs of the state: those that are not in the lines yet.
	observes bool
	ran      []memory.ProgramRun
	spaces   map[int][event.BankedRegions]event.Capacity
}

// A mark is a mark of a user, or of a call.
type mark struct {
	Row  uint32 `json:"row"`
	Name string `json:"name"`
}

// runs are the rows in which programs ran, the operations that ran them, and how many they were.
type runs struct {
	row, of    []uint32
	count      []uint32
	index      map[operationKey]uint32
	operations []memory.Operation
}

type operationKey struct {
	pid   int
	stack uint64
}

// New returns a page without events.
func New() *Page {
	p := &Page{lives: newLives(), spaces: make(map[int][event.BankedRegions]event.Capacity)}
	p.runs.index = make(map[operationKey]uint32)
	return p
}

// Events returns the number of events.
func (p *Page) Events() int { return max(0, len(p.timeNs)-1) }

// HasStacks reports whether an allocation has a call stack, if there are any.
func (p *Page) HasStacks() bool {
	return len(p.lives.sites) == 0 || slices.ContainsFunc(p.lives.sites, func(s memory.Site) bool { return s.Stack != nil })
}

// Play returns a function that takes all events of a recording. The state applies them, and the page shows those
// from the first one on for which from is true, and what is live before that; if from is nil, all.
func (p *Page) Play(s *aggregate.State, from func(e *event.Event) bool) func(*event.Event) {
	begun := from == nil
	each := s.Completed(func(e *event.Event) {
		if begun {
			p.Event(e, s)
		}
	})
	return func(e *event.Event) {
		if !begun && e.Kind != event.Checkpoint && from(e) {
			begun = true
			s.RestartOperations()
			s.RestartPeaks()
			p.Begin(s)
		}
		each(e)
	}
}

// Event takes an event that the state has just applied: see aggregate.State.Completed.
func (p *Page) Event(e *event.Event, s *aggregate.State) {
	if !p.observes {
		p.observes = true
		s.OnRun(func(r memory.ProgramRun) { p.ran = append(p.ran, r) })
	}
	if e.Kind == event.Checkpoint {
		if len(p.timeNs) == 0 {
			p.Begin(s)
		}
		return
	}
	if e.Kind == event.HostMemory {
		return // the page has that of the end
	}
	if len(p.timeNs) == 0 {
		p.addRow(e.TimeNs, 0)
	}
	row := p.addRow(e.TimeNs, s.Number())
	ended := p.followRuns(row)
	defer func() { p.follow(row, s, event.L1, ended) }()
	switch e.Kind {
	case event.Alloc:
		if int(e.Region) < event.BankedRegions {
			p.lives.alloc(row, e, s.Banks(e))
			p.follow(row, s, e.Region, e.Devices)
		}
	case event.Free:
		if region, ok := p.lives.free(row, e); ok {
			p.follow(row, s, region, e.Devices)
		}
	case event.CBAlloc:
		p.lives.allocStatic(row, e)
	case event.CBFree:
		p.lives.endStatics(row, e)
	case event.Owner:
		p.lives.own(e.PID, e.BufferID, memory.Owner{Path: e.Cause, Tensor: e.Message})
	case event.KernelLoad:
		p.lives.loadKernel(row, e)
	case event.KernelUnload:
		p.lives.unloadKernels(row, e)
	case event.ProgramRun:
		p.run(row, e.PID, e.Devices, e.Stack, 1)
	case event.TraceReplay:
		runs, seen := s.TraceRuns(e.PID, e.Devices, e.ProgramID)
		if !seen {
			p.run(row, e.PID, e.Devices, e.Stack, 1)
		}
		for _, r := range runs {
			p.run(row, e.PID, r.Devices, r.Stack, r.Count)
		}
	case event.AllocFailed:
		p.failures = append(p.failures, row)
	case event.Mark:
		p.marks = append(p.marks, mark{row, event.Printable(e.Cause)})
	case event.DeviceOpen:
		for _, id := range e.Devices {
			var of [event.BankedRegions]event.Capacity
			for region := range of {
				of[region] = s.Capacity(id, event.Region(region))
			}
			p.spaces[id] = of
		}
		p.followAll(row, s)
	case event.DeviceClose, event.ProcessExit:
		p.followAll(row, s)
	}
}

// Begin begins the page with the memory that is live now. Without it, the page begins with the
// first event.
func (p *Page) Begin(s *aggregate.State) {
	row := p.addRow(s.Now(), s.Number())
	for _, b := range s.Buffers() {
		p.lives.begin(row, &b)
	}
	for _, d := range s.Snapshot().Devices {
		var capacities [event.BankedRegions]event.Capacity
		for region := range capacities {
			if of := s.Space(d.ID, event.Region(region)); of.Known() {
				capacities[region] = event.Capacity{Banks: of.Banks, Base: of.Start, BytesPerBank: of.End - of.Start}
			}
			p.follow(row, s, event.Region(region), []int{d.ID})
		}
		p.spaces[d.ID] = capacities
		for _, static := range s.Statics(d.ID) {
			p.lives.allocStatic(row, &event.Event{
				Kind: event.CBAlloc, PID: static.PID, Devices: []int{static.Device}, ProgramID: static.ProgramID, Cores: static.Cores,
				Address: static.Address, SizeBytes: static.BytesPerCore, StaticKind: static.Kind, Global: static.Global,
				BeforeAttach: static.BeforeAttach, Stack: static.Stack,
			})
		}
	}
}

// Own takes the owners of what is live now, which may have been found later than the last event.
func (p *Page) Own(s *aggregate.State) {
	for _, b := range s.Buffers() {
		p.lives.own(b.PID, b.BufferID, b.Owner)
	}
}

func (p *Page) addRow(timeNs, number uint64) uint32 {
	if n := len(p.timeNs); n > 0 {
		timeNs = max(timeNs, p.timeNs[n-1])
	}
	p.timeNs, p.number = append(p.timeNs, timeNs), append(p.number, number)
	return uint32(len(p.timeNs) - 1)
}

// rowOf returns the row of an event; for a time, of the last one up to that.
func (p *Page) rowOf(at memory.Point) uint32 {
	row := sort.Search(len(p.number), func(i int) bool { return p.number[i] >= at.Number })
	if at.Number == 0 {
		row = sort.Search(len(p.timeNs), func(i int) bool { return p.timeNs[i] > at.TimeNs }) - 1
	}
	return uint32(max(0, min(row, len(p.number)-1)))
}

// follow adds the present use of a region of chips to their lines.
func (p *Page) follow(row uint32, s *aggregate.State, region event.Region, devices []int) {
	p.lines[region].follow(row, devices, func(device int) use {
		return use{bytes: s.Level(device, region)}
	})
}

// followRuns adds the runs of programs since the row before to the lines of L1: each for its own row. It
// returns the chips whose runs ended right before this row.
func (p *Page) followRuns(row uint32) (ended []int) {
	for len(p.ran) > 0 {
		number, at := p.ran[0].Number, p.rowOf(p.ran[0].Point)
		during, after, devices := make(map[int]use), make(map[int]use), []int(nil)
		p.ran = slices.DeleteFunc(p.ran, func(r memory.ProgramRun) bool {
			if r.Number == number {
				by := p.runs.operation(r.Of.PID, r.Of.Devices, r.Of.Stack)
				during[r.Device], after[r.Device] = use{r.Bytes, r.StaticBytes, by}, use{bytes: r.Bytes - r.StaticBytes}
				devices = append(devices, r.Device)
			}
			return r.Number == number
		})
		p.lines[event.L1].follow(at, devices, func(device int) use { return during[device] })
		if at+1 < row {
			p.lines[event.L1].follow(at+1, devices, func(device int) use { return after[device] })
		} else {
			ended = append(ended, devices...)
		}
	}
	return ended
}

func (p *Page) followAll(row uint32, s *aggregate.State) {
	for region := range p.lines {
		p.follow(row, s, event.Region(region), p.lines[region].chips())
	}
}

// run counts the runs of a program by an operation.
func (p *Page) run(row uint32, pid int, devices []int, stack *event.Stack, count uint64) {
	p.runs.row, p.runs.of = append(p.runs.row, row), append(p.runs.of, p.runs.operation(pid, devices, stack))
	p.runs.count = append(p.runs.count, uint32(min(count, math.MaxUint32)))
}

// operation returns the index of an operation, which it adds if it is new.
func (r *runs) operation(pid int, devices []int, stack *event.Stack) uint32 {
	key := operationKey{pid, memory.StackID(stack)}
	of, ok := r.index[key]
	if !ok {
		of = uint32(len(r.operations))
		r.index[key] = of
		r.operations = append(r.operations, memory.Operation{PID: pid, Devices: devices, Stack: stack})
	}
	return of
}
