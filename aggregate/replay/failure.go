package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/tracer/event"
)

// Why the model cannot tell whether something fits.
const (
	unread           = "its allocations from before the attach are not known yet"
	unsized          = "the size of a buffer from before the attach could not be read"
	lost             = "events of the process were lost"
	onSingleCores    = "some buffers are on single cores"
	unknownSizes     = "where its regions begin and end is not known"
	wrongAddress     = "an earlier address was another one than predicted"
	bySubDevices     = "the allocators of sub-devices are not replayed"
	fitsByModel      = "by replay, it should have fitted"
	noFigures        = "the library's message has no figures"
	ownCheck         = "the operation makes a check of its own"
	unknownAllocator = "its allocator is not known"
)

// A Failure is a failed allocation, or circular buffers that overlap a tensor. It is valid during the call of
// OnFailure.
type Failure struct {
	Event *event.Event
	// Doubt is why the model does not predict the failure; "" if it does.
	Doubt string

	replay    *Replay
	process   *process
	allocator *allocator
	limits    event.Limits
	// reserve is what an operation left of the free L1 below the lowest tensor; it is negative if it cannot be that.
	reserve int64
}

// A Verdict says whether a failed allocation would fit. Address is where, if it is one of an allocator. Of circular
// buffers that overlapped a tensor, End is where they end, and Lowest where the lowest tensor is; 0 if there is none.
// Doubt is why the verdict is not known; "" if it is.
type Verdict struct {
	Fits        bool
	Address     uint64
	End, Lowest uint64
	Doubt       string
}

// fail checks that the model fails, too.
func (r *Replay) fail(e *event.Event) {
	f := &Failure{Event: e, replay: r, process: r.processes[e.PID]}
	if f.process == nil {
		f.process = new(process)
	}
	f.limits, _ = event.LimitsIn(e.Message)
	if f.allocator = f.process.of(e); f.allocator == nil {
		f.Doubt = unknownAllocator
	} else {
		f.reserve = int64(between(f.allocator.spaces[event.L1].base, f.lowest(-1)) - f.limits.AvailableBytes)
		f.Doubt = f.doubt()
	}
	r.Failures++
	if f.Doubt == "" {
		r.FailuresPredicted++
	}
	if r.OnFailure != nil {
		r.OnFailure(f)
	}
}

// of returns the allocator of a failure; nil if it is not known. One that the event does not name is that of its
// chips with the most banks.
func (p *process) of(e *event.Event) *allocator {
	if a := p.allocator(e.Allocator); a != nil || e.Allocator != 0 {
		return a
	}
	return p.main(e.Devices)
}

// main returns the allocator of some chips that has the most banks; nil if there is none.
func (p *process) main(devices []int) (found *allocator) {
	for a := range p.on(devices) {
		if found == nil || a.banks[event.L1] > found.banks[event.L1] {
			found = a
		}
	}
	return found
}

// region is the region that decides.
func (f *Failure) region() event.Region {
	if int(f.Event.Region) < event.BankedRegions {
		return f.Event.Region
	}
	return event.L1
}

// doubt returns why the model does not predict the failure; "" if it does.
func (f *Failure) doubt() string {
	a, region := f.allocator, f.region()
	state := a.spaces[region].state()
	switch {
	case f.process.unread && f.limits.Bank != state: // else it has none
		return unread
	case f.process.unsized:
		return unsized
	case f.process.lost:
		return lost
	case !a.known || a.spaces[region].base == 0:
		return unknownSizes
	case f.Event.PerCore || f.process.isPerCore(a):
		return onSingleCores
	case a.wrong[region]:
		return wrongAddress
	}
	verdict := f.verdict(-1)
	if verdict.Doubt != "" {
		return verdict.Doubt
	}
	switch lowest := f.lowest(-1); {
	case verdict.Fits && f.process.isSubDevice(a):
		return bySubDevices
	case verdict.Fits:
		return fitsByModel
	case f.Event.Reason == event.ReasonStaticClash && lowest != f.limits.AvailableBytes:
		return fmt.Sprintf("the library has its lowest tensor at %#x, the replay at %#x", f.limits.AvailableBytes, lowest)
	case f.Event.Reason == event.ReasonOutOfMemory && f.limits.Bank != (event.BankState{}) && f.limits.Bank != state:
		return fmt.Sprintf("the library counts %d B free in each bank, the replay %d B", f.limits.Bank.FreeBytes, state.FreeBytes)
	}
	return ""
}

// with returns the regions of an allocator with a change; as recorded if it is negative.
func (a *allocator) with(change int) *spaces {
	if change < 0 {
		return &a.spaces
	}
	return &a.changed[change].spaces
}

// lowest returns the lowest address of L1 that is allocated with a change, by all allocators of the chips; 0 if none
// is.
func (p *process) lowest(devices []int, change int) (lowest uint64) {
	for a := range p.on(devices) {
		if at := a.with(change)[event.L1].lowest(); at > 0 && (lowest == 0 || at < lowest) {
			lowest = at
		}
	}
	return lowest
}

func (f *Failure) lowest(change int) uint64 { return f.process.lowest(f.allocator.devices, change) }

// run counts a program as a failure of the changes with which its circular buffers overlap a tensor, if they did not as
// recorded.
func (r *Replay) run(p *process, e *event.Event) {
	ran := p.programs[e.ProgramID]
	if ran == nil {
		return
	}
	a := p.main(e.Devices)
	if a == nil {
		return
	}
	if lowest := p.lowest(e.Devices, -1); lowest > 0 && ran.end > lowest {
		return
	}
	for i, w := range r.whatIfs {
		down := a.spaces[event.L1].base - a.changed[i].spaces[event.L1].base
		if lowest := p.lowest(e.Devices, i); lowest > 0 && ran.end-down > lowest && !ran.overlaps[i] {
			ran.overlaps[i] = true
			w.fails(e.Stack, event.CB)
		}
	}
}

// With returns whether it fits with one of the changes, the ith.
func (f *Failure) With(i int) Verdict {
	if f.Doubt != "" {
		return Verdict{Doubt: f.Doubt}
	}
	if doubt := cmp.Or(f.allocator.changed[i].doubt, f.replay.whatIfs[i].impossible); doubt != "" {
		return Verdict{Doubt: doubt}
	}
	return f.verdict(i)
}

// verdict returns whether it fits with a change; as recorded if that is negative.
func (f *Failure) verdict(change int) Verdict {
	of, recorded, l := f.allocator.with(change), &f.allocator.spaces, &f.limits
	// down is how many bytes lower the circular buffers begin than as recorded; it may wrap below zero. higher is the
	// same of the end of L1, which is elsewhere on another board.
	down, higher := recorded[event.L1].base-of[event.L1].base, of[event.L1Small].end-recorded[event.L1Small].end
	switch f.Event.Reason {
	case event.ReasonOutOfMemory:
		return f.allocates(change)
	case event.ReasonStaticClash:
		lowest := f.lowest(change)
		return figures(l, Verdict{Fits: lowest == 0 || l.NeededBytes-down <= lowest, End: l.NeededBytes - down, Lowest: lowest})
	case event.ReasonStaticTooLarge:
		return figures(l, Verdict{Fits: l.NeededBytes-down <= l.AvailableBytes+higher, End: l.NeededBytes - down})
	case event.ReasonKernelConfigTooSmall: // what is below L1 is for kernels
		if strings.Contains(f.Event.Message, "prefetcher") {
			return Verdict{Doubt: "what sets the size of the prefetcher's cache is not known"}
		}
		if higher != 0 {
			return Verdict{Doubt: "how much of L1 another board has for kernels is not known"}
		}
		return figures(l, Verdict{Fits: l.NeededBytes <= l.AvailableBytes-down})
	case event.ReasonTraceTooSmall:
		return figures(l, f.traceFits(change))
	case event.ReasonRefused:
		// The budget of some operations is what is free below the lowest tensor, less a reserve.
		if l.AvailableBytes == 0 || l.NeededBytes <= l.AvailableBytes || f.reserve < 0 || f.reserve > maxReserve || higher != 0 {
			return Verdict{Doubt: ownCheck}
		}
		lowest := f.lowest(change)
		return Verdict{Fits: lowest == 0 || l.NeededBytes+uint64(f.reserve) <= between(of[event.L1].base, lowest)}
	}
	return Verdict{Doubt: "its reason is not known"}
}

// allocates returns where an allocation goes.
func (f *Failure) allocates(change int) Verdict {
	e, a := f.Event, f.allocator
	if e.BytesPerBank == 0 || int(e.Region) >= event.BankedRegions {
		return Verdict{Doubt: noFigures}
	}
	region, bytes := e.Region, e.BytesPerBank
	if change >= 0 {
		key, early := earlyKey{e.Kind, e.TimeNs}, a.changed[change].early
		if b, made := early[key]; made {
			delete(early, key)
			if b == nil {
				return Verdict{}
			}
			a.changed[change].spaces[b.region].remove(b)
			return Verdict{Fits: true, Address: b.start}
		}
		one := f.replay.whatIfs[change].change(&a.changed[change], a, e)
		if one.omitted || one.doubt != "" {
			return Verdict{Fits: one.omitted, Doubt: one.doubt}
		}
		region, bytes = one.region, one.bytes
	}
	address, fits := a.with(change)[region].fit(bytes, FromTop(region))
	return Verdict{Fits: fits, Address: address}
}

// maxReserve is how much of the free L1 an operation may leave out of its budget.
const maxReserve = 64 << 10

// figures returns the verdict if the message has figures. That nothing is available is one.
func figures(l *event.Limits, v Verdict) Verdict {
	if l.NeededBytes == 0 {
		return Verdict{Doubt: noFigures}
	}
	return v
}

// traceFits returns whether another captured trace fits: the library compares the size of the region with all traces,
// and its banks have to have room for whole pages.
func (f *Failure) traceFits(change int) Verdict {
	a, l := f.allocator, &f.limits
	s := &a.with(change)[event.Trace]
	available := l.AvailableBytes
	if change >= 0 && a.changed[change].trace != nil {
		available = *a.changed[change].trace
	}
	if l.NeededBytes > available {
		return Verdict{}
	}
	banks := uint64(a.banks[event.Trace])
	if change >= 0 {
		banks = uint64(a.changed[change].banks[event.Trace])
	}
	if a.tracePage == 0 || l.NeededBytes <= a.traces || banks == 0 {
		return Verdict{Doubt: "the size of a page of the trace is not known"}
	}
	pages := (l.NeededBytes - a.traces + a.tracePage - 1) / a.tracePage
	address, fits := s.fit((pages+banks-1)/banks*a.tracePage, FromTop(event.Trace))
	return Verdict{Fits: fits, Address: address}
}

// Freeing returns whether it fits if the buffers that have a part of the addresses are freed before.
func (f *Failure) Freeing(from, to uint64) Verdict {
	return f.freeing(func(s *space) (freed []*block) {
		for b := s.in(from, to); b != nil; b = s.in(from, to) {
			s.remove(b)
			freed = append(freed, b)
		}
		return freed
	})
}

// FreeingAll returns whether it fits if all buffers in the region of the selected call sites are freed before.
func (f *Failure) FreeingAll(of Sites) Verdict {
	of = once(of)
	return f.freeing(func(s *space) (freed []*block) {
		s.root.each(func(b *block) {
			if of(b.of) {
				freed = append(freed, b)
			}
		})
		for _, b := range freed {
			s.remove(b)
		}
		return freed
	})
}

// freeing returns the verdict without the blocks that free frees: of its allocator or, if circular buffers or an
// operation do not fit, of all allocators of the chips.
func (f *Failure) freeing(free func(*space) []*block) Verdict {
	if f.Doubt != "" {
		return Verdict{Doubt: f.Doubt}
	}
	for _, a := range f.process.allocators {
		if a == f.allocator || f.Event.Reason != event.ReasonOutOfMemory && slices.Equal(a.devices, f.allocator.devices) {
			s := &a.spaces[f.region()]
			for _, b := range free(s) {
				defer s.add(b)
			}
		}
	}
	return f.verdict(-1)
}
