package recording

import (
	"slices"

	"ttmem/tracer/event"
)

// columns are the events of a block. Values of one kind are stored together, because each is
// usually close to the one before.
type columns struct {
	shapes    map[shape]uint32
	known     []shapeState
	recent    [64]uint32 // by kind, region and thread: the newest shape's number plus one
	devices   lists[int]
	cores     lists[event.CoreRange]
	processes map[int]*processState
	objects   map[uint64]uint32
	states    []objectState // of objects
	sizes     map[sizes]uint32

	time, object     uint64 // of the previous event, and of the previous new object
	stackID          uint64 // of the previous stack, whose number is stack
	stack            uint32
	count            uint32
	earliest, latest uint64
	data             [numSections][]byte
}

// shapeState has the values of a shape's last event.
type shapeState struct {
	shape
	commText string
	process  *processState
	address  uint64
	size     sizes
	sizeCode uint64 // 0 if no event of the shape had sizes
}

// processState has the values of a process's last event.
type processState struct{ buffer, program uint64 }

// objectState has the values of an object's last event.
type objectState struct{ object, buffer, address uint64 }

// sizes are the sizes of a buffer.
type sizes struct{ size, page, bank uint64 }

func (c *columns) init() {
	c.shapes = make(map[shape]uint32)
	c.processes = make(map[int]*processState)
	c.objects = make(map[uint64]uint32)
	c.sizes = make(map[sizes]uint32)
}

// reset begins a block.
func (c *columns) reset() {
	c.forgetShapes()
	clear(c.processes)
	clear(c.objects)
	clear(c.sizes)
	c.states = c.states[:0]
	c.time, c.object, c.stackID = 0, 0, 0
	c.count, c.earliest, c.latest = 0, 0, 0
	for i := range c.data {
		c.data[i] = c.data[i][:0]
	}
}

func (c *columns) forgetShapes() {
	clear(c.shapes)
	clear(c.known)
	c.known = c.known[:0]
	clear(c.recent[:])
	c.devices.reset()
	c.cores.reset()
}

func (c *columns) pending() int {
	n := 0
	for i := range c.data {
		n += len(c.data[i])
	}
	return n
}

// add appends an event, and its definitions to d.
func (c *columns) add(e *event.Event, d *definitions) {
	if c.count == 0 {
		c.earliest, c.latest = e.TimeNs, e.TimeNs
	}
	c.earliest, c.latest = min(c.earliest, e.TimeNs), max(c.latest, e.TimeNs)
	c.count++
	c.data[sectionTime] = appendDelta(c.data[sectionTime], e.TimeNs, c.time)
	c.time = e.TimeNs

	s := c.shape(e, d)
	var o *objectState
	known := false
	if s.has&hasObject != 0 {
		o, known = c.holder(e.Object)
	}
	if s.has&hasBuffer != 0 {
		c.buffer(e, s, o, known)
	}
	if s.has&hasAddress != 0 {
		from := s.address
		if known {
			from = o.address
		}
		c.data[sectionAddress] = appendDelta(c.data[sectionAddress], e.Address, from)
		s.address = e.Address
		if o != nil {
			o.address = e.Address
		}
	}
	if s.has&hasSize != 0 {
		c.size(e, s)
	}
	if s.has&hasProgram != 0 {
		c.data[sectionProgram] = appendDelta(c.data[sectionProgram], e.ProgramID, s.process.program)
		s.process.program = e.ProgramID
	}
	if s.has&hasStack != 0 {
		if e.Stack.ID != c.stackID {
			c.stackID, c.stack = e.Stack.ID, d.stack(e.Stack)
		}
		code := uint64(c.stack) + 1
		if c.stack == d.usedStacks {
			d.usedStacks++
			code = 0
		}
		c.data[sectionStack] = appendUvarint(c.data[sectionStack], code)
	}
	if s.has&hasExtra != 0 {
		c.data[sectionExtra] = appendExtra(c.data[sectionExtra], e, d)
	}
}

// holder returns the state of an object, and whether it was seen in this block before.
func (c *columns) holder(object uint64) (o *objectState, known bool) {
	b := c.data[sectionObject]
	i, known := c.objects[object]
	if known {
		b = appendUvarint(b, uint64(i)+1)
	} else {
		i = uint32(len(c.states))
		c.objects[object] = i
		c.states = append(c.states, objectState{object: object})
		b = appendDelta(append(b, 0), object, c.object)
		c.object = object
	}
	c.data[sectionObject] = b
	return &c.states[i], known
}

// buffer appends a buffer's id. A freed one usually has the id of its object, a new one the
// next id of its process.
func (c *columns) buffer(e *event.Event, s *shapeState, o *objectState, known bool) {
	from := s.process.buffer
	if known && e.Kind == event.Free {
		from = o.buffer
	}
	c.data[sectionBuffer] = appendDelta(c.data[sectionBuffer], e.BufferID, from)
	if e.Kind != event.Free {
		s.process.buffer = e.BufferID
	}
	if o != nil {
		o.buffer = e.BufferID
	}
}

func (c *columns) size(e *event.Event, s *shapeState) {
	b := c.data[sectionSize]
	of := sizes{e.SizeBytes, e.PageSizeBytes, e.BytesPerBank}
	if s.sizeCode == 0 || s.size != of {
		i, ok := c.sizes[of]
		if !ok {
			i = uint32(len(c.sizes))
			c.sizes[of] = i
			b = appendUvarint(append(b, 0), of.size)
			b = appendUvarint(b, of.page)
			b = appendUvarint(b, of.bank)
		}
		s.size, s.sizeCode = of, uint64(i)+1
		if !ok {
			c.data[sectionSize] = b
			return
		}
	}
	c.data[sectionSize] = appendUvarint(b, s.sizeCode)
}

// shape appends the event's shape.
func (c *columns) shape(e *event.Event, d *definitions) *shapeState {
	devices, cores := e.Devices[:min(len(e.Devices), maxList)], e.Cores[:min(len(e.Cores), maxList)]
	key := shape{
		kind: e.Kind, region: e.Region, layout: e.Layout, static: e.StaticKind, reason: e.Reason,
		flags: flagsOf(e), has: hasOf(e), banks: e.Banks, pid: e.PID, tid: e.TID, alloc: e.Allocator,
	}
	recent := &c.recent[(uint(e.Kind)+5*uint(e.Region)+16*uint(e.TID))%uint(len(c.recent))]
	if *recent != 0 {
		s := &c.known[*recent-1]
		key.comm, key.devices, key.cores = s.comm, s.devices, s.cores
		if key == s.shape && e.Comm == s.commText && c.devices.is(s.devices, devices) && c.cores.is(s.cores, cores) {
			c.data[sectionShape] = appendUvarint(c.data[sectionShape], uint64(*recent))
			return s
		}
	}
	key.comm = d.string(e.Comm)
	key.devices, key.cores = c.devices.number(devices), c.cores.number(cores)
	i, ok := c.shapes[key]
	if ok {
		c.data[sectionShape] = appendUvarint(c.data[sectionShape], uint64(i)+1)
	} else {
		if len(c.known) == maxShapes {
			c.forgetShapes()
			key.devices, key.cores = c.devices.number(devices), c.cores.number(cores)
		}
		i = uint32(len(c.known))
		c.defineShape(&key, devices, cores)
		p := c.processes[e.PID]
		if p == nil {
			p = new(processState)
			c.processes[e.PID] = p
		}
		c.shapes[key] = i
		c.known = append(c.known, shapeState{shape: key, commText: e.Comm, process: p})
	}
	*recent = i + 1
	return &c.known[i]
}

func (c *columns) defineShape(s *shape, devices []int, cores []event.CoreRange) {
	b := append(c.data[sectionShape], 0, byte(s.kind), byte(s.region), byte(s.layout),
		byte(s.static), byte(s.reason), s.flags, s.has)
	b = appendUvarint(b, uint64(s.banks))
	b = appendUvarint(b, uint64(s.comm))
	b = appendUvarint(b, zigzag(int64(s.pid)))
	b = appendUvarint(b, zigzag(int64(s.tid-s.pid)))
	b = appendUvarint(b, s.alloc)
	b = appendUvarint(b, uint64(s.devices))
	if int(s.devices) > len(c.devices.known) {
		c.devices.known = append(c.devices.known, slices.Clone(devices))
		b = appendUvarint(b, uint64(len(devices)))
		for _, id := range devices {
			b = appendUvarint(b, zigzag(int64(id)))
		}
	}
	b = appendUvarint(b, uint64(s.cores))
	if int(s.cores) > len(c.cores.known) {
		c.cores.known = append(c.cores.known, slices.Clone(cores))
		b = appendUvarint(b, uint64(len(cores)))
		for _, r := range cores {
			for _, v := range [...]uint16{r.X0, r.Y0, r.X1, r.Y1} {
				b = appendUvarint(b, uint64(v))
			}
		}
	}
	c.data[sectionShape] = b
}
