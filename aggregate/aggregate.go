// Package aggregate turns events into State: live buffers, programs, call sites with
// tallies, processes and chips with their peaks. It does no I/O, and its only clock is the
// events' own.
package aggregate

import (
	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/internal/past"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// State is the result of a stream of events. It is not safe for concurrent use, but the
// Snapshots and Buffers that it returns are.
type State struct {
	// began is when tracing began; 0 if that is not known.
	began     uint64
	now       uint64
	chips     map[int]*chip
	processes map[int]*process
	// last is the process of the latest event, as most come in runs.
	last   *process
	exited exits
	rooms  rooms
	// lost are the losses that belong to no known process. lostEvents counts all losses.
	lost       map[string]uint64
	lostEvents uint64
	anomalies  memory.Anomalies
	// overlaps counts the buffers that had addresses of another allocator's.
	overlaps newest.List[memory.Overlap]
	// unsafe are the buffers that a replay of a captured trace may have overwritten, by call site.
	unsafe      []memory.Unsafe
	unsafeCount uint64
	// afterFree are runs that have the address of a freed buffer, by line.
	afterFree []memory.AfterFree
	// failures are about memory, and operationFailures are operations that failed for another reason.
	failures, operationFailures newest.List[memory.Failure]
	// marks were set by users, and ownMarks by processes.
	marks, ownMarks newest.List[memory.Mark]
	beginning       beginning
	// sites are all call sites in the order of their first allocation. keptSites is how many
	// there were when idle ones were last removed.
	sites     []*callSite
	keptSites int
	// restoring is true while a checkpoint is read.
	restoring bool
	// triedSites is how many call sites a user had when the idle ones were last removed for lack of room.
	triedSites map[int]int
	// examined is for failures, and compared for overlaps. events counts those that were applied to this State: a
	// checkpoint may claim any number.
	examined, compared budget
	events             uint64
	keepSites          bool
	// freshSince is the time after which allocations count as fresh, in ns.
	freshSince  uint64
	operations  operations
	survivors   survivors
	temporaries temporaries
	held        heldBuffers
	// between follows buffers between two moments; nil without FollowFrom.
	between *past.Between
	// searched and found are room for the addresses of a run.
	searched []*arena
	found    []uint64
	// untilNs is the latest time of SettleUntil.
	untilNs uint64
	// ran is called with each run of a program: see OnRun.
	ran *func(memory.ProgramRun)
	// pausedPeaks is true while samples do not count for peaks.
	pausedPeaks bool
	// unplaced takes the place of the chip for buffers whose chip is not known.
	unplaced *chip
	// first is the time of the first event; restored is true if that was the end of a
	// checkpoint without earlier peaks.
	first    uint64
	restored bool
	// applied is the number of events, without those for which Event.IsImplied is true.
	applied uint64
}

// New returns a State in which nothing is allocated.
func New() *State {
	ran := new(func(memory.ProgramRun))
	return &State{
		ran:       ran,
		chips:     make(map[int]*chip),
		processes: make(map[int]*process),
		rooms:     newRooms(), triedSites: make(map[int]int),
		lost:     make(map[string]uint64),
		unplaced: newChip(memory.NoDevice, 0, ran),
	}
}

// Begin sets the time at which tracing began (CLOCK_MONOTONIC, in ns), which is before the
// first event.
func (s *State) Begin(ns uint64) { s.began = ns }

// Advance reports that no event is missing up to that time (CLOCK_MONOTONIC, in ns), which
// may be long after the latest event.
func (s *State) Advance(ns uint64) { s.now = max(s.now, ns) }

// Apply applies the event. Events must come in order of time. The state keeps e.Stack, which
// must not change afterwards, and copies the rest.
//
// An event that contradicts the state, such as a free of a buffer that is not live, counts
// in Anomalies. It changes no total.
func (s *State) Apply(e *event.Event) {
	if e.Kind == event.Checkpoint {
		if s.Restore(e.State) != nil {
			s.anomalies.MalformedEvents++
		}
		return
	}
	if s.events++; s.first == 0 {
		s.first = e.TimeNs
	}
	s.now = max(s.now, e.TimeNs)
	if !e.IsImplied() {
		s.applied++
	}
	switch e.Kind {
	case event.AllocFailed, event.OperationFailed:
		if p := s.known(e.PID); p != nil {
			p.refuse(e)
		}
		s.fail(e)
	case event.ProcessStart:
		s.startProcess(e)
	case event.ProcessExit:
		s.endProcess(e.PID, e.TimeNs, e.ExitStatus)
	case event.Lost:
		s.lose(s.known(e.PID), e.Cause, e.Count)
		s.forgetFreed(s.known(e.PID))
	case event.Mark: // a moment: nothing changes
		s.mark(e)
	case event.Alloc:
		if int(e.Region) >= event.BankedRegions {
			s.anomalies.MalformedEvents++
		} else if p := s.process(e); p.mayApply(e) {
			p.alloc(e)
		}
	case event.CBAlloc:
		if p := s.process(e); p.mayApply(e) {
			p.allocCB(e)
		}
	case event.KernelLoad:
		if p := s.process(e); p.mayApply(e) {
			p.loadKernel(e)
		}
	case event.DeviceOpen:
		s.process(e).openDevice(e)
	case event.ProgramRun:
		if p := s.process(e); p.mayApply(e) {
			p.runProgram(e)
		}
	case event.TraceBegin:
		s.process(e).beginTrace(e)
	case event.TraceEnd:
		s.process(e).endTrace(e)
	case event.TraceReplay:
		s.process(e).replayTrace(e)
	case event.Free, event.CBFree, event.KernelUnload, event.DeviceClose, event.TraceRelease, event.Owner, event.Reread, event.HostMemory, event.BufferWrite, event.BufferRead:
		if p := s.known(e.PID); p != nil {
			p.end(e)
		} else if e.Kind == event.Free {
			s.anomalies.RepeatedFrees++
		}
	default:
		s.anomalies.MalformedEvents++
	}
	s.beginning.follow(s, e)
}

// end applies an event that ends something, or is about something that exists. It does not create a process.
func (p *process) end(e *event.Event) {
	switch e.Kind {
	case event.Free:
		p.free(e)
	case event.CBFree:
		p.freeCBs(e)
	case event.KernelUnload:
		p.unloadKernels(e)
	case event.DeviceClose:
		p.closeDevice(e)
	case event.TraceRelease:
		p.releaseTrace(e)
	case event.Owner:
		p.own(e)
	case event.Reread:
		p.losses.Correct(e.TimeNs)
	case event.BufferWrite, event.BufferRead:
		p.transfer(e)
	case event.HostMemory:
		p.host.Sample(e.TimeNs, e.SizeBytes, e.BytesPerBank)
	}
}

// lose counts lost events: of their process, or of none if p is nil.
func (s *State) lose(p *process, cause string, n uint64) {
	s.lostEvents += n
	lost := s.lost
	if p != nil {
		if p.losses.Lost == nil {
			p.losses.Lost = make(map[string]uint64)
		}
		lost = p.losses.Lost
	}
	lost[cause] += n
}
