package replay

import (
	"fmt"
	"math/bits"

	"ttmem/aggregate/lives"
	"ttmem/tracer/event"
)

// Without is a program in which the selected call sites allocate nothing.
func Without(of Sites) Change {
	of = once(of)
	return Change{alloc: func(a *allocation) { a.omitted = a.omitted || of(a.Stack) }}
}

// Move is a program in which the selected call sites allocate in DRAM what they allocated in L1, or the other way round.
func Move(of Sites, to event.Region) Change {
	of = once(of)
	return Change{alloc: func(a *allocation) {
		if (a.Region == event.DRAM || a.Region == event.L1) && of(a.Stack) {
			a.region = to
		}
	}}
}

// First is a program in which the selected call sites allocate before all others, as soon as their device is open. Their
// buffers are freed as recorded.
func First(of Sites) Change { return Change{first: once(of)} }

// Free is a program in which the selected buffers, which have numbers in Lives, are freed after their last use: when the
// operation that uses them returns.
func Free(of func(i int, b *lives.Life) bool) Change { return Change{free: of} }

// ClearCacheAt is a program that clears the program cache when a process first reaches one of the selected call sites. cached
// selects the buffers that only the cache holds. What their programs allocate when they run again is not known.
func ClearCacheAt(at, cached Sites) Change {
	at, cached = once(at), once(cached)
	type programs struct {
		ran     map[uint64]bool
		cleared bool
	}
	processes := make(map[*process]*programs)
	return Change{after: func(s *step) {
		p := processes[s.process]
		if p == nil {
			p = &programs{ran: make(map[uint64]bool)}
			processes[s.process] = p
		}
		switch {
		case !p.cleared && at(s.Stack):
			p.cleared = true
			if s.free(cached) == 0 {
				p.ran = nil
			}
		case p.cleared && (p.ran[s.ProgramID] && s.Kind == event.ProgramRun || p.ran != nil && s.Kind == event.TraceReplay):
			s.doubt("a program of the cleared cache runs again, and would allocate its buffers again")
		case !p.cleared && s.Kind == event.ProgramRun:
			p.ran[s.ProgramID] = true
		}
	}}
}

// once remembers what it selects.
func once(of Sites) Sites {
	selected := make(map[*event.Stack]bool)
	return func(s *event.Stack) bool {
		if s == nil {
			return false
		}
		is, known := selected[s]
		if !known {
			is = of(s)
			selected[s] = is
		}
		return is
	}
}

// The arguments of ttnn.open_device that set the sizes of regions.
const (
	L1SmallSize     = "l1_small_size"
	TraceRegionSize = "trace_region_size"
	WorkerL1Size    = "worker_l1_size"
)

// Settings are the names of the arguments.
var Settings = []string{L1SmallSize, TraceRegionSize, WorkerL1Size}

// tracePages is what the trace region of each bank is a multiple of: 1 MiB over 12 banks is 90112 bytes each.
const tracePages = 4096

// Set is a program that opens its device with a size. With a PID only that process does. L1_SMALL is the top of L1, which is
// followed by nothing, and TRACE the top of DRAM.
func Set(name string, size uint64, pid int) Change {
	return Change{sizes: func(opens int, of *sizes) (doubt string) {
		l1, small, dram, trace := &of.Capacities[event.L1], &of.Capacities[event.L1Small], &of.Capacities[event.DRAM], &of.Capacities[event.Trace]
		if pid != 0 && pid != opens {
			return ""
		}
		if l1.Base == 0 || small.Base == 0 || dram.Base == 0 || trace.Base == 0 {
			return unknownSizes
		}
		alignment := uint64(1) << min(bits.TrailingZeros64(l1.Base), 6) // the library's: 32 or 64
		end := small.Base + small.BytesPerBank
		switch name {
		case WorkerL1Size:
			if most := end - l1.Base; size > most {
				doubt = fmt.Sprintf("whether L1 has more than %d B for workers is not known", most)
			}
			l1.Base = roundUp(between(size, end), alignment)
		case L1SmallSize:
			small.BytesPerBank = min(roundUp(size, alignment), end)
			small.Base = end - small.BytesPerBank
		case TraceRegionSize:
			of.trace = &size
			end, banks := trace.Base+trace.BytesPerBank, uint64(max(trace.Banks, 1))
			trace.BytesPerBank = min(roundUp((size+banks-1)/banks, tracePages), end)
			trace.Base = end - trace.BytesPerBank
			dram.BytesPerBank = between(dram.Base, trace.Base)
		}
		if l1.BytesPerBank = between(l1.Base, small.Base); l1.BytesPerBank == 0 || dram.BytesPerBank == 0 {
			doubt = "the device does not open with that size"
		}
		return doubt
	}}
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }
