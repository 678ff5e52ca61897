package perfetto

import (
	"fmt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A chip has a counter for each of its regions that was used, and for the circular buffers of L1.
type chip struct {
	track    uint64
	counters [event.BankedRegions + 1]*level
}

// circularBuffers is the counter of circular buffers.
const circularBuffers = event.BankedRegions

// A level is a counter: its value since ns.
type level struct {
	track     uint64
	value, ns uint64
	// written is the time of the latest value that was written. The highest value since then was
	// most, at mostNs.
	written      uint64
	most, mostNs uint64
	held         bool // value is not written
}

// count writes the counters that an event changes, except for a Free, which may have no region.
func (w *Writer) count(e *event.Event) {
	switch e.Kind {
	case event.Alloc:
		for _, id := range e.Devices {
			w.countRegion(e.TimeNs, id, e.Region)
		}
	case event.DeviceClose, event.ProcessExit, event.Checkpoint:
		for id := range w.chips {
			w.countChip(e.TimeNs, id)
		}
	}
}

func (w *Writer) countChip(ns uint64, id int) {
	for region := range event.Region(event.BankedRegions) {
		w.countRegion(ns, id, region)
	}
}

func (w *Writer) countRegion(ns uint64, id int, region event.Region) {
	name := region.String()
	if region == event.L1 {
		name = l1PerCore
	}
	w.set(ns, id, int(region), name, w.state.Level(id, region))
}

const l1PerCore = "L1 per core"

// Ran counts a program that ran: the Writer gets it from the state. How long it did is not known.
func (w *Writer) Ran(r memory.ProgramRun) {
	w.set(r.TimeNs, r.Device, int(event.L1), l1PerCore, r.Bytes)
	w.set(r.TimeNs, r.Device, circularBuffers, l1PerCore+": circular buffers", r.StaticBytes)
	w.set(r.TimeNs+1, r.Device, int(event.L1), l1PerCore, r.Bytes-r.StaticBytes)
	w.set(r.TimeNs+1, r.Device, circularBuffers, l1PerCore+": circular buffers", 0)
}

// set sets a counter of a chip.
func (w *Writer) set(ns uint64, id, which int, name string, bytes uint64) {
	c := w.chips[id]
	if c == nil {
		c = &chip{track: w.newTrack(0, fmt.Sprintf("Chip %d", id), nil)}
		w.chips[id] = c
	}
	l := c.counters[which]
	switch {
	case l == nil && bytes == 0:
		return
	case l == nil:
		l = &level{track: w.newTrack(c.track, name, func(m *message) {
			var unit message
			unit.uint(3, 3) // bytes
			m.message(8, unit)
		})}
		c.counters[which] = l
	case l.value == bytes:
		return
	}
	if l.written != 0 && ns-l.written < w.o.StepNs {
		if !l.held || bytes > l.most {
			l.most, l.mostNs = bytes, ns
		}
		l.held = true
	} else {
		l.flush(w)
		l.written = ns
		w.writeLevel(l, ns, bytes)
	}
	l.value, l.ns = bytes, ns
}

// flush writes the values that are not written.
func (l *level) flush(w *Writer) {
	if !l.held {
		return
	}
	l.held = false
	if l.mostNs != l.ns {
		w.writeLevel(l, l.mostNs, l.most)
	}
	w.writeLevel(l, l.ns, l.value)
}

func (w *Writer) writeLevel(l *level, ns, bytes uint64) {
	w.trackEvent(ns, counter, l.track, func(m *message) { m.uint(30, bytes) })
}
