package aggregate

import (
	"ttmem/tracer/event"
)

// setPeak takes over the peak that a checkpoint tells.
func (s *State) setPeak(e *event.Event) {
	if e.Region >= event.NumRegions {
		s.anomalies.MalformedEvents++
		return
	}
	if e.PID == 0 {
		for _, id := range e.Devices {
			c := s.chip(id)
			c.used.setPeak(e)
			c.setEarlier(e)
		}
		return
	}
	for _, c := range s.set(s.process(e), e.Devices).chips {
		if e.SizeBytes == 0 && e.BytesPerBank == 0 && e.Capacities != (capacities{}) {
			c.own = e.Capacities
		}
		c.used.setPeak(e)
		if region, before, ok := reportedPeak(e); ok && before.bytes >= max(1, c.peaks[region].bytes) {
			c.peaks[region] = before
		}
		c.chip.setEarlier(e) // of all processes there may be none
	}
}

// setEarlier takes over the peak as one before the first event.
func (c *chip) setEarlier(e *event.Event) {
	if region, before, ok := reportedPeak(e); ok {
		c.pools[region].earlier.raise(before)
	}
}

// reportedPeak is the peak that the event reports of a pool, if it does.
func reportedPeak(e *event.Event) (region event.Region, p peak, ok bool) {
	switch {
	case int(e.Region) >= event.BankedRegions:
	case e.Region != event.L1:
		return e.Region, peak{bytes: e.SizeBytes, time: e.TimeNs, capacity: total(e.Capacities[e.Region])}, true
	case e.StaticKind != event.NotStatic:
		return e.Region, peak{bytes: e.SizeBytes + e.BytesPerBank, static: e.SizeBytes, time: e.TimeNs}, true
	}
	return 0, peak{}, false
}

// setPeak does nothing where the peak is already higher. Where it is as high, the
// checkpoint knows better when that was.
func (u *usage) setPeak(e *event.Event) {
	switch {
	case e.SizeBytes == 0 && e.BytesPerBank == 0:
	case e.Region == event.CB:
		if t := &u.static; e.SizeBytes >= t.peak {
			t.peak, t.peakTime = e.SizeBytes, e.TimeNs
		}
	case e.Region == event.Kernel:
		u.kernels.dramPeak = max(u.kernels.dramPeak, e.SizeBytes)
		u.kernels.textPeak = max(u.kernels.textPeak, e.BytesPerBank)
	case e.Region == event.L1 && e.StaticKind == event.NotStatic:
		if e.SizeBytes >= u.l1Buffers.bytes {
			u.l1Buffers = peak{bytes: e.SizeBytes, time: e.TimeNs, capacity: total(e.Capacities[event.L1])}
		}
	}
}

// addLeft counts what a process left before the checkpoint.
func (s *State) addLeft(e *event.Event) {
	if int(e.Region) >= event.BankedRegions || !isEnd(e.Reason) {
		s.anomalies.MalformedEvents++
		return
	}
	s.process(e).addLeft(leftShare{
		leftKey{e.Region, e.Reason}, holder{
			Holder{e.BytesPerBank, e.Count, e.Stack, uint64(e.Banks), e.BeforeAttach}, e.SizeBytes,
		},
	})
}

// The names of what a Total may be of.
const (
	totalExited       = "exited_processes"
	totalFailures     = "failures"
	totalRepeated     = "repeated_frees"
	totalReplaced     = "replaced_buffers"
	totalUnplaced     = "unplaced_buffers"
	totalMalformed    = "malformed_events"
	totalBeforeAttach = "before_attach_buffers"
)

// totals are those of no process.
var totals = []string{
	totalExited, totalFailures, totalRepeated, totalReplaced, totalUnplaced, totalMalformed,
}

// total is the number of that name; nil where there is none.
func (s *State) total(name string) *uint64 {
	switch name {
	case totalExited:
		return &s.exitedCount
	case totalFailures:
		return &s.failures.count
	case totalRepeated:
		return &s.anomalies.RepeatedFrees
	case totalReplaced:
		return &s.anomalies.ReplacedBuffers
	case totalUnplaced:
		return &s.anomalies.UnplacedBuffers
	case totalMalformed:
		return &s.anomalies.MalformedEvents
	}
	return nil
}

func (s *State) setTotal(e *event.Event) {
	if p := s.known(e.PID); p != nil && e.Cause == totalBeforeAttach {
		p.beforeAttach = e.Count
		return
	}
	n := s.total(e.Cause)
	if n == nil {
		s.anomalies.MalformedEvents++
		return
	}
	*n = e.Count
	s.join()
}
