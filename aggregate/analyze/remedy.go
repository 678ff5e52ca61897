package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A Setting is an argument of ttnn.open_device with which a failed allocation would fit.
type Setting struct {
	Name  string
	Bytes uint64
	// AtMost is true if smaller values do, too; otherwise larger ones do.
	AtMost bool
}

// SettingFor returns the setting that would make a failed allocation fit; ok is false if none does, or
// if that is not known.
func SettingFor(f *memory.Failure) (s Setting, ok bool) {
	e := f.Evidence
	limits, _ := event.LimitsIn(f.Message)
	if limits.Setting != "" && limits.AvailableBytes > 0 {
		return Setting{Name: limits.Setting, Bytes: limits.AvailableBytes, AtMost: true}, true
	}
	if e == nil {
		return s, false
	}
	c := e.Capacity
	// The space that the region gains is free, in one piece.
	larger := c.BytesPerBank + f.BytesPerBank
	switch cause := CauseOf(f); {
	case cause == TraceTooSmall && limits.NeededBytes > 0:
		s = Setting{Name: "trace_region_size", Bytes: limits.NeededBytes}
		// The library compares the sum of all traces with this size. Its banks have to have room for
		// whole pages, too, and do not shrink when the size grows.
		if perBank := e.Live.BytesPerBank + e.NeededPerBank; perBank > c.BytesPerBank {
			s.Bytes = max(s.Bytes, perBank*uint64(c.Banks))
		}
	case cause == KernelConfigTooSmall && limits.NeededBytes > limits.AvailableBytes:
		// What is not for tensors and circular buffers is for kernels.
		over := limits.NeededBytes - limits.AvailableBytes
		if c.BytesPerBank <= over {
			return s, false
		}
		s = Setting{Name: "worker_l1_size", Bytes: c.BytesPerBank - over, AtMost: true}
	case f.Reason != event.ReasonOutOfMemory.String() || f.BytesPerBank == 0 || e.PerCore:
	case e.Region == event.L1Small:
		s = Setting{Name: "l1_small_size", Bytes: larger}
	case e.Region == event.Trace && c.Banks > 0:
		s = Setting{Name: "trace_region_size", Bytes: larger * uint64(c.Banks)}
	}
	return s, s.Name != ""
}

// ProgramCache returns the buffers of each bank that ended with the program cache when an allocation
// failed for lack of memory, if their memory would have been enough: device.clear_program_cache() frees
// them. There may be more, of call sites with little memory.
func ProgramCache(f *memory.Failure) (cached memory.Amount) {
	cause, e := CauseOf(f), f.Evidence
	if cause != TooLittle && cause != Fragmented {
		return cached
	}
	for i := range e.Holders {
		if isCached(e, &e.Holders[i]) {
			cached.Add(memory.Amount{Count: e.Holders[i].Count, Bytes: e.Holders[i].BytesPerBank})
		}
	}
	if e.FreeBytesPerBank+cached.Bytes < f.BytesPerBank {
		return memory.Amount{}
	}
	return cached
}

// OnlyCached reports whether all that is in the way of a failed allocation ends with the program
// cache: nothing of it can be freed alone.
func OnlyCached(e *memory.Evidence) bool {
	return len(e.Blockers) > 0 && !slices.ContainsFunc(e.Blockers, func(b memory.Blame) bool { return !isCached(e, &b) })
}

func isCached(e *memory.Evidence, b *memory.Blame) bool {
	class := name.ClassOf(b.Stack.Frames(), e.Region)
	return class != nil && class.Cached
}
