package recording

import (
	"encoding/binary"
	"math"
	"slices"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// rows are the events of a block. Each method writes or reads one value of an event.
//
// An event consists of a shape, which many events share, and a few values that differ. These are
// written as differences to values of earlier events. Each such value has a column, because
// values of one kind compress better. All other data is in the dictionary.
type rows struct {
	*dictionary
	columns   [numColumns]codec.Codec
	shapes    []shape
	processes map[int]*process
	objects   []object

	uses []*event.Uses
	key  []byte // of the latest uses

	time, object uint64 // of the previous event, and of the previous new object

	// For writing: the numbers of shapes, from 1, by their bytes and by a hash of a few of their
	// fields (only the newest), and the numbers of objects.
	numbers       map[string]int
	recent        [4096]uint16
	objectNumbers map[uint64]int
	usesNumbers   map[string]int // from 1, by their bytes

	newer bool // there is data of a newer ttmem
}

// The columns.
const (
	columnTime = iota
	columnObject
	columnBuffer
	columnAddress
	columnProgram
	numColumns
)

// A shape is the common part of many events. Its event has none of the values that differ.
type shape struct {
	event   event.Event
	has     uint8
	address uint64 // of its last event
	process *process
}

// The values that differ and that the events of a shape have; all others are zero.
const (
	hasObject = 1 << iota
	hasBuffer
	hasAddress
	hasProgram
	hasStack
	hasUses
	allHas = 1<<iota - 1
)

// process has the values of a process's last event, object those of an object's.
type (
	process struct{ buffer, program uint64 }
	object  struct{ object, buffer, address uint64 }
)

// begin begins a block.
func (r *rows) begin() {
	r.forgetShapes()
	r.forgetUses()
	r.processes, r.objectNumbers = make(map[int]*process), make(map[uint64]int)
	r.objects = r.objects[:0]
	r.time, r.object, r.blockRefs = 0, 0, 0
}

func (r *rows) forgetShapes() {
	clear(r.shapes)
	r.shapes, r.numbers = r.shapes[:0], make(map[string]int)
	clear(r.recent[:])
}

// length returns the number of bytes written for a block.
func (r *rows) length() int {
	n := len(r.c.Data)
	for i := range r.columns {
		n += len(r.columns[i].Data)
	}
	return n
}

// appendTo appends the written bytes of a block.
func (r *rows) appendTo(payload []byte) []byte {
	for i := range r.columns {
		payload = binary.AppendUvarint(payload, uint64(len(r.columns[i].Data)))
		payload = append(payload, r.columns[i].Data...)
		r.columns[i].Data = r.columns[i].Data[:0]
	}
	payload = append(payload, r.c.Data...)
	r.c.Data = r.c.Data[:0]
	return payload
}

// read begins to read a block.
func (r *rows) read(payload []byte) {
	r.c.Data = payload
	for i := range r.columns {
		n := r.c.Length(0)
		r.columns[i] = codec.Codec{Reads: true, Data: r.c.Data[:n]}
		r.c.Data = r.c.Data[n:]
	}
	r.begin()
}

// bad reports whether the data is invalid.
func (r *rows) bad() bool {
	bad := r.c.Bad
	for i := range r.columns {
		bad = bad || r.columns[i].Bad
	}
	return bad
}

// row writes or reads an event.
func (r *rows) row(e *event.Event) {
	s := r.shape(e)
	if s == nil {
		r.c.Fail()
		return
	}
	r.columns[columnTime].Delta(&e.TimeNs, r.time)
	r.time = e.TimeNs
	var o *object
	known := false
	if s.has&hasObject != 0 {
		o, known = r.holder(e)
	}
	if s.has&hasBuffer != 0 {
		// A freed buffer usually has the ID of its object, a new one the next ID of its process.
		from := s.process.buffer
		if known && e.Kind == event.Free {
			from = o.buffer
		}
		r.columns[columnBuffer].Delta(&e.BufferID, from)
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
		r.columns[columnAddress].Delta(&e.Address, from)
		s.address = e.Address
		if o != nil {
			o.address = e.Address
		}
	}
	if s.has&hasProgram != 0 {
		r.columns[columnProgram].Delta(&e.ProgramID, s.process.program)
		s.process.program = e.ProgramID
	}
	if s.has&hasStack != 0 {
		r.stack(&e.Stack)
	}
	if s.has&hasUses != 0 {
		r.used(&e.Uses)
	}
}

// used writes or reads what a program uses. Runs of a program repeat it.
func (r *rows) used(u **event.Uses) {
	c, n := r.c, 0
	if !c.Reads {
		if v := *u; max(len(v.Arguments), len(v.Statics)) > maxUsed {
			written := &event.Uses{Arguments: v.Arguments[:min(len(v.Arguments), maxUsed)], Statics: v.Statics[:min(len(v.Statics), maxUsed)], Partial: true}
			u = &written
		}
		r.key = appendUses(r.key[:0], *u)
		n = r.usesNumbers[string(r.key)]
	}
	if c.Below(&n, len(r.uses)+1); n > 0 {
		if c.Reads {
			*u = r.uses[n-1]
		}
		return
	}
	if len(r.uses) == maxUses {
		r.forgetUses()
	}
	if c.Reads {
		*u = new(event.Uses)
	} else {
		r.usesNumbers[string(r.key)] = len(r.uses) + 1
	}
	c.Bool(&(*u).Partial)
	for _, list := range [...]*[]uint32{&(*u).Arguments, &(*u).Statics} {
		last := uint64(0)
		codec.ListUpTo(c, list, maxUsed, func(v *uint32) {
			at := uint64(*v)
			c.Delta(&at, last)
			if *v, last = uint32(at), at; at > math.MaxUint32 {
				c.Fail()
			}
		})
	}
	r.uses = append(r.uses, *u)
}

// appendUses appends what makes uses different from others.
func appendUses(b []byte, u *event.Uses) []byte {
	partial := uint32(0)
	if u.Partial {
		partial = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(u.Arguments))<<1|partial)
	for _, list := range [...][]uint32{u.Arguments, u.Statics} {
		for _, v := range list {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
	}
	return b
}

// forgetUses begins with no uses.
func (r *rows) forgetUses() {
	clear(r.uses)
	r.uses, r.usesNumbers = r.uses[:0], make(map[string]int)
}

// holder returns the object of an event, and whether the object occurred earlier in this block.
func (r *rows) holder(e *event.Event) (o *object, known bool) {
	c, n := &r.columns[columnObject], 0
	if !c.Reads {
		n = r.objectNumbers[e.Object]
	}
	if c.Below(&n, len(r.objects)+1); n > 0 {
		o = &r.objects[n-1]
		if r.c.Reads {
			e.Object = o.object
		}
		return o, true
	}
	c.Delta(&e.Object, r.object)
	r.object = e.Object
	r.objects = append(r.objects, object{object: e.Object})
	if !r.c.Reads {
		r.objectNumbers[e.Object] = len(r.objects)
	}
	return &r.objects[len(r.objects)-1], false
}

// shape writes or reads the shape of an event; nil if the data is invalid.
func (r *rows) shape(e *event.Event) *shape {
	n := 0
	if r.c.Reads {
		if r.c.Below(&n, len(r.shapes)+1); n == 0 && !r.readShape() {
			return nil
		} else if n == 0 {
			n = len(r.shapes)
		}
		*e = r.shapes[n-1].event
		return &r.shapes[n-1]
	}
	has := hasOf(e)
	hash := (uint64(e.Kind) ^ uint64(e.Region)<<4 ^ uint64(e.TID)<<8 ^ e.SizeBytes<<24) * 0x9e3779b97f4a7c15
	recent := &r.recent[hash>>52]
	if n = int(*recent); n > 0 && r.shapes[n-1].has == has && sameShape(&r.shapes[n-1].event, e) && !isRare(e) {
		r.c.Below(&n, len(r.shapes)+1)
		return &r.shapes[n-1]
	}
	if n = r.writeShape(e, has); !isRare(e) {
		*recent = uint16(n)
	}
	return &r.shapes[n-1]
}

// writeShape writes a shape and returns its number. The first time it writes the definition.
func (r *rows) writeShape(e *event.Event, has uint8) int {
	s := shape{event: *e, has: has}
	s.event.Devices = e.Devices[:min(len(e.Devices), maxList)]
	s.event.Cores = e.Cores[:min(len(e.Cores), maxList)]
	at, refs, n := len(r.c.Data), r.blockRefs, 0
	r.c.Below(&n, 1)
	r.common(&s)
	definition := r.c.Data[at:]
	if n = r.numbers[string(definition)]; n > 0 {
		r.c.Data, r.blockRefs = r.c.Data[:at], refs
		r.c.Below(&n, len(r.shapes)+1)
		return n
	}
	if len(r.shapes) == maxShapes {
		r.forgetShapes()
	}
	s.event.Devices, s.event.Cores = slices.Clone(s.event.Devices), slices.Clone(s.event.Cores)
	r.addShape(s)
	r.numbers[string(definition)] = len(r.shapes)
	return len(r.shapes)
}

// readShape reads the definition of a shape, and reports whether it is valid.
func (r *rows) readShape() bool {
	if len(r.shapes) == maxShapes {
		r.forgetShapes()
	}
	var s shape
	r.common(&s)
	if e := &s.event; r.c.Bad || len(e.Devices) > maxList || len(e.Cores) > maxList {
		return false
	}
	// Readers index tables by kind and by region.
	if k := s.event.Kind; k.String() == "" || k >= event.Checkpoint || s.event.Region >= event.NumRegions || s.event.KernelKind >= event.NumKernelKinds || s.has > allHas {
		r.newer = true
		return false
	}
	r.addShape(s)
	return true
}

func (r *rows) addShape(s shape) {
	if s.process = r.processes[s.event.PID]; s.process == nil {
		s.process = new(process)
		r.processes[s.event.PID] = s.process
	}
	r.shapes = append(r.shapes, s)
}

// common writes or reads the common part of a shape.
func (r *rows) common(s *shape) {
	c, e := r.c, &s.event
	codec.Number(c, &s.has)
	codec.Number(c, &e.Kind)
	codec.Number(c, &e.Region)
	codec.Number(c, &e.Layout)
	// no event has both
	kinds := uint16(e.StaticKind) | uint16(e.KernelKind)<<8
	codec.Number(c, &kinds)
	e.StaticKind, e.KernelKind = event.StaticKind(kinds), event.KernelKind(kinds>>8)
	codec.Number(c, &e.Reason)
	codec.Number(c, &e.PID)
	tid := e.TID - e.PID
	codec.Number(c, &tid)
	e.TID = e.PID + tid
	r.text(&e.Comm)
	c.Uints(&e.Allocator, &e.SizeBytes, &e.PageSizeBytes, &e.BytesPerBank)
	codec.Number(c, &e.Banks)
	list(c, &e.Devices, func(v *int) { codec.Number(c, v) })
	list(c, &e.Cores, func(v *event.CoreRange) {
		for _, n := range [...]*uint16{&v.X0, &v.Y0, &v.X1, &v.Y1} {
			codec.Number(c, n)
		}
	})
	c.Bool(&e.PerCore)
	c.Bool(&e.BeforeAttach)
	rare := isRare(e)
	if c.Bool(&rare); rare {
		r.rare(e)
	}
}

// isRare reports whether an event has a field that only few events have.
func isRare(e *event.Event) bool {
	return e.Start != nil && *e.Start != (event.Start{}) || e.Open != nil && *e.Open != (event.Open{}) || e.Message != "" || e.Cause != "" || e.Count != 0 ||
		e.UID|e.ExitStatus != 0 || e.Global || e.Mesh || e.Reread
}

// rare writes or reads the fields that only few events have.
func (r *rows) rare(e *event.Event) {
	start, open := *e.Started(), *e.Opened()
	for _, s := range [...]*string{
		&e.Message, &open.Board, &open.Arch, &start.Command, &start.Library, &start.Release, &start.Container, &start.Pod, &e.Cause,
	} {
		r.text(s)
	}
	for _, v := range [...]*int{&e.UID, &start.ContainerPID, &e.ExitStatus} {
		codec.Number(r.c, v)
	}
	for _, v := range [...]*bool{&e.Global, &e.Mesh, &start.AttachedLate, &e.Reread} {
		r.c.Bool(v)
	}
	r.c.Uint(&e.Count)
	for i := range open.Capacities {
		of := &open.Capacities[i]
		codec.Number(r.c, &of.Banks)
		r.c.Uints(&of.BytesPerBank, &of.Base)
	}
	if e.Start == nil && start != (event.Start{}) {
		e.Start = &start
	}
	if e.Open == nil && open != (event.Open{}) {
		e.Open = &open
	}
}

// list writes or reads a list, which may be nil or empty.
func list[T any](c *codec.Codec, l *[]T, each func(*T)) {
	there := *l != nil
	if c.Bool(&there); !there {
		return
	}
	if codec.List(c, l, each); *l == nil {
		*l = []T{}
	}
}

// hasOf returns which of the values that differ the event has.
func hasOf(e *event.Event) (has uint8) {
	if e.Object != 0 {
		has |= hasObject
	}
	if e.BufferID != 0 {
		has |= hasBuffer
	}
	if e.Address != 0 {
		has |= hasAddress
	}
	if e.ProgramID != 0 {
		has |= hasProgram
	}
	if e.Stack != nil {
		has |= hasStack
	}
	if e.Uses != nil {
		has |= hasUses
	}
	return has
}

// sameShape reports whether two events without rare fields have the same shape.
func sameShape(a, b *event.Event) bool {
	return a.Kind == b.Kind && a.Region == b.Region && a.Layout == b.Layout && a.StaticKind == b.StaticKind && a.KernelKind == b.KernelKind &&
		a.Reason == b.Reason && a.PID == b.PID && a.TID == b.TID && a.Comm == b.Comm &&
		a.Allocator == b.Allocator && a.SizeBytes == b.SizeBytes && a.PageSizeBytes == b.PageSizeBytes &&
		a.BytesPerBank == b.BytesPerBank && a.Banks == b.Banks &&
		a.PerCore == b.PerCore && a.BeforeAttach == b.BeforeAttach &&
		(a.Devices == nil) == (b.Devices == nil) && slices.Equal(a.Devices, b.Devices) &&
		(a.Cores == nil) == (b.Cores == nil) && slices.Equal(a.Cores, b.Cores)
}
