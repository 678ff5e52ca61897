package layout

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// devices finds the fields that identify the chips of a device.
func (d *deriver) devices() {
	if _, err := d.function(deviceID); err == nil {
		d.field("Device.id_", 4, from(result, deviceID))
	} else {
		d.attempt("Device.id_", d.virtualDeviceID)
	}
	// Its id is in the MeshDevice, or in the MeshDeviceImpl that it calls through a virtual function:
	// `mov rdi, [this+pimpl_]; mov rax, [rdi]; jmp [rax+n]`.
	if _, _, err := d.chain(4, from(result, meshID)); err != nil {
		d.field("MeshDevice.pimpl_", 8, from(single(callsObject), meshID))
	}
	d.attempt("MeshDevice.devices", d.meshDevices)
	d.layout.DeviceVtable = d.vtable("Device.vtable", deviceTable)
	d.layout.MeshVtable = d.vtable("MeshDevice.vtable", meshTable)
}

// The functions that return the id of a chip, and of a mesh. Both override the same virtual function.
const (
	deviceID = "Device::id() const"
	meshID   = "distributed::MeshDevice::id() const"
)

// maxVirtual is how many virtual functions are compared, and maxAccessor how many bytes the code of an
// accessor has at most.
const maxVirtual, maxAccessor = 64, 32

// virtualDeviceID finds Device::id() in a library without local symbols: in the table of Device, it has
// the place of MeshDevice::id() in the table of MeshDevice.
func (d *deriver) virtualDeviceID() error {
	mesh, err := d.function(meshID)
	if err != nil {
		return err
	}
	ofMesh, hasMesh := d.e.Lookup(meshTable)
	ofDevice, hasDevice := d.e.Lookup(deviceTable)
	if !hasMesh || !hasDevice {
		return fmt.Errorf("the library has no %s", readable(deviceID))
	}
	for slot := uint64(16); slot < 8*maxVirtual; slot += 8 {
		if at, err := d.e.Pointer(ofMesh.Addr + slot); err != nil || at != mesh.Addr {
			continue
		}
		code, err := d.e.Pointer(ofDevice.Addr + slot)
		if err != nil {
			return err
		}
		f, err := d.flow(symbolize.Symbol{Name: deviceID, Addr: code, Size: maxAccessor})
		if err != nil {
			return err
		}
		c, err := result(f)
		if err == nil {
			err = plausible(c, 4)
		}
		if err == nil {
			d.layout.Fields["Device.id_"] = c
		}
		return err
	}
	return fmt.Errorf("the library has no %s, and its table no %s", readable(deviceID), readable(meshID))
}

// The tables of virtual functions.
const (
	deviceTable = "_ZTVN2tt8tt_metal6DeviceE"
	meshTable   = "_ZTVN2tt8tt_metal11distributed10MeshDeviceE"
)

// vtable returns the value of an object's vtable pointer, which skips the offset to the top and
// the type information, 8 bytes each.
func (d *deriver) vtable(name, symbol string) uint64 {
	s, ok := d.e.Lookup(symbol)
	if !ok {
		d.miss(name, "the library has no "+symbolize.ShortName(symbol))
		return 0
	}
	return s.Addr + 16
}

// vector is a vector of chips: the chain to its begin pointer, the bytes of an element, and
// the offset in it of a byte that is 1 for a chip of this host.
type vector struct {
	begin         Chain
	stride, local int
}

// meshDevices finds the vector of a mesh's chips, which get_device_ids() and get_devices()
// both read, directly or through calls.
func (d *deriver) meshDevices() error {
	ids, err := d.vectorOf("distributed::MeshDevice::get_device_ids() const", 0)
	if err != nil {
		return err
	}
	// releases differ in which of the two loops goes over a vector of pointers; the first gives
	// the stride
	devices, err := d.vectorOf("distributed::MeshDevice::get_devices() const", 0)
	if err != nil {
		return err
	}
	if !slices.Equal(ids.begin, devices.begin) {
		return fmt.Errorf("get_device_ids() reads them at %v, get_devices() at %v", ids.begin, devices.begin)
	}
	if ids.stride <= 0 || ids.stride%8 != 0 {
		return errShape
	}
	if err := plausible(ids.begin[max(0, len(ids.begin)-4):], 8); err != nil {
		return err
	}
	d.layout.Fields["MeshDevice.devices"] = ids.begin
	d.layout.MeshStride, d.layout.MeshLocal = ids.stride, ids.local
	return nil
}

// maxCalls bounds the depth of calls through which the vector is followed.
const maxCalls = 4

// vectorOf finds the vector that a function reads. The function returns another vector by
// value, so `this` is the second argument.
func (d *deriver) vectorOf(function string, calls int) (*vector, error) {
	fl, err := d.flowOf(function)
	if err != nil {
		return nil, err
	}
	if calls > maxCalls {
		return nil, errShape
	}
	for i, s := range fl.steps {
		name, v := fl.callee(s), s.State.Arg(1)
		switch {
		case name == "":
		case strings.Contains(name, "14extract_localsI"):
			c, ok := v.Chain(1)
			if !ok {
				break
			}
			stride, local, err := d.entries(name)
			return &vector{c, stride, local}, err
		case strings.Contains(name, "14get_device_idsEv"), strings.Contains(name, "11get_devicesEv"):
			c, ok := v.Loaded(1)
			if !ok {
				break
			}
			inner, err := d.vectorOf(name, calls+1)
			if err != nil {
				return nil, err
			}
			inner.begin = slices.Concat(c, inner.begin)
			if inner.stride == 0 {
				inner.stride = fl.stride()
			}
			return inner, nil
		}
		// or the function has the loop itself
		if begin, ok := fl.pair(i, 1); ok {
			return &vector{begin, fl.stride(), -1}, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", readable(function), errShape)
}

// pair is the begin pointer of a vector, if step i loads it and one of the next steps loads
// the end pointer behind it.
func (f *flow) pair(i int, arg uint64) (Chain, bool) {
	load := func(s *x86.Step) (Chain, bool) {
		if _, store := s.Args[0].(x86asm.Mem); store || !s.Is(x86asm.MOV, 8) {
			return nil, false
		}
		return s.Accessed(arg)
	}
	begin, ok := load(f.steps[i])
	if !ok {
		return nil, false
	}
	for j := i + 1; j < len(f.steps) && j <= i+3; j++ {
		if end, ok := load(f.steps[j]); ok && follows(end, begin) {
			return begin, true
		}
	}
	return nil, false
}

// stride is the step of a function's loop over an array of pointers to objects: `mov rdi,
// [r15]; mov rax, [rdi]; call [rax+n]` with `add r15, 8`. 0 if there is no such loop.
func (f *flow) stride() int {
	for i := 2; i < len(f.steps); i++ {
		call, table, object := f.steps[i], f.steps[i-1], f.steps[i-2]
		if _, _, ok := call.Mem(); !ok || call.Op != x86asm.CALL || table.Op != x86asm.MOV || object.Op != x86asm.MOV {
			continue
		}
		through, _, ok := table.Mem()
		if !ok || through.Base != x86asm.RDI || object.Args[0] != x86asm.Arg(x86asm.RDI) {
			continue
		}
		if element, _, ok := object.Mem(); ok && element.Index == 0 && element.Disp == 0 {
			return f.advance(element.Base)
		}
	}
	return 0
}

// advance returns the number that a function adds to a register; 0 if it adds none, or several.
func (f *flow) advance(r x86asm.Reg) int {
	found := 0
	for _, s := range f.steps {
		n, ok := s.Args[1].(x86asm.Imm)
		if s.Op != x86asm.ADD || s.Args[0] != x86asm.Arg(r) || !ok {
			continue
		}
		if n <= 0 || n > 1<<10 || found != 0 && found != int(n) {
			return 0
		}
		found = int(n)
	}
	return found
}

// entries finds the stride of a vector and the position of its flags, in the function that
// extracts the local chips: `cmp byte ptr [r13+8], 1` and `mov rcx, [r13]` with `add r13,
// 0x10`.
func (d *deriver) entries(function string) (stride, local int, err error) {
	fl, err := d.flowOf(function)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range fl.steps {
		m, _, ok := s.Mem()
		if !ok || !s.Is(x86asm.CMP, 1) || !s.Has(1, 1) || m.Index != 0 {
			continue
		}
		stride, local = fl.advance(m.Base), int(m.Disp)
		if stride < 16 || local < 8 || local >= stride {
			break
		}
		return stride, local, nil
	}
	return 0, 0, fmt.Errorf("%s: %w", readable(function), errShape)
}
