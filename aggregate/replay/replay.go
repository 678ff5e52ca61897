// Package replay is a model of the library's allocator. It plays the events of a recording and checks itself on
// each: does it choose the same addresses, and does it fail where the library failed? Then it answers what
// would have been if a program had allocated or freed something else, or opened its device with other sizes.
//
// The state of a region is the addresses of each bank that are allocated; all banks have the same. An
// allocation takes the first free block that is large enough: the lowest one in DRAM and TRACE, the highest
// one in L1 and L1_SMALL. An operation may ask for the other end.
// It is not part of ttmem's Go library: it changes without notice.
package replay

import (
	"iter"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/lives"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// A Class says whether the address of an allocation was predicted and, if not, why.
type Class uint8

// The classes.
const (
	Predicted Class = iota
	// OtherEnd is the address at the other end of the region than usual.
	OtherEnd
	// BeforeAttach is an allocation from before the process was attached or the recording began, or one that
	// comes before these are known.
	BeforeAttach
	// LostEvents is an allocation after events were lost, or a correction of these.
	LostEvents
	// PerCore is a buffer on single cores, or an allocation beside one.
	PerCore
	// SubDevices is an allocation of an allocator whose sizes a sub-device manager set.
	SubDevices
	// AtAddress is an allocation that asked for its address.
	AtAddress
	// NotPredicted is another address than the predicted one, for no known reason.
	NotPredicted
	// NumClasses is the number of classes.
	NumClasses
)

var classNames = [...]string{
	Predicted: "predicted", OtherEnd: "at the other end", BeforeAttach: "before the attach", LostEvents: "lost events",
	PerCore: "single cores", SubDevices: "sub-devices", AtAddress: "at a given address", NotPredicted: "not predicted",
}

// String returns the class in words.
func (c Class) String() string { return classNames[c] }

// maxAllocators is the number of open allocators of a process, as a State has it.
const maxAllocators = 256

// A Replay plays events, as recorded and with changes.
type Replay struct {
	// Counts are the allocations by class.
	Counts [NumClasses]uint64
	// Failures is the number of failed allocations and overlaps of circular buffers with tensors, and
	// FailuresPredicted that of those which the model predicted.
	Failures, FailuresPredicted uint64
	// OnFailure, if not nil, is called at each failure, before the next event.
	OnFailure func(*Failure)
	// Most is what was allocated at most of each bank, in the allocator with the most.
	Most [event.BankedRegions]uint64
	// Size is the largest size of each region in each bank, and Reach the most bytes from the end at which allocations
	// begin to the buffer farthest from it. TraceBytes is the most that captured traces took in all banks.
	Size, Reach [event.BankedRegions]uint64
	TraceBytes  uint64
	// Allocations is the number of allocations.
	Allocations uint64
	// Lives are those of the buffers of the recording; nil if Play has to read them.
	Lives *lives.Lives

	now       lives.Moment
	whatIfs   []*WhatIf
	processes map[int]*process
	live      int
	// opened is the number of opened allocators, and openings have it of each. early are the allocations that changed
	// programs make at an opening, and earlyCount their number.
	opened     int
	openings   map[opening]int
	early      map[int][]early
	earlyCount int
}

// New returns a replay without events, of the recorded program and of others.
func New(whatIfs ...*WhatIf) *Replay {
	return &Replay{whatIfs: whatIfs, processes: make(map[int]*process)}
}

// A process has what is known of the device memory of a process.
type process struct {
	allocators []*allocator // few
	live       map[uint64]*buffer
	// unread is true until the allocations from before a late attach are known. lost is true after events
	// were lost, until the process's memory was read again.
	unread, lost bool
	// unsized is true after a buffer from before the attach whose size could not be read.
	unsized bool
	// programs are where the circular buffers of programs end.
	programs map[uint64]*program
}

// A program has the end of its circular buffers, and the changes with which it overlaps a tensor.
type program struct {
	end      uint64
	overlaps []bool
}

// An allocator has the regions of an allocator as recorded and, by WhatIf, with the changes.
type allocator struct {
	address uint64
	devices []int
	spaces  spaces
	changed []changed
	// known is false as long as the allocator was not seen to open; banks are then 0.
	known bool
	banks [event.BankedRegions]uint32
	chip  *chip
	// resized is true after a sub-device manager set the sizes.
	resized bool
	// perCore is the number of live buffers on single cores. wrong are regions with addresses that were not
	// predicted.
	perCore int
	wrong   [event.BankedRegions]bool
	// traces is the bytes of the buffers of captured traces, and tracePage the size of their pages.
	traces, tracePage uint64
}

type spaces [event.BankedRegions]space

// A changed is the regions of an allocator in a changed program. doubt says why they are not known.
type changed struct {
	spaces spaces
	banks  [event.BankedRegions]uint32
	chip   *chip
	doubt  string
	// trace is the argument trace_region_size; nil if it is as recorded.
	trace *uint64
	// early are the buffers that the program has and the recorded one did not allocate yet; nil for one that did not fit.
	early map[earlyKey]*block
}

// A buffer has the blocks of a live buffer: as recorded, nil for one on single cores, and with the changes.
type buffer struct {
	in      *allocator
	region  event.Region
	bytes   uint64
	block   *block
	changed []*block
}

// FromTop reports whether allocations in a region usually take the highest addresses.
func FromTop(region event.Region) bool { return region == event.L1 || region == event.L1Small }

// Apply plays the next event.
func (r *Replay) Apply(e *event.Event) {
	r.now++
	r.apply(e)
	r.freeIdle()
	for i, w := range r.whatIfs {
		for c := range w.Changes {
			if after, p := w.Changes[c].after, r.processes[e.PID]; after != nil && p != nil {
				after(&step{r, e, p, i})
			}
		}
	}
}

func (r *Replay) apply(e *event.Event) {
	switch e.Kind {
	case event.Checkpoint:
		r.restore(e)
	case event.ProcessStart:
		if p := r.processes[e.PID]; p == nil || !e.Reread {
			r.end(e.PID)
			r.process(e.PID).unread = e.Started().AttachedLate
		}
	case event.ProcessExit:
		r.end(e.PID)
	case event.Lost:
		for pid, p := range r.processes {
			p.lost = p.lost || e.PID == 0 || e.PID == pid
		}
	case event.Reread:
		r.process(e.PID).lost = false
	case event.DeviceOpen:
		r.open(e)
	case event.DeviceClose:
		if p := r.processes[e.PID]; p != nil {
			r.close(p, p.allocator(e.Allocator))
		}
	case event.Alloc:
		r.alloc(e)
	case event.Free:
		if p := r.processes[e.PID]; p != nil {
			r.free(p, e.BufferID)
		}
	case event.AllocFailed:
		r.fail(e)
	case event.CBAlloc:
		if p := r.process(e.PID); len(r.whatIfs) > 0 && !e.Global && len(p.programs) < quota.Allocations {
			if p.programs[e.ProgramID] == nil {
				p.programs[e.ProgramID] = &program{overlaps: make([]bool, len(r.whatIfs))}
			}
			p.programs[e.ProgramID].end = max(p.programs[e.ProgramID].end, e.Address+e.SizeBytes)
			r.run(p, e)
		}
	case event.CBFree:
		delete(r.process(e.PID).programs, e.ProgramID)
	case event.ProgramRun:
		r.run(r.process(e.PID), e)
	}
}

func (r *Replay) process(pid int) *process {
	p := r.processes[pid]
	if p == nil {
		p = &process{live: make(map[uint64]*buffer), programs: make(map[uint64]*program)}
		r.processes[pid] = p
	}
	return p
}

// end ends a process.
func (r *Replay) end(pid int) {
	if p := r.processes[pid]; p != nil {
		r.live -= len(p.live)
		delete(r.processes, pid)
	}
}

// close ends an allocator, which may be nil, and its buffers.
func (r *Replay) close(p *process, a *allocator) {
	p.allocators = slices.DeleteFunc(p.allocators, func(of *allocator) bool { return of == a })
	for id, b := range p.live {
		if b.in == a {
			r.live--
			delete(p.live, id)
		}
	}
}

// allocator returns the open allocator with an address; nil if there is none.
func (p *process) allocator(address uint64) *allocator {
	for _, a := range p.allocators {
		if a.address == address {
			return a
		}
	}
	return nil
}

// allocator returns an allocator of a process, and opens it if needed; nil if there are too many.
func (r *Replay) allocator(p *process, address uint64, devices []int) *allocator {
	a := p.allocator(address)
	if a == nil && len(p.allocators) < maxAllocators {
		a = &allocator{address: address, devices: devices, changed: make([]changed, len(r.whatIfs))}
		p.allocators = append(p.allocators, a)
	}
	return a
}

// open applies the sizes of a device.
func (r *Replay) open(e *event.Event) {
	p := r.process(e.PID)
	if e.Cause == "" {
		r.opened++
	}
	if a := p.allocator(e.Allocator); a != nil && a.known && e.Cause == "" && !e.BeforeAttach && !e.Reread {
		r.close(p, a) // it was closed unseen
	}
	a := r.allocator(p, e.Allocator, e.Devices)
	if a == nil {
		p.lost = true
		return
	}
	a.resized = a.resized || e.Cause != ""
	for region, c := range e.Opened().Capacities {
		r.Size[region] = max(r.Size[region], c.BytesPerBank)
	}
	a.setSizes(e.PID, e.Opened().Capacities, r.whatIfs)
	if e.Cause == "" {
		r.allocEarly(a, r.opened)
	}
}

func (a *allocator) setSizes(pid int, sizes memory.Capacities, whatIfs []*WhatIf) {
	a.known = true
	for region, c := range sizes {
		a.banks[region] = c.Banks
	}
	a.chip = chipOf(&sizes)
	a.spaces.resize(sizes)
	for i, w := range whatIfs {
		c := &a.changed[i]
		with, doubt := w.sizes(pid, sizes)
		if a.resized && with.Capacities != sizes {
			doubt = "a sub-device manager changed the sizes"
		}
		w.doubts(c, doubt)
		c.trace = with.trace
		c.chip = chipOf(&with.Capacities)
		c.spaces.resize(with.Capacities)
		for region := range c.spaces {
			if c.spaces[region].isOutside() && !a.spaces[region].isOutside() {
				w.doubts(c, "a sub-device manager would take memory that is allocated")
			}
		}
		for region := range with.Capacities {
			c.banks[region] = with.Capacities[region].Banks
		}
	}
}

func (s *spaces) resize(sizes memory.Capacities) {
	for region, c := range sizes {
		s[region].base, s[region].end = c.Base, c.Base+c.BytesPerBank
	}
}

// restore begins with the live buffers of a checkpoint.
func (r *Replay) restore(e *event.Event) {
	s := aggregate.New()
	if s.Apply(e); e.IsInvalid() {
		return
	}
	clear(r.processes)
	r.live = 0
	for _, one := range s.Allocators() {
		p := r.process(one.PID)
		r.allocator(p, one.Address, one.Devices).setSizes(one.PID, one.Capacities, r.whatIfs)
	}
	buffers := s.Buffers()
	for i := range buffers {
		b := &buffers[i]
		r.alloc(&event.Event{
			Kind: event.Alloc, PID: b.PID, Devices: b.Devices, BufferID: b.BufferID, Allocator: b.Allocator, Address: b.Address, SizeBytes: b.SizeBytes,
			PageSizeBytes: b.PageSizeBytes, BytesPerBank: b.BytesPerBank, Region: b.Region, PerCore: b.PerCore, BeforeAttach: true, Stack: b.Stack,
		})
	}
}

func (r *Replay) alloc(e *event.Event) {
	if int(e.Region) >= event.BankedRegions {
		return
	}
	p := r.process(e.PID)
	if e.BytesPerBank == 0 {
		p.unsized = p.unsized || e.BeforeAttach
		one := *e
		one.BytesPerBank, e = 1, &one // blocks have different addresses
	}
	r.free(p, e.BufferID) // its free was lost
	a := r.allocator(p, e.Allocator, e.Devices)
	if a == nil || r.live >= quota.AllAllocations || e.Address+e.BytesPerBank < e.Address {
		p.lost = true
		r.Counts[LostEvents]++
		return
	}
	r.live++
	r.Allocations++
	if e.BeforeAttach {
		p.unread = false
	}
	b := &buffer{in: a, region: e.Region, bytes: e.SizeBytes}
	p.live[e.BufferID] = b
	if e.PerCore {
		a.perCore++
		r.Counts[PerCore]++
		for _, beside := range p.allocators {
			for i, w := range r.whatIfs {
				if beside.shares(a) {
					w.doubts(&beside.changed[i], onSingleCores)
				}
			}
		}
		return
	}
	s := &a.spaces[e.Region]
	class := p.classify(a, e)
	r.Counts[class]++
	a.wrong[e.Region] = a.wrong[e.Region] || class == NotPredicted || class == SubDevices
	for old := s.in(e.Address, e.Address+e.BytesPerBank); old != nil; old = s.in(e.Address, e.Address+e.BytesPerBank) {
		s.remove(old) // its free was lost
	}
	b.block = s.block(e.Address, e.BytesPerBank, e.Stack)
	s.add(b.block)
	r.Most[e.Region] = max(r.Most[e.Region], s.bytes)
	if reach := s.root.high - s.base; FromTop(e.Region) {
		r.Reach[e.Region] = max(r.Reach[e.Region], between(s.root.low, s.end))
	} else if a.known {
		r.Reach[e.Region] = max(r.Reach[e.Region], reach)
	}
	if e.Region == event.Trace {
		a.traces += b.bytes
		a.tracePage = max(a.tracePage, e.PageSizeBytes)
		r.TraceBytes = max(r.TraceBytes, a.traces, (s.root.high-s.base)*uint64(a.banks[event.Trace]))
	}
	if len(r.whatIfs) > 0 {
		b.changed = make([]*block, len(r.whatIfs))
	}
	for i, w := range r.whatIfs {
		b.changed[i] = w.alloc(&a.changed[i], a, e, class)
	}
}

// classify says whether the address of an allocation is the one that the library's allocator would choose.
func (p *process) classify(a *allocator, e *event.Event) Class {
	switch {
	case e.BeforeAttach:
		return BeforeAttach
	case e.Reread:
		return LostEvents
	}
	s, top := &a.spaces[e.Region], FromTop(e.Region)
	if a.known {
		if address, fits := s.fit(e.BytesPerBank, top); fits && address == e.Address {
			return Predicted
		}
		if address, fits := s.fit(e.BytesPerBank, !top); fits && address == e.Address {
			return OtherEnd
		}
	}
	switch {
	case p.unread, p.unsized:
		return BeforeAttach
	case p.lost:
		return LostEvents
	case p.isPerCore(a):
		return PerCore
	case a.resized || p.isSubDevice(a):
		return SubDevices
	case slices.ContainsFunc(e.Stack.Frames(), func(f event.Frame) bool { return strings.Contains(f.Name, "at_address") }):
		return AtAddress
	}
	return NotPredicted
}

// on returns the allocators of some chips.
func (p *process) on(devices []int) iter.Seq[*allocator] {
	return func(yield func(*allocator) bool) {
		for _, a := range p.allocators {
			if slices.Equal(a.devices, devices) && !yield(a) {
				return
			}
		}
	}
}

// shares reports whether two allocators are the same or have a chip in common.
func (a *allocator) shares(other *allocator) bool {
	return a == other || slices.ContainsFunc(a.devices, func(chip int) bool { return slices.Contains(other.devices, chip) })
}

// isPerCore reports whether there are live buffers on single cores of the chips of an allocator. Those of the chips of a mesh
// are in allocators of their own, one for each chip.
func (p *process) isPerCore(a *allocator) bool {
	for _, beside := range p.allocators {
		if beside.perCore > 0 && beside.shares(a) {
			return true
		}
	}
	return false
}

// isSubDevice reports whether an allocator has fewer banks of L1 than another one of its chips.
func (p *process) isSubDevice(a *allocator) bool {
	for other := range p.on(a.devices) {
		if other.banks[event.L1] > a.banks[event.L1] {
			return true
		}
	}
	return false
}

// free ends a buffer, if it is live.
func (r *Replay) free(p *process, id uint64) {
	b := p.live[id]
	if b == nil {
		return
	}
	r.live--
	delete(p.live, id)
	if b.block == nil {
		b.in.perCore--
		return
	}
	if s := &b.in.spaces[b.region]; s.has(b.block) {
		s.drop(b.block)
	}
	if b.region == event.Trace {
		b.in.traces -= b.bytes
	}
	for i, changed := range b.changed {
		if changed != nil {
			b.remove(i)
		}
	}
}

// remove frees a buffer in one of the changed programs.
func (b *buffer) remove(change int) {
	block := b.changed[change]
	b.in.changed[change].spaces[block.region].drop(block)
	b.changed[change] = nil
}
