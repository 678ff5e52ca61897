package aggregate

import (
	"ttmem/tracer/event"
)

// A pool is one region of one chip, with the moment at which it was fullest. There is no
// other definition of a peak:
//
//   - of L1 the bytes are per core: what buffers take of each core and, on top, what
//     circular and dataflow buffers take of the core where that is most;
//   - of the others they are what buffers take of all banks;
//   - the peak is the first moment at which there were most of them, and they fit.
type pool struct {
	chip   *chip // nil: of buffers on no known chip
	region event.Region
	// bytes is what counts now, and static the part that circular buffers take.
	bytes, static uint64
	// peak is the most that bytes has been, at peakTime, when static was peakStatic and
	// the region could hold capacity.
	peak, peakTime, peakStatic, capacity uint64
	// serial is how often there was a new peak.
	serial uint64
	// ended are the circular buffers that were there at the peak and are not now.
	ended []endedStatic
}

// An endedStatic is a circular buffer that a program had.
type endedStatic struct {
	pid     int
	program uint64
	staticEntry
}

func newPools(c *chip) (pools [event.BankedRegions]pool) {
	for region := range pools {
		pools[region].chip, pools[region].region = c, event.Region(region)
	}
	return pools
}

// holds is what the region can hold now, in bytes as they are counted; 0 where that is
// not known.
func (q *pool) holds() uint64 {
	switch {
	case q.chip == nil:
		return 0
	case q.region == event.L1:
		return q.chip.capacities[event.L1].BytesPerBank
	}
	return total(q.chip.capacities[q.region])
}

// fits reports whether what there is can be there: the library places the circular
// buffers of a program before it looks whether they overlap a tensor. Of other regions
// than L1 no more than they hold is ever reported.
func (q *pool) fits() bool {
	most := q.holds()
	return q.region != event.L1 || most == 0 || q.bytes <= most
}

// grow counts bytes that were allocated at a time.
func (q *pool) grow(bytes, now uint64) {
	q.bytes += bytes
	q.note(now)
}

// note makes what there is now the peak if it is more than ever before.
func (q *pool) note(now uint64) {
	if q.bytes > q.peak && q.fits() {
		q.reach(now)
	}
}

// reach makes what there is now the peak.
func (q *pool) reach(now uint64) {
	q.peak, q.peakTime, q.peakStatic, q.capacity = q.bytes, now, q.static, q.holds()
	q.serial++
	clear(q.ended)
	q.ended = q.ended[:0]
}

// restart forgets the peak: what there is now begins a new one.
func (q *pool) restart(now uint64) {
	q.reach(now)
	if !q.fits() {
		q.peak = 0
	}
}

// setStatic takes over what circular buffers take now of the core where that is most.
func (q *pool) setStatic(static uint64) {
	q.bytes += static - q.static
	q.static = static
}

// had reports whether a circular buffer that is there now was there at the peak.
func (q *pool) had(entry *staticEntry) bool {
	return !entry.global && entry.from.since <= q.peakTime
}

// PeakOf is the peak of a region of a chip by now; zero where there was nothing.
func (s *State) PeakOf(device int, region event.Region) Peak {
	if c := s.chips[device]; c != nil && int(region) < event.BankedRegions {
		return Peak{device, region, c.pools[region].peak, c.pools[region].peakTime}
	}
	return Peak{}
}

// device is the id of the pool's chip.
func (q *pool) device() int {
	if q.chip == nil {
		return NoDevice
	}
	return q.chip.id
}

// allPools are those of all chips, in order of chip and region.
func (s *State) allPools() (list []*pool) {
	for region := range s.unplaced {
		list = append(list, &s.unplaced[region])
	}
	for _, id := range sortedKeys(s.chips) {
		for region := range s.chips[id].pools {
			list = append(list, &s.chips[id].pools[region])
		}
	}
	return list
}
