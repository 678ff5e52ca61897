package aggregate

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// NoDevice stands for the chip of what was allocated on no known one.
const NoDevice = -1

// A Profile adds up device memory by the call stack that allocated it: per
// process, chip and region. It is fed with the events that a State is fed with,
// the implied ones too (see State.Implied): those tell what nobody gave back.
// It is not safe for use by several goroutines at once.
//
// The bytes are those of the State's totals: of a buffer what it takes of all
// its banks on each chip; of a circular buffer its size on all its cores, by
// the plain sum over programs (StaticUse.SumBytes), as no share of a union
// belongs to one stack; of a program's kernels their binaries in DRAM
// (KernelsUse.DRAMBytes), which lie in DRAM buffers and count there too.
// Circular buffers that lie in an L1 buffer are counted there alone.
type Profile struct {
	first, last uint64
	devices     map[int]*profileDevice
	processes   map[int]*profileProcess
	sets        []*profileSet
	lastSet     *profileSet
	coreSets    coreSets
	sites       map[siteKey]*site
	// order is the sites as they were first seen.
	order []*site
}

// NewProfile returns a Profile of nothing.
func NewProfile() *Profile {
	return &Profile{
		devices:   make(map[int]*profileDevice),
		processes: make(map[int]*profileProcess),
		coreSets:  make(coreSets),
		sites:     make(map[siteKey]*site),
	}
}

// An Amount is of memory: how many buffers, circular buffers or programs'
// kernels, and their bytes.
type Amount struct{ Count, Bytes uint64 }

func (a *Amount) add(b Amount) { a.Count += b.Count; a.Bytes += b.Bytes }
func (a *Amount) sub(b Amount) { a.Count -= b.Count; a.Bytes -= b.Bytes }

// A Sample is what one call stack allocated, in one region of one chip.
type Sample struct {
	PID int
	// Device is the chip's id, or NoDevice.
	Device int
	Region event.Region
	// Stack is nil for all that came without one: from before the attach, while
	// the table of stacks was full, or because none were wanted.
	Stack *event.Stack
	// Allocated is all that was ever allocated.
	Allocated Amount
	// Live is what was not given back explicitly: what is allocated now, and
	// what still was when its device was closed or its process ended.
	Live Amount
	// Peak is what was allocated when the region of the chip was fullest: at
	// the first moment at which the bytes of all processes were most.
	Peak Amount
}

// A ProfileProcess is a process of a Profile.
type ProfileProcess struct {
	PID int
	// Comm is the name that the process started with, or of its first thread
	// that was seen; Command is its command line, where known.
	Comm, Command string
}

// A Peak is when one region of a chip was fullest.
type Peak struct {
	Device int
	Region event.Region
	Bytes  uint64
	TimeNs uint64
}

// profileProcess is what lives in a process.
type profileProcess struct {
	comm, command string
	buffers       map[uint64]profileBuffer
	programs      map[programKey]*profileProgram
}

// A profileBuffer is a live one; there may be a million of them.
type profileBuffer struct {
	site  *site
	bytes uint64
}

type programKey struct {
	device *profileDevice
	id     uint64
}

// A profileProgram is a program on one chip.
type profileProgram struct {
	static []profileStatic
	kernel *profileKernel
}

type profileStatic struct {
	place layout
	kind  event.StaticKind
	tally *tally
	bytes uint64
}

type profileKernel struct {
	tally *tally
	bytes uint64
}

// Apply counts an event. Events are to come in time order, each after those
// that it implies. The profile keeps e.Stack and copies the rest.
func (p *Profile) Apply(e *event.Event) {
	if p.first == 0 {
		p.first = e.TimeNs
	}
	p.last = max(p.last, e.TimeNs)
	switch e.Kind {
	case event.Alloc:
		p.alloc(e)
	case event.Free:
		p.free(e)
	case event.CBAlloc:
		p.allocCB(e)
	case event.CBFree:
		p.freeCBs(e)
	case event.KernelLoad:
		p.loadKernel(e)
	case event.KernelUnload:
		p.unloadKernels(e)
	case event.ProcessStart:
		p.end(e.PID)
		process := p.process(e)
		process.comm, process.command = e.Comm, e.Command
	case event.ProcessExit:
		p.end(e.PID)
	}
}

func (p *Profile) alloc(e *event.Event) {
	if int(e.Region) >= event.BankedRegions {
		return
	}
	process := p.process(e)
	if old, ok := process.buffers[e.BufferID]; ok {
		// its free was lost
		old.remove(event.ReasonExplicit)
	}
	b := profileBuffer{p.site(e, e.Region), e.BytesPerBank * uint64(e.Banks)}
	process.buffers[e.BufferID] = b
	for i := range b.site.tallies {
		b.site.tallies[i].add(b.bytes, e.TimeNs)
	}
}

func (p *Profile) free(e *event.Event) {
	process := p.processes[e.PID]
	if process == nil {
		return
	}
	if b, ok := process.buffers[e.BufferID]; ok {
		delete(process.buffers, e.BufferID)
		b.remove(e.Reason)
	}
}

func (b profileBuffer) remove(reason event.Reason) {
	for i := range b.site.tallies {
		b.site.tallies[i].remove(b.bytes, reason)
	}
}

func (p *Profile) allocCB(e *event.Event) {
	place, ok := p.coreSets.layout(e)
	if !ok || e.Global {
		return
	}
	process, site := p.process(e), p.site(e, event.CB)
	bytes := (place.end - place.start) * uint64(len(place.set.cores))
	for i, d := range site.key.set.devices {
		g := process.program(programKey{d, e.ProgramID})
		if slices.ContainsFunc(g.static, func(old profileStatic) bool {
			return old.place == place && old.kind == e.StaticKind
		}) {
			// The program was given the place that it has.
			continue
		}
		t := &site.tallies[i]
		g.static = append(g.static, profileStatic{place, e.StaticKind, t, bytes})
		t.add(bytes, e.TimeNs)
	}
}

func (p *Profile) freeCBs(e *event.Event) {
	p.eachProgram(e, func(g *profileProgram) {
		g.static = slices.DeleteFunc(g.static, func(s profileStatic) bool {
			if e.StaticKind != event.NotStatic && kindOfFree(s.kind) != e.StaticKind {
				return false
			}
			s.tally.remove(s.bytes, e.Reason)
			return true
		})
	})
}

func (p *Profile) loadKernel(e *event.Event) {
	process, site := p.process(e), p.site(e, event.Kernel)
	for i, d := range site.key.set.devices {
		g := process.program(programKey{d, e.ProgramID})
		if old := g.kernel; old != nil {
			// A second event of the same program is a correction.
			old.tally.remove(old.bytes, event.ReasonExplicit)
			old.tally.allocated.sub(Amount{1, old.bytes})
		}
		t := &site.tallies[i]
		g.kernel = &profileKernel{t, e.SizeBytes}
		t.add(e.SizeBytes, e.TimeNs)
	}
}

func (p *Profile) unloadKernels(e *event.Event) {
	p.eachProgram(e, func(g *profileProgram) {
		if g.kernel != nil {
			g.kernel.tally.remove(g.kernel.bytes, e.Reason)
			g.kernel = nil
		}
	})
}

// eachProgram calls end with the event's program on each of the event's chips
// (on all, where it names none) and forgets those of which nothing is left.
func (p *Profile) eachProgram(e *event.Event, end func(*profileProgram)) {
	process := p.processes[e.PID]
	if process == nil {
		return
	}
	for id, d := range p.devices {
		if len(e.Devices) > 0 && !slices.Contains(e.Devices, id) {
			continue
		}
		key := programKey{d, e.ProgramID}
		if g := process.programs[key]; g != nil {
			end(g)
			if len(g.static) == 0 && g.kernel == nil {
				delete(process.programs, key)
			}
		}
	}
}

// end leaves all that a process has, of which there is nothing where its end
// was preceded by what it implies.
func (p *Profile) end(pid int) {
	process := p.processes[pid]
	if process == nil {
		return
	}
	for _, b := range process.buffers {
		b.remove(event.ReasonProcessExit)
	}
	for _, g := range process.programs {
		for _, s := range g.static {
			s.tally.remove(s.bytes, event.ReasonProcessExit)
		}
		if g.kernel != nil {
			g.kernel.tally.remove(g.kernel.bytes, event.ReasonProcessExit)
		}
	}
	process.buffers = make(map[uint64]profileBuffer)
	process.programs = make(map[programKey]*profileProgram)
}

func (p *Profile) process(e *event.Event) *profileProcess {
	process := p.processes[e.PID]
	if process == nil {
		process = &profileProcess{
			comm:     e.Comm,
			buffers:  make(map[uint64]profileBuffer),
			programs: make(map[programKey]*profileProgram),
		}
		p.processes[e.PID] = process
	}
	if process.comm == "" {
		process.comm = e.Comm
	}
	return process
}

func (p *profileProcess) program(key programKey) *profileProgram {
	g := p.programs[key]
	if g == nil {
		g = &profileProgram{}
		p.programs[key] = g
	}
	return g
}

// Samples returns what each stack allocated, in order of process, chip and
// region and otherwise as the stacks were first seen. Its cost is that of the
// stacks.
func (p *Profile) Samples() []Sample {
	type key struct {
		stack       uint64
		pid, device int
		region      event.Region
	}
	var list []Sample
	index := make(map[key]int, len(p.order))
	for _, s := range p.order {
		for i, d := range s.key.set.devices {
			// The same stack may allocate on several sets with the chip in it.
			k := key{s.key.stack, int(s.key.pid), d.id, s.key.region}
			at, ok := index[k]
			if !ok {
				at = len(list)
				index[k] = at
				list = append(list, Sample{PID: k.pid, Device: k.device, Region: k.region, Stack: s.stack})
			}
			t := &s.tallies[i]
			list[at].Allocated.add(t.allocated)
			list[at].Live.add(t.current)
			list[at].Live.add(t.left)
			list[at].Peak.add(t.atPeak())
		}
	}
	slices.SortStableFunc(list, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Region, b.Region))
	})
	return list
}

// Processes returns the processes that were seen, in order of their ids.
func (p *Profile) Processes() []ProfileProcess {
	var list []ProfileProcess
	for _, pid := range sortedKeys(p.processes) {
		list = append(list, ProfileProcess{pid, p.processes[pid].comm, p.processes[pid].command})
	}
	return list
}

// Peaks returns when each region that held any bytes was fullest, in order of
// chip and region.
func (p *Profile) Peaks() []Peak {
	var list []Peak
	for _, id := range sortedKeys(p.devices) {
		for region := range p.devices[id].pools {
			if q := &p.devices[id].pools[region]; q.peaks > 0 {
				list = append(list, Peak{id, event.Region(region), q.peak, q.peakTime})
			}
		}
	}
	return list
}

// Span is the times of the first and the latest event, CLOCK_MONOTONIC in ns.
func (p *Profile) Span() (first, last uint64) { return p.first, p.last }
