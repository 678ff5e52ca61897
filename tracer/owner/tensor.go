package owner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"ttmem/symbolize/x86"
)

// Tensors reads the ttnn tensors of a process with the library's own accessors.
type Tensors struct {
	*pages
	Machine *x86.Machine
}

// A Tensor is a tensor on a device.
type Tensor struct {
	// Buffer is the address of the Buffer that has its memory. View is true if the Buffer is another
	// tensor's.
	Buffer uint64
	View   bool
	// Shape is the logical shape; DType and Layout are named as ttnn's enums are.
	Shape  []uint32
	DType  string
	Layout string
}

// String is the tensor as people write it: bf16[1,32,4096,128] TILE. It is "" for what is no tensor.
func (t *Tensor) String() string {
	if t.Buffer == 0 {
		return ""
	}
	return t.DType + strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ",") + " " + t.Layout
}

var (
	dtypes  = []string{"bf16", "f32", "u32", "bfp8", "bfp4", "u8", "u16", "i32"}
	layouts = []string{"ROW_MAJOR", "TILE"}
)

var errNotReady = errors.New("no tensor: it is not constructed, or was destroyed")

// of returns the C++ object in an instance of a class that nanobind made.
func (t *Tensors) of(instance uint64) (uint64, error) {
	// nb_inst: the object's head, the i32 distance of the C++ object, then bits: 2 of its state,
	// and whether the distance leads to it or to a pointer
	const (
		ready  = 2
		direct = 1 << 2
	)
	var b [24]byte
	if !t.read(instance, b[:]) || b[20]&3 != ready {
		return 0, errNotReady
	}
	at := instance + uint64(int64(int32(binary.LittleEndian.Uint32(b[16:]))))
	if b[20]&direct != 0 {
		return at, nil
	}
	if !t.read(at, b[:8]) {
		return 0, errNotReady
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// call calls the accessor with one of these names.
func (t *Tensors) call(object uint64, names ...string) (uint64, error) {
	at := t.Machine.Function(names...)
	if at == 0 {
		return 0, errors.New("the library has no " + names[0])
	}
	value, _, err := t.Machine.Call(at, object)
	return value, err
}

// get calls an accessor of Tensor by the end of its mangled name. Before 0.76 the class was in
// another namespace.
func (t *Tensors) get(tensor uint64, name string) (uint64, error) {
	return t.call(tensor, "_ZNK4ttnn6Tensor"+name, "_ZNK2tt8tt_metal6Tensor"+name)
}

// buffer returns the Buffer of a tensor, or of the tensor of which it is a view.
func (t *Tensors) buffer(tensor uint64) (buffer uint64, view bool, err error) {
	own, err := t.get(tensor, "11mesh_bufferEv")
	if err != nil { // it may return a shared_ptr, as up to 0.66
		at := t.Machine.Function("_ZNK2tt8tt_metal6Tensor11mesh_bufferEv")
		if at == 0 {
			return 0, false, err
		}
		if own, err = t.Machine.CallForObject(at, tensor); err != nil {
			return 0, false, err
		}
	}
	root, err := t.root(tensor, own)
	if err != nil {
		return 0, false, err
	}
	buffer, err = t.backing(root)
	return buffer, root != own, err
}

// backing returns the Buffer of a MeshBuffer.
func (t *Tensors) backing(meshBuffer uint64) (uint64, error) {
	return t.call(meshBuffer, "_ZNK2tt8tt_metal11distributed10MeshBuffer18get_backing_bufferEv")
}

// words returns some words; nil if they cannot be read.
func (t *Tensors) words(at, count uint64) []uint64 {
	b := make([]byte, 8*count)
	if !isPointer(at) || !t.read(at, b) {
		return nil
	}
	words := make([]uint64, count)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// isPointer reports whether a word may be the address of an object.
func isPointer(word uint64) bool { return word%8 == 0 && word >= 1<<16 && word < 1<<47 }

// isShared reports whether the first two words are a std::shared_ptr.
func (t *Tensors) isShared(words []uint64) bool {
	if len(words) < 2 || !isPointer(words[0]) || words[1]%16 != 0 {
		return false
	}
	// the virtual table, how many strong and weak references there are, and the object or its address
	const inside, most = 16, 1 << 24
	control := t.words(words[1], 3)
	if control == nil || words[0] != words[1]+inside && words[0] != control[2] {
		return false
	}
	strong, weak := uint32(control[1]), uint32(control[1]>>32)
	return strong > 0 && weak > 0 && strong < most && weak < most
}

// root returns the MeshBuffer that has the memory of a tensor: not its own if it is a view.
func (t *Tensors) root(tensor, own uint64) (uint64, error) {
	storage, err := t.call(tensor, "_ZNKR4ttnn6Tensor14device_storageEv", "_ZNKR2tt8tt_metal6Tensor14device_storageEv")
	if err != nil {
		return 0, err
	}
	buffer := []string{"_ZNK4ttnn13DeviceStorage20get_root_mesh_bufferEv", "_ZNK2tt8tt_metal13DeviceStorage20get_root_mesh_bufferEv"}
	holder := []string{"_ZNK4ttnn13DeviceStorage20get_root_mesh_tensorEv", "_ZNK2tt8tt_metal13DeviceStorage20get_root_mesh_tensorEv"}
	switch {
	case t.Machine.Function(buffer...) != 0:
		root, err := t.call(storage, buffer...)
		if words := t.words(root, 2); err == nil && root != own && t.isShared(words) {
			root = words[0] // 0.68 returns a reference to a shared_ptr
		}
		return root, err
	case t.Machine.Function(holder...) != 0:
		root, err := t.call(storage, holder...)
		if err != nil {
			return 0, err
		}
		// It is a reference to a shared_ptr of the holder of a MeshTensor, which is what a
		// DeviceStorage begins with.
		return t.call(root, "_ZNK4ttnn13DeviceStorage15get_mesh_bufferEv", "_ZNK2tt8tt_metal13DeviceStorage15get_mesh_bufferEv")
	}
	return own, nil // a release without views
}

// Buffer returns the Buffer of the tensor that is an instance of the Python type. A tensor without
// a Buffer, such as one on the host, is an error.
func (t *Tensors) Buffer(instance uint64) (uint64, error) {
	object, err := t.of(instance)
	if err != nil {
		return 0, err
	}
	buffer, _, err := t.buffer(object)
	return buffer, err
}

// Read reads all of the tensor.
func (t *Tensors) Read(instance uint64) (tensor Tensor, err error) {
	object, err := t.of(instance)
	if err != nil {
		return tensor, err
	}
	if tensor.Buffer, tensor.View, err = t.buffer(object); err != nil {
		return tensor, err
	}
	dtype, err := t.get(object, "5dtypeEv")
	if err != nil {
		return tensor, err
	}
	layout, err := t.get(object, "6layoutEv")
	if err != nil {
		return tensor, err
	}
	tensor.DType, tensor.Layout = nameOf(dtypes, uint8(dtype)), nameOf(layouts, uint8(layout))
	shape, err := t.get(object, "13logical_shapeEv")
	if err != nil {
		return tensor, err
	}
	view := t.Machine.Function("_ZNK2tt8tt_metal9ShapeBase4viewEv")
	if view == 0 {
		return tensor, errors.New("the library has no ShapeBase::view")
	}
	at, n, err := t.Machine.Call(view, shape)
	if err != nil {
		return tensor, err
	}
	const maxRank = 64
	if n > maxRank {
		return tensor, fmt.Errorf("a tensor of %d dimensions", n)
	}
	b := make([]byte, 4*n)
	if !t.read(at, b) {
		return tensor, errNotReady
	}
	for ; len(b) > 0; b = b[4:] {
		tensor.Shape = append(tensor.Shape, binary.LittleEndian.Uint32(b))
	}
	return tensor, nil
}

// nameOf returns the name of a value of an enum; its number if it is new.
func nameOf(names []string, value uint8) string {
	if int(value) < len(names) {
		return names[value]
	}
	return fmt.Sprint(value)
}
