package page

import "time"

// A Clock relates CLOCK_MONOTONIC, the clock of events, to the wall clock. The zero value does
// not know the wall clock.
type Clock struct {
	known bool
	// offset is the wall clock less CLOCK_MONOTONIC, in ns.
	offset int64
}

// NewClock returns the clock that showed both at one moment; zero if one of them is not known.
func NewClock(wall time.Time, monotonicNs uint64) Clock {
	if wall.UnixNano() <= 0 || monotonicNs == 0 {
		return Clock{}
	}
	return Clock{true, wall.UnixNano() - int64(monotonicNs)}
}

// Known reports whether the clock knows the wall clock.
func (c Clock) Known() bool { return c.known }

// Wall returns a time of CLOCK_MONOTONIC by the wall clock, in ns since 1970; 0 if not known.
func (c Clock) Wall(ns uint64) int64 {
	if !c.known {
		return 0
	}
	return int64(ns) + c.offset
}

// UTCColumns is the width of UTC.
const UTCColumns = len(utcLayout)

// utcLayout is the layout in tt-metal's log, with microseconds.
const utcLayout = "2006-01-02 15:04:05.000000"

// UTC is a time of CLOCK_MONOTONIC by the wall clock, in UTC.
func (c Clock) UTC(ns uint64) string {
	if !c.known {
		return "unknown"
	}
	return time.Unix(0, c.Wall(ns)).UTC().Format(utcLayout)
}
