package tracer

import (
	"encoding/binary"
	"fmt"
	"io"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// heapLibrary is where a tt-metal library keeps what is read of its objects: by the
// kernel side, in its records and in the memory of a process that maps it.
type heapLibrary struct {
	path    string
	release string // "" where it is not known
	layout  *layout.Layout
	// kernel is what the kernel side has to know of the library.
	kernel bpf.KernelLayout
	// where in the window of a buffer record the fields lie
	size, bufferType, bufferLayout, ownsData, address, pageSize int
}

// openHeapLibrary reads a library's layout out of its machine code. It calls found before
// what takes long.
func openHeapLibrary(file io.ReaderAt, size int64, path, root string, found func()) (*heapLibrary, error) {
	elf, err := symbolize.New(file, size)
	if err != nil {
		return nil, err
	}
	defer elf.Close()
	if !layout.IsLibrary(elf) {
		return nil, layout.ErrNoLibrary
	}
	found()
	derived, err := layout.Derive(elf)
	if err != nil {
		return nil, err
	}
	return newLibrary(derived, path, layout.Release(root, path))
}

// newLibrary is a library with a layout. The error names a field without which no buffer
// can be counted.
func newLibrary(derived *layout.Layout, path, release string) (*heapLibrary, error) {
	l := &heapLibrary{path: path, release: release, layout: derived}
	return l, l.plan()
}

// required are the fields without which no buffer can be counted.
var required = []string{
	"device_", "size_", "buffer_type_", "owns_data_", "allocator_", "allocation_status_",
	"hooked_allocation_", "address_", "page_size_", "unique_id_", "buffer_layout_",
}

// plan works out what the kernel side has to know of the library.
func (l *heapLibrary) plan() error {
	fields := l.layout.Fields
	k := &l.kernel
	k.BufferImpl = bpf.NoField
	for _, name := range required {
		c, ok := fields[name]
		if !ok || len(c) == 0 || len(c) > 2 {
			return fmt.Errorf("%s%s: cannot find Buffer::%s; `ttmem doctor --library %s` shows what was found",
				l.path, l.inRelease(), name, l.path)
		}
		if len(c) == 2 {
			k.BufferImpl = uint32(c[0])
		}
	}
	last := func(name string) int { c := fields[name]; return int(c[len(c)-1]) }
	low, high := 1<<30, 0
	for _, name := range required {
		if name == "unique_id_" {
			continue
		}
		low, high = min(low, last(name)), max(high, last(name)+8)
	}
	window := len(bpf.KernelBufferRecord{}.Window)
	if high-low > window {
		return fmt.Errorf("%s%s: the fields of Buffer lie %d bytes apart, more than %d",
			l.path, l.inRelease(), high-low, window)
	}
	in := func(name string) int { return last(name) - low }
	k.Window = uint32(low)
	k.Status, k.Hooked = uint32(in("allocation_status_")), uint32(in("hooked_allocation_"))
	k.Device, k.Allocator = uint32(in("device_")), uint32(in("allocator_"))
	k.Sharding = uint32(in("buffer_layout_"))
	k.UniqueId = uint32(last("unique_id_"))
	l.size, l.bufferType, l.bufferLayout = in("size_"), in("buffer_type_"), in("buffer_layout_")
	l.ownsData, l.address, l.pageSize = in("owns_data_"), in("address_"), in("page_size_")
	if l.layout.ImplArgs {
		k.DeallocHasImpl = 1
	}

	registers := l.layout.ShardRegisters
	k.ShardSize, k.ShardPage, k.ShardCount = uint32(registers[0]), uint32(registers[1]), uint32(registers[2])
	f := l.layout.AllocateImpl
	k.Allocate = bpf.KernelCode{Start: f.Addr, End: f.Addr + f.Size}
	k.ValidateCbs, k.ValidateDfbs = l.code("validate_cb"), l.code("validate_dfb")
	k.DeviceVtable, k.MeshVtable = l.layout.DeviceVtable, l.layout.MeshVtable
	k.ChipId = l.single("Device.id_")
	k.MeshStride = uint32(l.layout.MeshStride)
	k.MeshLocal = bpf.NoField
	if l.layout.MeshLocal >= 0 {
		k.MeshLocal = uint32(l.layout.MeshLocal)
	}
	k.MeshDevices = chain(fields["MeshDevice.devices"])
	for i, offset := range l.layout.Managers {
		k.Managers[i] = bpf.NoField
		if offset >= 0 {
			k.Managers[i] = uint32(offset)
		}
	}
	k.ManagerBanks = l.single("BankManager.num_banks_")
	k.ManagerAlignment = l.single("BankManager.alignment_bytes_")
	k.ManagerSize = chain(fields["BankManager.bank_size"])
	k.ListBase, k.ListAlignment = l.fromSize("FreeListOpt.offset_bytes_"), l.fromSize("FreeListOpt.alignment_")
	k.ProgramId = l.single("ProgramImpl.id")
	k.ProgramBinary = l.single("ProgramImpl.binary_data(begin)")
	k.ProgramImpl = l.optional("Program.impl")
	k.ProgramCbs = l.optional("ProgramImpl.circular_buffers_")
	k.ProgramCbsNeeded = l.optional("ProgramImpl.local_circular_buffer_allocation_needed_")
	k.ProgramDfbs = l.optional("ProgramImpl.dfb_allocators_")
	k.ProgramDfbsNeeded = l.optional("ProgramImpl.local_dataflow_buffer_allocation_needed_")
	k.ProgramText = chain(fields["ProgramImpl.kernel_text_size"])
	return nil
}

// single is the offset of a field that lies in the object itself. A missing one
// is 0, which is harmless: what is read there is not believed, because the probe
// that would read it is not placed.
func (l *heapLibrary) single(name string) uint32 {
	c := l.layout.Fields[name]
	if len(c) == 0 {
		return 0
	}
	return uint32(c[len(c)-1])
}

// optional is single for a field that is read whenever it is known.
func (l *heapLibrary) optional(name string) uint32 {
	if len(l.layout.Fields[name]) != 1 {
		return bpf.NoField
	}
	return l.single(name)
}

// fromSize is how far a field of a bank's free list is from its size, which the
// kernel finds first.
func (l *heapLibrary) fromSize(name string) int32 {
	size, c := l.layout.Fields["BankManager.bank_size"], l.layout.Fields[name]
	if len(size) == 0 || len(c) != 1 {
		return 0
	}
	return c[0] - size[len(size)-1]
}

// code is a probed function.
func (l *heapLibrary) code(name string) bpf.KernelCode {
	p := l.layout.Probes[name]
	return bpf.KernelCode{Start: p.Addr, End: p.Addr + p.Size}
}

func chain(c layout.Chain) (k bpf.KernelChain) {
	if len(c) > len(k.Offset) {
		return k
	}
	k.Length = uint32(len(c))
	for i, offset := range c {
		k.Offset[i] = uint32(offset)
	}
	return k
}

// inRelease is the release as it follows the library's path in a message.
func (l *heapLibrary) inRelease() string {
	if l.release == "" {
		return ""
	}
	return " (ttnn " + l.release + ")"
}

// bias is what addresses in the library's file are moved by in a process that maps its
// code there.
func (l *heapLibrary) bias(start, offset uint64) uint64 {
	for _, p := range l.layout.Probes {
		if p.Found {
			// all probes lie in code, which is mapped as a whole
			return start - offset + p.FileOffset - p.ProbeAddr
		}
	}
	return 0
}

// fill sets what the window of a Buffer tells, and reports whether the
// allocation was hooked by a graph capture: no memory is behind it then.
func (l *heapLibrary) fill(e *event.Event, window []uint8) (hooked bool) {
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(window[at:]) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(window[at:]) }
	e.SizeBytes, e.PageSizeBytes, e.Address = u64(l.size), u64(l.pageSize), u64(l.address)
	e.Region, e.Layout = event.Region(u32(l.bufferType)), event.Layout(u32(l.bufferLayout))
	return window[l.kernel.Hooked] != 0
}

// owns reports whether the Buffer's memory is its own: a view's is not.
func (l *heapLibrary) owns(window []uint8) bool { return window[l.ownsData] != 0 }
