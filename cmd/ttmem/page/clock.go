package page

import (
	"bytes"
	"strconv"
	"time"
)

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

// wallKeys are the JSON keys of times without their ending, and the keys of the same times by the
// wall clock. Other keys with that ending are of durations.
var wallKeys = map[string]string{
	"time": "wall_ns", "began": "began_wall_ns", "begin": "begin_wall_ns", "end": "end_wall_ns", "since": "since_wall_ns",
	"first": "first_wall_ns", "last": "last_wall_ns", "peak_time": "peak_wall_ns", "allocated": "allocated_wall_ns",
	"right_since": "right_since_wall_ns",
}

var timeEnding = []byte(`_ns":`)

// AddWall appends a document, or lines of documents, with the wall-clock time after each time. The
// keys cannot occur within a string, whose quotes are escaped.
func (c Clock) AddWall(b, text []byte) []byte {
	for c.known {
		before, after, found := bytes.Cut(text, timeEnding)
		if !found {
			break
		}
		n := digits(after)
		b = append(append(append(b, before...), timeEnding...), after[:n]...)
		text = after[n:]
		wall := wallKeys[string(before[bytes.LastIndexByte(before, '"')+1:])]
		if ns, err := strconv.ParseUint(string(after[:n]), 10, 63); err == nil && ns > 0 && wall != "" {
			b = append(append(append(b, `,"`...), wall...), `":`...)
			b = strconv.AppendInt(b, c.Wall(ns), 10)
		}
	}
	return append(b, text...)
}
