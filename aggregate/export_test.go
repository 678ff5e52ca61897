package aggregate

import "ttmem/tracer/quota"

// Shrink makes the bound of allocations n, for quick tests.
func (s *State) Shrink(n int) { s.rooms.allocations = quota.New(n, 4*n) }
