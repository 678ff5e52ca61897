package aggregate

import "ttmem/tracer/event"

// L1InUse is what is in use of a core's L1, on all chips together, in bytes: what buffers
// take of each core and, on top, what circular and dataflow buffers take of the core where
// that is most; where these do not fit, what it was before. It is what Peaks count.
func (s *State) L1InUse() (bytes uint64) {
	for _, c := range s.chips {
		bytes += c.level(event.L1)
	}
	return bytes
}
