package aggregate_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// model is the state as one would write it down without a thought for speed:
// lists of what lives, and every figure counted anew.
type model struct {
	buffers []event.Event
	static  []event.Event
	kernels []event.Event
	// peaks by chip, of all processes.
	allocated map[int]uint64
	l1        map[int]uint64
	frees     uint64
	replaced  uint64
	// loaded are the processes whose kernels were reported, on each chip.
	loaded map[processOnChip]bool
}

type processOnChip struct{ pid, id int }

func (m *model) apply(e event.Event) {
	gone := func(list []event.Event, ends func(event.Event) bool) []event.Event {
		var rest []event.Event
		for _, x := range list {
			if !ends(x) {
				rest = append(rest, x)
			}
		}
		return rest
	}
	onChip := func(x event.Event) bool {
		return x.PID == e.PID && x.ProgramID == e.ProgramID &&
			(len(e.Devices) == 0 || x.Devices[0] == e.Devices[0])
	}
	switch e.Kind {
	case event.Alloc, event.Free:
		before := len(m.buffers)
		m.buffers = gone(m.buffers, func(x event.Event) bool { return x.PID == e.PID && x.BufferID == e.BufferID })
		if e.Kind == event.Alloc {
			m.replaced += uint64(before - len(m.buffers))
			m.buffers = append(m.buffers, e)
		} else if before == len(m.buffers) {
			m.frees++
		}
	case event.DeviceClose:
		m.buffers = gone(m.buffers, func(x event.Event) bool { return x.PID == e.PID && x.Allocator == e.Allocator })
	case event.ProcessExit, event.ProcessStart:
		process := func(x event.Event) bool { return x.PID == e.PID }
		maps.DeleteFunc(m.loaded, func(of processOnChip, _ bool) bool { return of.pid == e.PID })
		m.buffers, m.static, m.kernels = gone(m.buffers, process), gone(m.static, process), gone(m.kernels, process)
	case event.CBAlloc:
		for _, id := range e.Devices {
			one := e
			one.Devices = []int{id}
			m.static = append(gone(m.static, func(x event.Event) bool {
				return x.PID == e.PID && x.Devices[0] == id && x.ProgramID == e.ProgramID && x.Cores[0] == e.Cores[0] &&
					x.Address == e.Address && x.SizeBytes == e.SizeBytes && x.Global == e.Global
			}), one)
		}
	case event.CBFree:
		m.static = gone(m.static, onChip)
	case event.KernelLoad:
		for _, id := range e.Devices {
			one := e
			one.Devices = []int{id}
			m.loaded[processOnChip{e.PID, id}] = m.loaded[processOnChip{e.PID, id}] || e.KernelKind == event.WorkerKernels
			m.kernels = append(gone(m.kernels, func(x event.Event) bool {
				return x.PID == e.PID && x.ProgramID == e.ProgramID && x.Devices[0] == id
			}), one)
		}
	case event.KernelUnload:
		m.kernels = gone(m.kernels, onChip)
	}
	for id := range modelChips {
		r := m.regions(id)
		m.allocated[id] = max(m.allocated[id], r.DRAM.AllocatedBytes)
		m.l1[id] = max(m.l1[id], r.L1.BytesPerBank)
	}
}

// modelChips is the number of chips, and modelSpace the end of their L1.
const (
	modelChips = 3
	modelSpace = 64
)

func (m *model) regions(id int) memory.Regions {
	var r memory.Regions
	for _, e := range m.buffers {
		for _, on := range e.Devices {
			if on == id {
				region := r.Banked(e.Region)
				region.Buffers++
				region.SizeBytes += e.SizeBytes
				region.BytesPerBank += e.BytesPerBank
				region.AllocatedBytes += e.BytesPerBank * uint64(e.Banks)
			}
		}
	}
	type program struct{ pid, id uint64 }
	type core struct {
		program
		x, y uint64
	}
	perCore, bytes := make(map[core]uint64), make(map[program]uint64)
	programs := make(map[program]bool)
	for _, e := range m.static {
		if e.Devices[0] != id {
			continue
		}
		of := program{uint64(e.PID), e.ProgramID}
		programs[of] = true
		if e.Global {
			r.CB.GlobalCount++
			continue
		}
		r.CB.Count++
		r.CB.SumBytes += e.SizeBytes * uint64(e.Cores[0].Cores())
		bytes[of] += e.SizeBytes * uint64(e.Cores[0].Cores())
		for x := uint64(e.Cores[0].X0); x <= uint64(e.Cores[0].X1); x++ {
			for y := uint64(e.Cores[0].Y0); y <= uint64(e.Cores[0].Y1); y++ {
				perCore[core{of, x, y}] += e.SizeBytes
			}
		}
	}
	for _, n := range perCore {
		r.CB.MaxBytesPerCore = max(r.CB.MaxBytesPerCore, n)
	}
	for _, n := range bytes {
		r.CB.Bytes = max(r.CB.Bytes, n)
	}
	r.CB.Programs = uint64(len(programs))
	for _, e := range m.kernels {
		if runtime := r.Kernel.Of(e.KernelKind); runtime != nil && e.Devices[0] == id {
			runtime.Programs++
			runtime.MaxBytesPerCore = max(runtime.MaxBytesPerCore, e.BytesPerBank)
		} else if e.Devices[0] == id {
			r.Kernel.Programs++
			r.Kernel.DRAMBytes += e.SizeBytes
			r.Kernel.SumBytes += e.BytesPerBank
			r.Kernel.MaxBytesPerCore = max(r.Kernel.MaxBytesPerCore, e.BytesPerBank)
		}
	}
	for of := range programs {
		silent := !m.loaded[processOnChip{int(of.pid), id}]
		r.Kernel.NotReported = r.Kernel.NotReported || silent && r.Kernel.Programs == 0
	}
	return r
}

// randomEvent is any event on a handful of processes, buffers and programs, so
// that most meet an earlier one.
func randomEvent(r *rand.Rand, now uint64) event.Event {
	sets := [][]int{{0}, {1}, {0, 1}, {0, 1, 2}, {2, 0}}
	e := event.Event{
		TimeNs: now, PID: 1 + r.IntN(3), Devices: sets[r.IntN(len(sets))],
		BufferID: r.Uint64N(8), ProgramID: r.Uint64N(4), Allocator: r.Uint64N(3),
		SizeBytes: r.Uint64N(20), BytesPerBank: r.Uint64N(20), Banks: r.Uint32N(4),
		Region: event.Region(r.IntN(event.BankedRegions)), Address: r.Uint64N(modelSpace - 20),
		Cores: []event.CoreRange{{X1: uint16(r.IntN(3)), Y1: uint16(r.IntN(2))}},
	}
	kinds := []event.Kind{
		event.Alloc, event.Alloc, event.Alloc, event.Free, event.Free,
		event.CBAlloc, event.CBAlloc, event.CBAlloc, event.CBFree,
		event.KernelLoad, event.KernelUnload,
	}
	e.Kind = kinds[r.IntN(len(kinds))]
	switch r.IntN(60) {
	case 0:
		e.Kind = event.ProcessExit
	case 1:
		e.Kind = event.ProcessStart
	case 2:
		e.Kind = event.DeviceClose
	}
	switch e.Kind {
	case event.KernelLoad:
		if e.ProgramID == 3 { // one of the runtime
			e.KernelKind, e.SizeBytes = event.KernelKind(1+now%uint64(event.NumKernelKinds-1)), 0
		}
	case event.Alloc:
		e.Address = (1+now)<<20 + uint64(e.PID)<<12 + e.BufferID<<8 // of no other buffer: see TestOverlaps for others
	case event.CBAlloc:
		e.Global = r.IntN(8) == 0
	case event.CBFree, event.KernelUnload:
		e.Devices = [][]int{nil, {r.IntN(3)}}[r.IntN(2)]
	}
	return e
}

func TestAnySequenceOfEventsGivesWhatTheModelGives(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := model{allocated: map[int]uint64{}, l1: map[int]uint64{}, loaded: map[processOnChip]bool{}}
		s, withImplied := aggregate.New(), aggregate.New()
		for now := range uint64(400) {
			e := randomEvent(r, now)
			m.apply(e)
			s.Apply(&e)
			for implied := range withImplied.Implied(&e) {
				withImplied.Apply(implied)
			}
			withImplied.Apply(&e)

			snap := s.Snapshot()
			for _, d := range snap.Devices {
				comment := qt.Commentf("seed %d, event %d %v, device %d", seed, now, e.Kind, d.ID)
				qt.Assert(t, qt.Equals(d.Regions.DRAM.PeakBytes, m.allocated[d.ID]), comment)
				qt.Assert(t, qt.Equals(d.L1PerCore.Peak.BufferBytes+d.L1PerCore.Peak.CBBytes, m.l1[d.ID]), comment)
				qt.Assert(t, qt.Equals(withoutPeaks(d.Regions), m.regions(d.ID)), comment)
			}
			checkProcesses(t, snap)
			qt.Assert(t, qt.Equals(len(s.Buffers()), len(m.buffers)))
		}
		anomalies := s.Snapshot().Anomalies
		qt.Check(t, qt.Equals(anomalies, memory.Anomalies{RepeatedFrees: m.frees, ReplacedBuffers: m.replaced}))
		qt.Check(t, qt.DeepEquals(withImplied.Snapshot(), s.Snapshot()))
	}
}

// checkProcesses checks that what the processes have adds up to what the chips
// have, where sums are sums.
func checkProcesses(t *testing.T, snap *memory.Snapshot) {
	t.Helper()
	sums := make(map[int]memory.Regions)
	for _, p := range snap.Processes {
		for _, d := range p.Devices {
			sum := sums[d.ID]
			sum.DRAM.AllocatedBytes += d.Regions.DRAM.AllocatedBytes
			sum.CB.SumBytes += d.Regions.CB.SumBytes
			sum.Kernel.DRAMBytes += d.Regions.Kernel.DRAMBytes
			sums[d.ID] = sum
		}
	}
	for _, d := range snap.Devices {
		qt.Assert(t, qt.Equals(d.Regions.DRAM.AllocatedBytes, sums[d.ID].DRAM.AllocatedBytes))
		qt.Assert(t, qt.Equals(d.Regions.CB.SumBytes, sums[d.ID].CB.SumBytes))
		qt.Assert(t, qt.Equals(d.Regions.Kernel.DRAMBytes, sums[d.ID].Kernel.DRAMBytes))
	}
}

func withoutPeaks(r memory.Regions) memory.Regions {
	for region := range event.Region(event.BankedRegions) {
		b := r.Banked(region)
		b.PeakBytes, b.PeakTimeNs = 0, 0
	}
	return r
}
