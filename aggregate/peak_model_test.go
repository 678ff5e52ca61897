package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// peakModel is the peaks without a thought for speed: all that lives is listed anew
// at each event, and copied where there is more than ever before.
type peakModel struct {
	buffers, static []event.Event // static ones have one chip
	capacity        uint64        // of a core's L1; 0: not known
	peaks           map[chipRegion]*modelPeak
	runs            map[int]*modelRun // the latest of each chip
}

// modelRun is a program that was compiled and not run again, as the library reports no runs.
type modelRun struct {
	pid           int
	program, time uint64
	taken         bool
}

type chipRegion struct {
	device int
	region event.Region
}

type modelPeak struct {
	time, bytes, staticBytes uint64
	buffers, static          []event.Event
}

func (m *peakModel) apply(e event.Event) {
	for id, r := range m.runs {
		if e.Kind != event.CBAlloc || !slices.Contains(e.Devices, id) || r.pid != e.PID || r.program != e.ProgramID {
			m.sample(id)
		}
		if (e.Kind == event.ProcessExit || e.Kind == event.ProcessStart) && r.pid == e.PID {
			delete(m.runs, id)
		}
	}
	process := func(x event.Event) bool { return x.PID == e.PID }
	switch e.Kind {
	case event.Alloc, event.Free:
		m.buffers = without(m.buffers, func(x event.Event) bool { return x.PID == e.PID && x.BufferID == e.BufferID })
		if e.Kind == event.Alloc {
			m.buffers = append(m.buffers, e)
		}
	case event.DeviceClose:
		m.buffers = without(m.buffers, func(x event.Event) bool { return x.PID == e.PID && x.Allocator == e.Allocator })
	case event.ProcessExit, event.ProcessStart:
		m.buffers, m.static = without(m.buffers, process), without(m.static, process)
	case event.CBAlloc:
		for _, id := range e.Devices {
			one := e
			one.Devices = []int{id}
			if !slices.ContainsFunc(m.static, func(x event.Event) bool {
				return x.PID == e.PID && x.Devices[0] == id && x.ProgramID == e.ProgramID && x.Cores[0] == e.Cores[0] &&
					x.Address == e.Address && x.SizeBytes == e.SizeBytes && x.Global == e.Global
			}) {
				m.static = append(m.static, one)
			}
			m.runs[id] = &modelRun{e.PID, e.ProgramID, e.TimeNs, false}
		}
	case event.CBFree:
		m.static = without(m.static, func(x event.Event) bool {
			return x.PID == e.PID && x.ProgramID == e.ProgramID && (len(e.Devices) == 0 || slices.Contains(e.Devices, x.Devices[0]))
		})
	}
	m.note(&e)
}

// modelCapacity is less than buffers and circular buffers often take together.
const modelCapacity = 60

// smallL1 opens all chips with that much of L1, of each core.
func smallL1() *event.Event {
	e := &event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 99, Allocator: 99, Devices: []int{0, 1, 2}}
	e.Open = new(event.Open)
	e.Open.Capacities[event.L1] = event.Capacity{Banks: 4, BytesPerBank: modelCapacity}
	return e
}

func without(list []event.Event, ends func(event.Event) bool) []event.Event {
	return slices.DeleteFunc(slices.Clone(list), ends)
}

// note copies what is more than ever before. Of L1 that is known when a buffer is allocated.
func (m *peakModel) note(e *event.Event) {
	for id := range modelChips {
		sums := (&model{buffers: m.buffers}).regions(id)
		for region := range event.Region(event.BankedRegions) {
			bytes := sums.Banked(region).AllocatedBytes
			if region == event.L1 {
				bytes = sums.L1.BytesPerBank
			}
			if region != event.L1 || m.peaks[chipRegion{id, region}] == nil || e.Kind == event.Alloc && e.Region == event.L1 && slices.Contains(e.Devices, id) {
				m.reach(chipRegion{id, region}, modelPeak{e.TimeNs, bytes, 0, m.buffers, nil})
			}
		}
	}
}

func (m *peakModel) reach(at chipRegion, peak modelPeak) {
	if old := m.peaks[at]; old == nil || peak.bytes > old.bytes {
		m.peaks[at] = &peak
	}
}

// sample counts the latest run of a chip: the buffers, and the program on the core where it has most.
func (m *peakModel) sample(id int) {
	r := m.runs[id]
	if r == nil || r.taken {
		return
	}
	r.taken = true
	static := without(m.static, func(x event.Event) bool { return x.PID != r.pid || x.ProgramID != r.program || x.Devices[0] != id })
	sums := (&model{buffers: m.buffers, static: static}).regions(id)
	bytes := sums.L1.BytesPerBank + sums.CB.MaxBytesPerCore
	if m.capacity == 0 || bytes <= m.capacity {
		m.reach(chipRegion{id, event.L1}, modelPeak{r.time, bytes, sums.CB.MaxBytesPerCore, m.buffers, static})
	}
}

// restart forgets all peaks and runs but what there is now.
func (m *peakModel) restart(now uint64) {
	clear(m.peaks)
	clear(m.runs)
	m.note(&event.Event{TimeNs: now})
}

// holders are what there was of a region on a chip, as text.
func (m *modelPeak) holders(at chipRegion) map[string]memory.Amount {
	holders := make(map[string]memory.Amount)
	for _, e := range m.buffers {
		if e.Region != at.region || !slices.Contains(e.Devices, at.device) {
			continue
		}
		bytes := e.BytesPerBank * uint64(e.Banks)
		if at.region == event.L1 {
			bytes = e.BytesPerBank
		}
		key := fmt.Sprint(e.PID, e.Stack, e.Devices, e.Layout, e.BeforeAttach)
		holders[key] = amount(holders[key].Count+1, holders[key].Bytes+bytes)
	}
	return holders
}

// contains reports whether the core at x, y lies in the rectangle.
func contains(c event.CoreRange, x, y uint16) bool {
	return c.X0 <= x && x <= c.X1 && c.Y0 <= y && y <= c.Y1
}

// programs are what the program had on the first of the cores where it had most.
func (m *modelPeak) programs(device int) map[string]memory.Amount {
	var best map[string]memory.Amount
	var most uint64
	for y := range uint16(3) {
		for x := range uint16(3) {
			var taken uint64
			programs := make(map[string]memory.Amount)
			for _, e := range m.static {
				if e.Devices[0] != device || e.Global || e.SizeBytes == 0 || !contains(e.Cores[0], x, y) {
					continue
				}
				taken += e.SizeBytes
				key := fmt.Sprint(e.PID, e.ProgramID, e.Stack, e.StaticKind, e.BeforeAttach)
				programs[key] = amount(programs[key].Count+1, programs[key].Bytes+e.SizeBytes)
			}
			if taken > most {
				most, best = taken, programs
			}
		}
	}
	return best
}

func TestAnyPeakIsMadeOfWhatTheModelHasAtItsMoment(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		m := peakModel{peaks: make(map[chipRegion]*modelPeak), runs: make(map[int]*modelRun)}
		p := aggregate.New()
		p.Advance(2e9) // no event of below refuses a run
		if seed%4 > 1 {
			m.capacity = modelCapacity
			p.Apply(smallL1())
		}
		for now := uint64(1); now <= 400; now++ {
			e := randomEvent(r, now)
			e.Stack = stacks[r.IntN(len(stacks))]
			if e.Kind == event.CBAlloc && e.Stack == nil {
				e.Stack = stacks[1] // else it would be of no run
			}
			if e.Kind == event.Alloc {
				e.BeforeAttach = r.IntN(4) == 0
			}
			p.Apply(&e)
			m.apply(e)
			comment := qt.Commentf("seed %d, event %d %v", seed, now, e.Kind)
			if now%7 == 0 {
				checkPeaks(t, p, &m, comment)
			}
			if now == 100 && seed%3 == 0 {
				p.RestartPeaks()
				m.restart(p.Now())
				checkPeaks(t, p, &m, comment)
			}
			if now == 150 && seed%2 == 1 {
				p = restored(t, p) // it goes on in another file
				checkPeaks(t, p, &m, comment)
			}
		}
	}
}

func checkPeaks(t *testing.T, p *aggregate.State, m *peakModel, comment qt.Comment) {
	t.Helper()
	for id := range m.runs {
		m.sample(id)
	}
	seen := make(map[chipRegion]bool)
	for _, peak := range p.RegionPeaks() {
		at := chipRegion{peak.Device, peak.Region}
		seen[at] = true
		want := m.peaks[at]
		qt.Assert(t, qt.IsNil(peak.Earlier), comment)
		qt.Assert(t, qt.Equals(peak.Bytes, want.bytes), comment)
		if peak.Bytes == 0 {
			continue
		}
		qt.Assert(t, qt.Equals(peak.TimeNs, want.time), comment)
		qt.Assert(t, qt.Equals(peak.StaticBytes, want.staticBytes), comment)
		holders := make(map[string]memory.Amount)
		sum := peak.StaticBytes
		for _, h := range peak.Holders {
			key := fmt.Sprint(h.PID, h.Stack, h.Devices, h.Layout, h.BeforeAttach)
			qt.Assert(t, qt.Equals(holders[key], memory.Amount{}), comment)
			holders[key] = amount(h.Count, h.Bytes)
			sum += h.Bytes
		}
		qt.Assert(t, qt.Equals(sum, peak.Bytes), comment)
		qt.Assert(t, qt.DeepEquals(holders, want.holders(at)), comment)
		var programs map[string]memory.Amount
		for _, g := range peak.Programs {
			if programs == nil {
				programs = make(map[string]memory.Amount)
			}
			programs[fmt.Sprint(g.PID, g.ProgramID, g.Stack, g.Kind, g.BeforeAttach)] = amount(g.Count, g.Bytes)
		}
		if peak.Region == event.L1 {
			qt.Assert(t, qt.DeepEquals(programs, want.programs(peak.Device)), comment)
		}
	}
	for at, want := range m.peaks {
		qt.Assert(t, qt.Equals(seen[at], want.bytes > 0), comment)
	}
}
