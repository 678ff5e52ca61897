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
			s.chip(id).used.setPeak(e)
		}
		return
	}
	for _, c := range s.set(s.process(e), e.Devices).chips {
		if e.SizeBytes == 0 && e.BytesPerBank == 0 && e.Capacities != (capacities{}) {
			c.own = e.Capacities
		}
		c.used.setPeak(e)
	}
}

// setPeak does nothing where the peak is already higher. Where it is as high, the
// checkpoint knows better when that was.
func (u *usage) setPeak(e *event.Event) {
	switch {
	case e.SizeBytes == 0 && e.BytesPerBank == 0:
	case e.Region == event.L1 && e.StaticKind != event.NotStatic:
		if e.SizeBytes+e.BytesPerBank >= u.l1Peak.buffers+u.l1Peak.static {
			u.l1Peak = l1Peak{buffers: e.BytesPerBank, static: e.SizeBytes, time: e.TimeNs}
		}
	case e.Region == event.CB:
		if t := &u.static; e.SizeBytes >= t.peak {
			t.peak, t.peakTime = e.SizeBytes, e.TimeNs
		}
	case e.Region == event.Kernel:
		u.kernels.dramPeak = max(u.kernels.dramPeak, e.SizeBytes)
		u.kernels.textPeak = max(u.kernels.textPeak, e.BytesPerBank)
	default:
		if r := &u.regions[e.Region]; e.SizeBytes >= r.peak {
			r.peak, r.peakTime, r.peakCapacity = e.SizeBytes, e.TimeNs, total(e.Capacities[e.Region])
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
