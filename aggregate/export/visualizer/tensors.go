package visualizer

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// tensors are those of buffers whose owners are known.
type tensors struct {
	// live are the live buffers of operations in the window, and those with owners.
	live  map[bufferKey]tensor
	count int
}

type bufferKey struct {
	pid int
	id  uint64
}

// A tensor is a buffer with the operation that allocated it, which is 0 if the report does not have
// that, and the number of the buffer in it.
type tensor struct {
	producer, output int
	call             *call
	buffer           memory.Buffer
	memory.Owner
}

// born notes the operation that allocated a buffer.
func (t *tensors) born(op *operation, e *event.Event) {
	if t.live == nil {
		t.live = make(map[bufferKey]tensor)
	}
	t.live[bufferKey{e.PID, e.BufferID}] = tensor{producer: op.id, output: len(op.allocations) - 1, call: op.call}
}

// own sets the owner of a live buffer. Losing its owner does not change the buffer's history.
func (t *tensors) own(b *memory.Buffer, owner memory.Owner) {
	if b == nil || owner.Path == "" {
		return
	}
	if t.live == nil {
		t.live = make(map[bufferKey]tensor)
	}
	key := bufferKey{b.PID, b.BufferID}
	one := t.live[key]
	one.buffer, one.Owner = *b, owner
	t.live[key] = one
}

// followTensors notes owners, and writes the tensors of buffers that end.
func (r *Report) followTensors(e *event.Event, s *aggregate.State) {
	switch e.Kind {
	case event.Checkpoint:
		for _, b := range s.Buffers() {
			r.tensors.own(&b, b.Owner)
		}
	case event.Owner:
		r.tensors.own(s.Buffer(e.PID, e.BufferID), memory.Owner{Path: e.Cause, Tensor: e.Message})
	case event.Free:
		key := bufferKey{e.PID, e.BufferID}
		if one, ok := r.tensors.live[key]; ok {
			delete(r.tensors.live, key)
			r.writeTensor(&one)
		}
	}
}

// writeTensors writes the tensors that are live at the end.
func (r *Report) writeTensors() {
	keys := slices.SortedFunc(maps.Keys(r.tensors.live), func(a, b bufferKey) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.id, b.id))
	})
	for _, key := range keys {
		one := r.tensors.live[key]
		r.writeTensor(&one)
	}
}

// writeTensor writes a tensor, if its owner is known. The pages have no place for that: it is an
// argument of the operation.
func (r *Report) writeTensor(t *tensor) {
	if t.Path == "" || len(t.buffer.Devices) == 0 {
		return
	}
	r.tensors.count++
	id := r.tensors.count
	shape, dtype, layout := partsOf(t.Tensor)
	var address any
	if !t.buffer.Scattered() {
		address = t.buffer.Address
	}
	r.db.insert("tensors", id, shape, dtype, layout, nil, t.buffer.Devices[0], address, int(t.buffer.Region), 0, "StorageType.DEVICE")
	for _, chip := range t.buffer.Devices {
		if address != nil {
			r.db.insert("device_tensors", id, chip, address, 0)
		}
	}
	if t.producer == 0 {
		return
	}
	r.db.insert("output_tensors", t.producer, t.output, id, 0)
	text := strings.TrimSpace(t.Path + " " + t.Tensor)
	r.db.insert("operation_arguments", t.producer, "held by", event.Printable(text), 0)
	var file, line any
	if user := t.call.user; len(user) > 0 && user[0].File != "" {
		file, line = event.Printable(user[0].File), user[0].Line
	}
	r.db.insert("tensor_lifetime", id, t.producer, nil, nil, file, line, nil, nil, 0)
}

// description is the text of a tensor: bf16[1,32,32,64] TILE.
var description = regexp.MustCompile(`^(\w+)(\[[0-9,]*\]) (\w+)$`)

// dtypes are the library's names.
var dtypes = map[string]string{
	"bf16": "BFLOAT16", "f32": "FLOAT32", "u32": "UINT32", "bfp8": "BFLOAT8_B", "bfp4": "BFLOAT4_B", "u8": "UINT8", "u16": "UINT16", "i32": "INT32",
}

// partsOf returns shape, type and layout of a tensor in the form of the library; all of the text as
// the shape if it has another form.
func partsOf(text string) (shape, dtype, layout string) {
	p := description.FindStringSubmatch(text)
	if p == nil {
		return event.Printable(text), "", ""
	}
	return "Shape(" + strings.ReplaceAll(p[2], ",", ", ") + ")", "DataType." + cmp.Or(dtypes[p[1]], p[1]), "Layout." + p[3]
}
