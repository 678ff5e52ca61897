package aggregate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// place is the key of a sample.
type place struct {
	pid, device int
	region      event.Region
	stack       *event.Stack
}

type figures struct{ allocated, live, peak memory.Amount }

// profileModel is the profile without a thought for speed: each stack's figures
// are copied at each new peak.
type profileModel struct {
	now    map[place]memory.Amount
	result map[place]*figures
	peaks  map[place]uint64 // of device and region
	// live are the places and bytes of what lives, by what it is.
	live map[any][]liveThing
}

type liveThing struct {
	place place
	bytes uint64
}

func (m *profileModel) at(p place) *figures {
	if m.result[p] == nil {
		m.result[p] = &figures{}
	}
	return m.result[p]
}

// add puts something on a chip.
func (m *profileModel) add(key any, p place, bytes uint64) {
	m.live[key] = append(m.live[key], liveThing{p, bytes})
	a := m.now[p]
	m.now[p] = amount(a.Count+1, a.Bytes+bytes)
	f := m.at(p)
	f.allocated = amount(f.allocated.Count+1, f.allocated.Bytes+bytes)
	f.live = amount(f.live.Count+1, f.live.Bytes+bytes)
}

// partOf is the region whose peak a region is part of.
func partOf(region event.Region) event.Region {
	switch region {
	case event.CB:
		return event.L1
	case event.Kernel:
		return event.DRAM
	}
	return region
}

// reach looks for new peaks in what the state has now: of L1 per core, buffers and
// the program that ran together.
func (m *profileModel) reach(e *event.Event, snap *memory.Snapshot) {
	if e.Kind != event.Alloc && e.Kind != event.CBAlloc {
		return
	}
	for i := range snap.Devices {
		d := &snap.Devices[i]
		for region := range event.Region(event.BankedRegions) {
			bytes := d.Regions.Banked(region).AllocatedBytes
			if region == event.L1 {
				bytes = d.L1PerCore.Peak.Bytes()
			}
			pool := place{device: d.ID, region: region}
			if bytes <= m.peaks[pool] {
				continue
			}
			m.peaks[pool] = bytes
			for q, f := range m.result {
				if q.device == d.ID && partOf(q.region) == region {
					f.peak = m.now[q]
					if q.region == event.CB {
						f.peak = m.program(e, q)
					}
				}
			}
		}
	}
}

// program is what the circular buffers of an event's program have at a place, if it is one of the event's
// process.
func (m *profileModel) program(e *event.Event, at place) (sum memory.Amount) {
	for key, list := range m.live {
		if k, ok := key.(staticKey); ok && e.Kind == event.CBAlloc && k.pid == e.PID && k.program == e.ProgramID {
			for _, l := range list {
				if l.place == at {
					sum = amount(sum.Count+1, sum.Bytes+l.bytes)
				}
			}
		}
	}
	return sum
}

// remove ends what key names.
func (m *profileModel) remove(key any, reason event.Reason) {
	for _, l := range m.live[key] {
		a := m.now[l.place]
		m.now[l.place] = amount(a.Count-1, a.Bytes-l.bytes)
		if reason == event.NoReason || reason == event.ReasonExplicit {
			f := m.at(l.place)
			f.live = amount(f.live.Count-1, f.live.Bytes-l.bytes)
		}
	}
	delete(m.live, key)
}

type (
	bufferKey struct {
		pid int
		id  uint64
	}
	staticKey struct {
		pid, device            int
		program, address, size uint64
		cores                  event.CoreRange
	}
	kernelKey struct {
		pid, device int
		program     uint64
	}
)

// apply takes the event after those that it implies.
func (m *profileModel) apply(e *event.Event) {
	touched := func(device int) bool { return len(e.Devices) == 0 || slices.Contains(e.Devices, device) }
	switch e.Kind {
	case event.Alloc:
		m.remove(bufferKey{e.PID, e.BufferID}, event.NoReason)
		for _, id := range e.Devices {
			m.add(bufferKey{e.PID, e.BufferID}, place{e.PID, id, e.Region, e.Stack}, e.BytesPerBank*uint64(e.Banks))
		}
	case event.Free:
		m.remove(bufferKey{e.PID, e.BufferID}, e.Reason)
	case event.CBAlloc:
		for _, id := range e.Devices {
			key := staticKey{e.PID, id, e.ProgramID, e.Address, e.SizeBytes, e.Cores[0]}
			if !e.Global && m.live[key] == nil {
				m.add(key, place{e.PID, id, event.CB, e.Stack}, e.SizeBytes*uint64(e.Cores[0].Cores()))
			}
		}
	case event.KernelLoad:
		for _, id := range e.Devices {
			key := kernelKey{e.PID, id, e.ProgramID}
			for _, old := range m.live[key] {
				f := m.at(old.place)
				f.allocated = amount(f.allocated.Count-1, f.allocated.Bytes-old.bytes)
			}
			m.remove(key, event.NoReason)
			m.add(key, place{e.PID, id, event.Kernel, e.Stack}, e.SizeBytes)
		}
	case event.CBFree, event.KernelUnload:
		for key := range m.live {
			k, isStatic := key.(staticKey)
			if isStatic && e.Kind == event.CBFree && k.pid == e.PID && k.program == e.ProgramID && touched(k.device) {
				m.remove(key, e.Reason)
			}
			l, isKernel := key.(kernelKey)
			if isKernel && e.Kind == event.KernelUnload && l.pid == e.PID && l.program == e.ProgramID && touched(l.device) {
				m.remove(key, e.Reason)
			}
		}
	}
}

func TestAnyProfileIsWhatTheModelGivesAndAddsUpToTheState(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := profileModel{
			now: map[place]memory.Amount{}, result: map[place]*figures{},
			peaks: map[place]uint64{}, live: map[any][]liveThing{},
		}
		s := aggregate.New()
		s.Advance(2e9) // no event of below refuses a run
		s.KeepSites()
		for now := range uint64(500) {
			e := randomEvent(r, now+1)
			e.Stack = stacks[r.IntN(len(stacks))]
			for implied := range s.Implied(&e) {
				s.Apply(implied)
				m.apply(implied)
			}
			s.Apply(&e)
			m.apply(&e)
			m.reach(&e, s.Snapshot())
			if now%7 == 0 {
				comment := qt.Commentf("seed %d, event %d %v", seed, now, e.Kind)
				checkAgainstModel(t, s.Profile(), &m, comment)
				checkAgainstState(t, s.Profile(), &m, s, comment)
			}
		}
	}
}

func checkAgainstModel(t *testing.T, p *memory.Profile, m *profileModel, comment qt.Comment) {
	t.Helper()
	samples := p.Samples
	seen := make(map[place]bool)
	for _, s := range samples {
		at := place{s.PID, s.Device, s.Region, s.Stack}
		qt.Assert(t, qt.IsFalse(seen[at]), comment)
		seen[at] = true
		want := figures{}
		if f := m.result[at]; f != nil {
			want = *f
		}
		qt.Assert(t, qt.Equals(figures{s.Allocated, s.Unfreed(), s.Peak}, want), comment)
	}
	for at := range m.result {
		qt.Assert(t, qt.IsTrue(seen[at]), comment)
	}
}

// checkAgainstState checks the sums over the stacks. The State does not tell
// of what was left behind: the model does.
func checkAgainstState(t *testing.T, p *memory.Profile, m *profileModel, s *aggregate.State, comment qt.Comment) {
	t.Helper()
	now, peak := make(map[place]memory.Amount), make(map[place]uint64)
	for at, a := range m.now {
		sum := now[place{device: at.device, region: at.region}]
		now[place{device: at.device, region: at.region}] = amount(sum.Count+a.Count, sum.Bytes+a.Bytes)
	}
	for _, sample := range p.Samples {
		peak[place{device: sample.Device, region: sample.Region}] += sample.Peak.Bytes
	}
	peaks := make(map[place]memory.PeakPoint)
	for _, q := range p.Peaks {
		at := place{device: q.Device, region: q.Region}
		peaks[at] = q
		if q.Region != event.L1 { // whose stacks have the bytes of all banks
			qt.Assert(t, qt.Equals(peak[at], q.Bytes), comment)
		}
	}
	for _, d := range s.Snapshot().Devices {
		for region := range event.Region(event.BankedRegions) {
			at, r := place{device: d.ID, region: region}, d.Regions.Banked(region)
			qt.Assert(t, qt.Equals(now[at], amount(r.Buffers, r.AllocatedBytes)), comment)
			bytes, time := r.PeakBytes, r.PeakTimeNs
			if region == event.L1 {
				bytes, time = d.L1PerCore.Peak.BufferBytes+d.L1PerCore.Peak.CBBytes, d.L1PerCore.Peak.TimeNs
			}
			qt.Assert(t, qt.Equals(peaks[at].Bytes, bytes), comment)
			qt.Assert(t, qt.Equals(peaks[at].TimeNs, time), comment)
		}
		c, k := d.Regions.CB, d.Regions.Kernel
		qt.Assert(t, qt.Equals(now[place{device: d.ID, region: event.CB}], amount(c.Count, c.SumBytes)), comment)
		qt.Assert(t, qt.Equals(now[place{device: d.ID, region: event.Kernel}], amount(k.Programs+k.CommandQueue.Programs+k.Fabric.Programs+k.CommandQueueOrFabric.Programs, k.DRAMBytes)), comment)
	}
}
