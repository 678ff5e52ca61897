package host

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC of the host in ns, the clock of events.
func Now() uint64 { return uint64(clock(unix.CLOCK_MONOTONIC) - shiftNs()) }

func clock(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts)
	return ts.Nano()
}

// shiftNs is how far the clock of this process's time namespace is ahead of the host's, by which the
// kernel side reports events.
var shiftNs = sync.OnceValue(func() int64 {
	own, _ := os.Readlink("/proc/self/ns/time")
	listed, _ := os.Readlink("/proc/self/ns/time_for_children")
	offsets, _ := os.ReadFile("/proc/self/timens_offsets") // of the latter
	if own == listed {
		return shiftOf(string(offsets))
	}
	return 0
})

// shiftOf reads the lines of timens_offsets, such as "monotonic  86400  0": seconds and nanoseconds.
func shiftOf(offsets string) int64 {
	for line := range strings.Lines(offsets) {
		var clock string
		var seconds, ns int64
		if n, _ := fmt.Sscan(line, &clock, &seconds, &ns); n == 3 && clock == "monotonic" {
			return seconds*1e9 + ns
		}
	}
	return 0
}
