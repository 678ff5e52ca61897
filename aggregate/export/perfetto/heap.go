package perfetto

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// maxProfiles is how many profiles of peaks, and of marks, there are at most: each costs time in
// proportion to the number of call sites.
const maxProfiles = 64

// A heap writes the memory by call stack at some moments, as heap profilers do: totals since the
// beginning, of the call stacks whose totals changed.
type heap struct {
	// peaks are the numbers of the events at which a region has its peak, in order.
	peaks []memory.PeakPoint
	marks int
	index uint64
	// totals are those that were written.
	totals map[heapKey]heapTotal
}

type heapKey struct {
	pid, device int
	region      event.Region
	stack       uint64
}

type heapTotal struct{ allocated, freed memory.Amount }

func (h *heap) begin(peaks []memory.PeakPoint) {
	h.totals = make(map[heapKey]heapTotal)
	h.peaks = slices.Clone(peaks)
	slices.SortFunc(h.peaks, func(a, b memory.PeakPoint) int { return cmp.Compare(a.Number, b.Number) })
}

// after writes a profile if the event is a peak or a user's mark.
func (h *heap) after(w *Writer, e *event.Event) {
	reached := false
	for len(h.peaks) > 0 && w.state.Number() >= h.peaks[0].Number {
		reached = reached || w.state.Number() == h.peaks[0].Number
		h.peaks = h.peaks[1:]
	}
	switch {
	case reached && h.index < maxProfiles:
	case e.Kind == event.Mark && e.PID == 0 && h.marks < maxProfiles:
		h.marks++
	default:
		return
	}
	h.write(w, e.TimeNs)
}

// write writes a profile.
func (h *heap) write(w *Writer, ns uint64) {
	p := w.state.Profile()
	var packet message
	for i := 0; i < len(p.Samples); {
		pid := p.Samples[i].PID
		var samples message
		for ; i < len(p.Samples) && p.Samples[i].PID == pid; i++ {
			h.sample(w, &p.Samples[i], &samples)
		}
		if len(samples) > 0 {
			var process message
			process.uint(1, uint64(pid))
			process.uint(9, ns)
			process.text(11, "device memory")
			process = append(process, samples...)
			packet.message(5, process)
		}
	}
	packet.uint(7, h.index)
	h.index++
	var m message
	m.uint(packetTime, ns)
	m.message(packetProfile, packet)
	w.packet(m)
}

// sample adds the totals of a call stack if they changed. Readers take totals that shrink for
// damage.
func (h *heap) sample(w *Writer, s *memory.Sample, to *message) {
	key := heapKey{s.PID, s.Device, s.Region, memory.StackID(s.Stack)}
	before := h.totals[key]
	now := heapTotal{allocated: s.Allocated, freed: s.Allocated}
	now.freed.Sub(s.Live)
	now = heapTotal{atLeast(now.allocated, before.allocated), atLeast(now.freed, before.freed)}
	if now == before {
		return
	}
	h.totals[key] = now
	var m message
	m.uint(1, w.interned.stack(s.Stack, s.Region.String()+chipsText([]int{s.Device})))
	m.uint(2, now.allocated.Bytes)
	m.uint(3, now.freed.Bytes)
	m.uint(5, now.allocated.Count)
	m.uint(6, now.freed.Count)
	to.message(2, m)
}

func atLeast(a, b memory.Amount) memory.Amount {
	return memory.Amount{Count: max(a.Count, b.Count), Bytes: max(a.Bytes, b.Bytes)}
}
