package recording

import (
	"ttmem/tracer/event"
)

// readShape reads the definition of a shape.
func (r *rows) readShape(c *cursor) bool {
	if len(r.shapes) == maxShapes {
		r.forgetShapes()
	}
	const fixed = 7
	if len(c.b)-c.i < fixed {
		return false
	}
	b := c.b[c.i : c.i+fixed]
	c.i += fixed
	flags := b[5]
	s := rowShape{has: b[6]}
	e := &s.common
	*e = event.Event{
		Kind: event.Kind(b[0]), Region: event.Region(b[1]), Layout: event.Layout(b[2]),
		StaticKind: event.StaticKind(b[3]), Reason: event.Reason(b[4]),
		Global: flags&flagGlobal != 0, BeforeAttach: flags&flagBeforeAttach != 0,
		Mesh: flags&flagMesh != 0, AttachedLate: flags&flagAttachedLate != 0,
		PerCore: flags&flagPerCore != 0,
	}
	// What uses events has tables by kind and by region.
	if e.Kind.String() == "" || e.Kind >= event.Checkpoint || e.Region >= event.NumRegions || flags&^allFlags != 0 || s.has&^allHas != 0 {
		r.newer = true
		return false
	}
	e.Banks = uint32(c.uint(32))
	e.Comm = r.of.string(c)
	e.PID = int(c.varint())
	e.TID = e.PID + int(c.varint())
	e.Allocator = c.uvarint()
	if n := c.below(len(r.devices) + 2); n != 0 {
		if n > len(r.devices) {
			r.devices = append(r.devices, readDevices(c))
		}
		e.Devices = r.devices[n-1]
	}
	if n := c.below(len(r.cores) + 2); n != 0 {
		if n > len(r.cores) {
			r.cores = append(r.cores, readCores(c))
		}
		e.Cores = r.cores[n-1]
	}
	if s.process = r.processes[e.PID]; s.process == nil {
		s.process = new(processState)
		r.processes[e.PID] = s.process
	}
	r.shapes = append(r.shapes, s)
	return !c.bad
}

func readDevices(c *cursor) []int {
	n := c.below(min(maxList, len(c.b)-c.i) + 1)
	list := make([]int, n)
	for i := range list {
		list[i] = int(c.varint())
	}
	return list
}

func readCores(c *cursor) []event.CoreRange {
	n := c.below(min(maxList, len(c.b)-c.i) + 1)
	list := make([]event.CoreRange, n)
	next := func() uint16 { return uint16(c.uint(16)) }
	for i := range list {
		list[i] = event.CoreRange{X0: next(), Y0: next(), X1: next(), Y1: next()}
	}
	return list
}

// extra reads the fields that few events have, and reports whether they make
// sense. Those that it does not know come from a newer ttmem.
func (r *rows) extra(e *event.Event) bool {
	c := &r.columns[sectionExtra]
	for f := c.field(); f.number != 0; f = c.field() {
		var s string
		switch f.kind {
		case typeText:
			if len(f.text) > maxString {
				return false
			}
			s = string(f.text)
		case typeString:
			if f.value >= uint64(len(r.of.strings)) {
				return false
			}
			s = r.of.strings[f.value]
		}
		v := int(unzigzag(f.value))
		switch f.number {
		case extraMessage:
			e.Message = s
		case extraCapacities:
			of := cursor{b: f.text}
			for i := range e.Capacities {
				e.Capacities[i].Banks, e.Capacities[i].BytesPerBank = uint32(of.uint(32)), of.uvarint()
			}
			c.bad = c.bad || of.bad
		case extraBases:
			of := cursor{b: f.text}
			for i := range e.Capacities {
				e.Capacities[i].Base = of.uvarint()
			}
			c.bad = c.bad || of.bad
		case extraBoard:
			e.Board = s
		case extraArch:
			e.Arch = s
		case extraCommand:
			e.Command = s
		case extraLibrary:
			e.Library = s
		case extraRelease:
			e.Release = s
		case extraUID:
			e.UID = v
		case extraContainer:
			e.Container = s
		case extraPod:
			e.Pod = s
		case extraContainerPID:
			e.ContainerPID = v
		case extraExitStatus:
			e.ExitStatus = v
		case extraCount:
			e.Count = f.value
		case extraCause:
			e.Cause = s
		}
	}
	return !c.bad
}
