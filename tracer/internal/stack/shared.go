package stack

import (
	"hash/maphash"
	"maps"
	"sync"
	"weak"

	"ttmem/tracer/event"
)

// Shared is what the stacks of all processes share. The zero value is ready to use.
type Shared struct {
	lastID uint64 // of a stack

	mu sync.Mutex
	// calls are those that stacks use, by the hash of their frame. Processes that run the same
	// program have the same calls, and the mangled name of a function takes up to some KiB.
	calls map[uint64]weak.Pointer[event.Call]
	sweep int // the length of calls at which unused ones are removed
}

// minSweep is the length of calls from which on unused ones are removed.
const minSweep = 1024

var callSeed = maphash.MakeSeed()

func (s *Shared) call(f event.Frame) *event.Call {
	hash := maphash.Comparable(callSeed, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[hash].Value(); c != nil && c.Frames[0] == f {
		return c
	}
	if len(s.calls) >= max(s.sweep, minSweep) {
		maps.DeleteFunc(s.calls, func(_ uint64, c weak.Pointer[event.Call]) bool { return c.Value() == nil })
		s.sweep = 2 * len(s.calls)
	}
	if s.calls == nil {
		s.calls = make(map[uint64]weak.Pointer[event.Call])
	}
	c := event.NewCall([]event.Frame{f})
	s.calls[hash] = weak.Make(c)
	return c
}
