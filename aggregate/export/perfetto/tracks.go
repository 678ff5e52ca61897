package perfetto

import (
	"cmp"
	"fmt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Fields of TracePacket.
const (
	packetClocks     = 6
	packetTime       = 8
	packetSequence   = 10
	packetEvent      = 11
	packetInterned   = 12
	packetFlags      = 13
	packetProfile    = 37
	packetDefaults   = 59
	packetDescriptor = 60
)

// Clocks, and the kinds of track events.
const (
	realtime        = 1
	monotonic       = 3
	monotonicCoarse = 4
	boottime        = 6

	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3
	counter    = 4
)

// sequence is the number of the only writer of the trace.
const sequence = 1

// packet writes the fields of a packet, with the values that it names first.
func (w *Writer) packet(m message) {
	m.uint(packetSequence, sequence)
	m.uint(packetFlags, 2) // it needs the interned values
	if len(w.interned.fresh) > 0 {
		m.message(packetInterned, w.interned.fresh)
		w.interned.fresh = w.interned.fresh[:0]
	}
	w.scratch[1] = m
	w.write(m)
}

func (w *Writer) write(packet message) {
	m := w.scratch[0][:0]
	m.message(1, packet)
	w.scratch[0] = m
	if _, err := w.out.Write(m); err != nil && w.err == nil {
		w.err = err
	}
}

// begin writes the clocks. Times are CLOCK_MONOTONIC; profiles use its coarse form.
func (w *Writer) begin(ns uint64) {
	var m, clocks, defaults message
	clock := func(id, ns uint64) {
		var c message
		c.uint(1, id)
		c.uint(2, ns)
		clocks.message(1, c)
	}
	for _, id := range []uint64{monotonic, monotonicCoarse, boottime} {
		clock(id, ns)
	}
	if w.o.Wall != nil {
		if wall := w.o.Wall(ns); wall > 0 {
			clock(realtime, uint64(wall))
		}
	}
	clocks.uint(2, monotonic) // as the trace's clock
	defaults.uint(58, monotonic)
	m.uint(packetSequence, sequence)
	m.uint(packetFlags, 1) // nothing is interned before
	m.message(packetClocks, clocks)
	m.message(packetDefaults, defaults)
	w.write(m)
}

// newTrack describes a track, and returns its number. more are fields of its description.
func (w *Writer) newTrack(parent uint64, name string, more func(m *message)) uint64 {
	w.tracks++
	var m message
	m.uint(1, w.tracks)
	if parent != 0 {
		m.uint(5, parent)
	}
	m.text(2, event.Printable(name))
	if more != nil {
		more(&m)
	}
	var p message
	p.message(packetDescriptor, m)
	w.packet(p)
	return w.tracks
}

// process returns the track of a process.
func (w *Writer) process(pid int, comm, command string) uint64 {
	track, ok := w.processes[pid]
	if !ok {
		track = w.newTrack(0, comm, func(m *message) {
			var p message
			p.uint(1, uint64(pid))
			p.text(2, event.Printable(command))
			p.text(6, event.Printable(comm))
			m.message(3, p)
		})
		w.processes[pid] = track
	}
	return track
}

// A groupKey identifies tracks of one name, which viewers show as one.
type groupKey struct {
	pid         int
	name, chips string
}

// A group has a track for each of the slices that overlap in time.
type group struct {
	parent uint64
	name   string
	// free are the tracks without a slice.
	free []uint64
}

// A slice is in a track of a group.
type slice struct {
	*group
	track uint64
}

// lane returns a track without a slice for an event of a process.
func (w *Writer) lane(e *event.Event, name string) slice {
	key := groupKey{e.PID, name, memory.DevicesKey(e.Devices)}
	g := w.groups[key]
	if g == nil {
		g = &group{parent: w.process(e.PID, e.Comm, ""), name: name + chipsText(e.Devices)}
		w.groups[key] = g
	}
	if n := len(g.free); n > 0 {
		track := g.free[n-1]
		g.free = g.free[:n-1]
		return slice{g, track}
	}
	return slice{g, w.newTrack(g.parent, g.name, nil)}
}

// chipsText returns the chips of a track: " chips 0-31".
func chipsText(ids []int) string {
	switch n := len(ids); {
	case n == 0:
		return " unknown chip"
	case n == 1:
		return fmt.Sprintf(" chip %d", ids[0])
	case ids[n-1]-ids[0] == n-1:
		return fmt.Sprintf(" chips %d-%d", ids[0], ids[n-1])
	default:
		return fmt.Sprintf(" %d chips from %d to %d", n, ids[0], ids[n-1])
	}
}

// track returns the track of a process, or of none, for single events.
func (w *Writer) track(pid int, name string) uint64 {
	key := groupKey{pid: pid, name: name}
	g := w.groups[key]
	if g == nil {
		parent := uint64(0)
		if pid != 0 {
			parent = w.process(pid, "", "")
		}
		g = &group{parent: w.newTrack(parent, name, nil)}
		w.groups[key] = g
	}
	return g.parent
}

// An annotation is a value that viewers show with a slice.
type annotation struct {
	name  string
	value uint64
	hex   bool
	// text is the value in place of a number.
	text string
}

// trackEvent writes an event of a track.
func (w *Writer) trackEvent(ns, kind, track uint64, more func(m *message)) {
	m := w.scratch[2][:0]
	m.uint(9, kind)
	m.uint(11, track)
	if more != nil {
		more(&m)
	}
	w.scratch[2] = m
	p := w.scratch[1][:0]
	p.uint(packetTime, ns)
	p.message(packetEvent, m)
	w.packet(p)
}

func (w *Writer) beginSlice(s slice, ns uint64, stack *event.Stack, other string, bytes uint64, list ...annotation) {
	w.trackEvent(ns, sliceBegin, s.track, func(m *message) {
		m.uint(10, w.interned.name(stack, other))
		w.weigh(m, stack, bytes)
		for _, a := range list {
			if a == (annotation{name: a.name}) {
				continue // not known
			}
			one := w.scratch[3][:0]
			one.uint(1, w.interned.bytes(annotationNames, a.name))
			switch {
			case a.text != "":
				one.text(6, event.Printable(a.text))
			case a.hex:
				one.uint(7, a.value)
			default:
				one.uint(3, a.value)
			}
			m.message(4, one)
			w.scratch[3] = one
		}
	})
}

// weigh adds a call stack and its bytes.
func (w *Writer) weigh(m *message, stack *event.Stack, bytes uint64) {
	m.uint(56, w.interned.stack(stack, ""))
	m.double(57, float64(bytes))
}

// end ends a slice.
func (w *Writer) end(s slice, ns uint64) {
	w.trackEvent(ns, sliceEnd, s.track, nil)
	s.free = append(s.free, s.track)
}

func (w *Writer) instant(track, ns uint64, stack *event.Stack, name string, bytes uint64) {
	w.trackEvent(ns, instant, track, func(m *message) {
		m.uint(10, w.interned.text(eventNames, cmp.Or(name, "?")))
		if stack != nil {
			w.weigh(m, stack, bytes)
		}
	})
}
