package recording

import "ttmem/tracer/event"

// rows puts the events of a block together again, from its columns.
type rows struct {
	of        *dictionary
	left      uint32
	columns   [numSections]cursor
	shapes    []rowShape
	devices   [][]int
	cores     [][]event.CoreRange
	processes map[int]*processState
	objects   []objectState
	sizes     []sizes

	time, object uint64
	newer        bool // there is what a newer ttmem can read
}

// rowShape is what the events of a shape have, and what they had last.
type rowShape struct {
	common  event.Event
	has     uint8
	process *processState
	address uint64
}

// begin begins a block, and reports whether its definitions make sense.
func (r *rows) begin(payload []byte, events uint32) bool {
	r.columns = [numSections]cursor{}
	for c := (cursor{b: payload}); !c.done(); {
		number, section := c.uvarint(), c.bytes()
		if c.bad {
			return false
		}
		if number < numSections { // others come from a newer ttmem
			r.columns[number].b = section
		}
	}
	r.forgetShapes()
	r.processes = make(map[int]*processState)
	r.objects, r.sizes = r.objects[:0], r.sizes[:0]
	r.time, r.object = 0, 0
	if !r.of.read(&r.columns) {
		return false
	}
	r.left = events
	return true
}

func (r *rows) forgetShapes() {
	clear(r.shapes)
	r.shapes = r.shapes[:0]
	r.devices, r.cores = nil, nil
}

// next makes the next event, and reports whether there was one that makes sense.
func (r *rows) next(e *event.Event) bool {
	c := &r.columns[sectionShape]
	code := c.below(len(r.shapes) + 1)
	if code == 0 {
		if c.bad || !r.readShape(c) {
			return false
		}
		code = len(r.shapes)
	}
	s := &r.shapes[code-1]
	*e = s.common
	r.time = r.columns[sectionTime].delta(r.time)
	e.TimeNs = r.time
	bad := r.columns[sectionTime].bad

	var o *objectState
	known := false
	if s.has&hasObject != 0 {
		if o, known = r.holder(&r.columns[sectionObject]); o == nil {
			return false
		}
		e.Object = o.object
	}
	if s.has&hasBuffer != 0 {
		from := s.process.buffer
		if known && e.Kind == event.Free {
			from = o.buffer
		}
		e.BufferID = r.columns[sectionBuffer].delta(from)
		bad = bad || r.columns[sectionBuffer].bad
		if e.Kind != event.Free {
			s.process.buffer = e.BufferID
		}
		if o != nil {
			o.buffer = e.BufferID
		}
	}
	if s.has&hasAddress != 0 {
		from := s.address
		if known {
			from = o.address
		}
		e.Address = r.columns[sectionAddress].delta(from)
		bad = bad || r.columns[sectionAddress].bad
		s.address = e.Address
		if o != nil {
			o.address = e.Address
		}
	}
	if s.has&hasSize != 0 {
		c := &r.columns[sectionSize]
		code := c.below(len(r.sizes) + 1)
		if code == 0 {
			r.sizes = append(r.sizes, sizes{c.uvarint(), c.uvarint(), c.uvarint()})
			code = len(r.sizes)
		}
		of := &r.sizes[code-1]
		e.SizeBytes, e.PageSizeBytes, e.BytesPerBank = of.size, of.page, of.bank
		bad = bad || c.bad
	}
	if s.has&hasProgram != 0 {
		e.ProgramID = r.columns[sectionProgram].delta(s.process.program)
		s.process.program = e.ProgramID
		bad = bad || r.columns[sectionProgram].bad
	}
	if s.has&hasStack != 0 && !r.stack(e) {
		return false
	}
	if s.has&hasExtra != 0 && !r.extra(e) {
		return false
	}
	r.left--
	return !bad
}

func (r *rows) holder(c *cursor) (o *objectState, known bool) {
	code := c.below(len(r.objects) + 1)
	if known = code != 0; !known {
		r.object = c.delta(r.object)
		r.objects = append(r.objects, objectState{object: r.object})
		code = len(r.objects)
	}
	if c.bad {
		return nil, false
	}
	return &r.objects[code-1], known
}

func (r *rows) stack(e *event.Event) bool {
	c := &r.columns[sectionStack]
	n := r.of.usedStacks
	if code := c.below(len(r.of.stacks) + 1); code != 0 {
		n = code - 1
	} else {
		r.of.usedStacks++
	}
	if c.bad || n >= len(r.of.stacks) {
		return false
	}
	e.Stack = r.of.stacks[n]
	return true
}
