package aggregate

import "ttmem/tracer/event"

// Use returns the present use of a region of a chip, as peaks count it, in bytes: for L1 it is that
// per core, of which static is the part of circular buffers.
func (s *State) Use(device int, region event.Region) (bytes, static uint64) {
	c := s.chips[device]
	if c == nil {
		return 0, 0
	}
	return c.pools[region].Present()
}

// Program returns the bytes of the circular buffers of a program of a process, by the plain sum
// over cores and chips. live is false if it has neither these nor kernels.
func (s *State) Program(pid int, id uint64) (bytes uint64, live bool) {
	p := s.known(pid)
	if p == nil {
		return 0, false
	}
	for _, c := range p.chips {
		g := c.programs[id]
		if g == nil {
			continue
		}
		live = live || len(g.static) > 0 || g.kernel != nil
		for i := range g.static {
			if !g.static[i].global {
				bytes += g.static[i].place.Bytes()
			}
		}
	}
	return bytes, live
}
