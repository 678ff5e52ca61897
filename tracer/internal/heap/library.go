// Package heap reads objects of a tt-metal library from the memory of a process, using the
// library's layout: devices, buffers and programs that existed before an attach.
package heap

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// Library has the layout of a tt-metal library in the forms in which it is used: by the
// kernel side, for its records and for reading a process's memory.
type Library struct {
	Path    string
	Release string // "" if unknown
	Layout  *layout.Layout
	// Kernel is the layout for the kernel side.
	Kernel bpf.KernelLayout
}

// OpenLibrary derives a library's layout from its machine code. It calls recognized once the
// file is known to be one, before the expensive part. in opens directories of its path, to find
// its release.
func OpenLibrary(file io.ReaderAt, size int64, path string, in func(string) (*os.File, error), recognized func()) (*Library, error) {
	elf, err := symbolize.New(file, size)
	if err != nil {
		return nil, err
	}
	defer elf.Close()
	if err := layout.Recognize(elf); err != nil {
		return nil, err
	}
	recognized()
	derived, err := layout.Derive(elf)
	if err != nil {
		return nil, err
	}
	return NewLibrary(derived, path, layout.Release(in, path))
}

// NewLibrary returns a library with a layout. The error names a field without which buffers
// cannot be traced.
func NewLibrary(derived *layout.Layout, path, release string) (*Library, error) {
	l := &Library{Path: path, Release: release, Layout: derived}
	return l, l.plan()
}

// required are the fields without which buffers cannot be traced.
var required = []string{
	"device_", "size_", "buffer_type_", "owns_data_", "allocator_", "allocation_status_",
	"hooked_allocation_", "address_", "page_size_", "unique_id_", "buffer_layout_",
}

// vital are the probes without which the figures of buffers are wrong, not just less detailed.
var vital = []string{"buffer_allocated", "buffer_deallocate", "allocator_clear"}

// IsPartial reports whether the figures of the library's buffers are wrong, because a probe was not found.
func (l *Library) IsPartial() bool {
	return slices.ContainsFunc(l.Layout.Missing, func(m layout.Missing) bool { return slices.Contains(vital, m.Name) })
}

// plan computes the layout for the kernel side.
func (l *Library) plan() error {
	fields := l.Layout.Fields
	k := &l.Kernel
	k.BufferImpl = bpf.NoField
	var missing []string
	for _, name := range required {
		c := fields[name]
		if len(c) == 0 || len(c) > 2 {
			missing = append(missing, name)
		}
		if len(c) == 2 {
			k.BufferImpl = uint32(c[0])
		}
	}
	if missing != nil {
		return fmt.Errorf("too few of tt-metal's functions have names to find these fields of Buffer: %s", strings.Join(missing, ", "))
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
		return fmt.Errorf("the fields of Buffer lie %d bytes apart, more than %d", high-low, window)
	}
	in := func(name string) int { return last(name) - low }
	k.Window = uint32(low)
	k.Status, k.Hooked = uint32(in("allocation_status_")), uint32(in("hooked_allocation_"))
	k.Device, k.Allocator = uint32(in("device_")), uint32(in("allocator_"))
	k.Sharding = uint32(in("buffer_layout_"))
	k.UniqueId = uint32(last("unique_id_"))
	k.PerCore, k.PerCoreAddresses = l.inBuffer("per_core_allocation_"), l.inBuffer("per_core_addresses_")
	k.Type, k.Size, k.PageSize = uint32(in("buffer_type_")), uint32(in("size_")), uint32(in("page_size_"))
	k.Address, k.OwnsData = uint32(in("address_")), uint32(in("owns_data_"))
	if l.Layout.ImplArgs {
		k.DeallocHasImpl = 1
	}

	registers := l.Layout.ShardRegisters
	k.ShardSize, k.ShardPage, k.ShardCount = uint32(registers[0]), uint32(registers[1]), uint32(registers[2])
	f := l.Layout.AllocateImpl
	k.Allocate = bpf.KernelCode{Start: f.Addr, End: f.Addr + f.Size}
	k.ValidateCbs, k.ValidateDfbs = l.code("validate_cb"), l.code("validate_dfb")
	k.DeviceVtable, k.MeshVtable = l.Layout.DeviceVtable, l.Layout.MeshVtable
	k.ChipId = l.single("Device.id_")
	k.MeshStride = uint32(l.Layout.MeshStride)
	k.MeshLocal = bpf.NoField
	if l.Layout.MeshLocal >= 0 {
		k.MeshLocal = uint32(l.Layout.MeshLocal)
	}
	k.MeshDevices = chain(fields["MeshDevice.devices"])
	k.MeshImpl = l.optional("MeshDevice.pimpl_")
	for i, offset := range l.Layout.Managers {
		k.Managers[i] = bpf.NoField
		if offset >= 0 {
			k.Managers[i] = uint32(offset)
		}
	}
	k.ManagerBanks = l.single("BankManager.num_banks_")
	k.ManagerAlignment = l.single("BankManager.alignment_bytes_")
	k.ManagerSize = chain(fields["BankManager.bank_size"])
	k.ListBase, k.ListAlignment = l.fromSize("FreeListOpt.offset_bytes_"), l.fromSize("FreeListOpt.alignment_")
	k.ListShrunk = l.fromSize("FreeListOpt.shrink_size_")
	k.ProgramId = l.single("ProgramImpl.id")
	k.ProgramBinary = l.single("ProgramImpl.binary_data(begin)")
	k.ProgramImpl = l.optional("Program.impl")
	k.ProgramCbs = l.optional("ProgramImpl.circular_buffers_")
	k.ProgramCbsNeeded = l.optional("ProgramImpl.local_circular_buffer_allocation_needed_")
	k.ProgramDfbs = l.optional("ProgramImpl.dfb_allocators_")
	k.ProgramDfbsNeeded = l.optional("ProgramImpl.local_dataflow_buffer_allocation_needed_")
	k.AllocatorRegions = l.optional("CircularBufferAllocator.l1_regions")
	k.AllocatorBytes = l.optional("CircularBufferAllocator.next")
	k.ProgramText = chain(fields["ProgramImpl.kernel_text_size"])
	l.planUses()
	k.MeshBufferBacking, k.MeshBufferParts = l.optional("MeshBuffer.backing_buffer"), l.optional("MeshBuffer.buffers")
	if l.Layout.WritesShared {
		k.WriteHasShared = 1
	}
	k.QueuePrograms, k.FabricProgram = l.optional("Device.command_queue_programs_"), l.optional("Device.fabric_program_")
	return nil
}

// planUses sets where to read what a program uses: all of it, or nothing.
func (l *Library) planUses() {
	k := &l.Kernel
	k.ProgramKernels, k.ProgramDataflowBuffers = bpf.NoField, bpf.NoField
	if slices.ContainsFunc(l.Layout.Missing, func(m layout.Missing) bool { return slices.Contains(layout.UsesFields, m.Name) }) {
		return
	}
	k.ProgramKernels = l.optional("ProgramImpl.kernels_")
	k.KernelArguments, k.KernelCommonArguments = l.single("Kernel.runtime_args_data"), l.single("Kernel.common_runtime_args_data")
	k.KernelCores = l.single("Kernel.logical_cores")
	k.CbInTensor, k.CbTensorAddress = l.single("CircularBuffer.is_global"), l.single("CircularBuffer.global_address")
	k.ProgramDataflowBuffers = l.optional("ProgramImpl.dataflow_buffers_")
	k.DfbInTensor, k.DfbAddress = l.single("DataflowBuffer.borrows_memory"), l.single("DataflowBuffer.address")
}

// cannotFind is the error for something that reading needs.
func (l *Library) cannotFind(what string) error {
	return fmt.Errorf("%s%s: cannot find %s; `ttmem doctor %s` shows details", l.Path, l.InRelease(), what, l.Path)
}

// single is the offset of a field in the object itself. For a missing one it returns 0,
// which is harmless: the probe that would read it is not placed.
func (l *Library) single(name string) uint32 {
	c := l.Layout.Fields[name]
	if len(c) == 0 {
		return 0
	}
	return uint32(c[len(c)-1])
}

// optional is single for a field that is read whenever it is known.
func (l *Library) optional(name string) uint32 {
	if len(l.Layout.Fields[name]) != 1 {
		return bpf.NoField
	}
	return l.single(name)
}

// inBuffer is the offset of a field in the object with a Buffer's fields.
func (l *Library) inBuffer(name string) uint32 {
	c, size := l.Layout.Fields[name], l.Layout.Fields["size_"]
	if len(c) == 0 || len(c) != len(size) || !slices.Equal(c[:len(c)-1], size[:len(size)-1]) {
		return bpf.NoField
	}
	return uint32(c[len(c)-1])
}

// fromSize is the distance of a field of a bank's free list from its size, which the kernel
// finds first.
func (l *Library) fromSize(name string) int32 {
	size, c := l.Layout.Fields["BankManager.bank_size"], l.Layout.Fields[name]
	if len(size) == 0 || len(c) != 1 {
		return 0
	}
	return c[0] - size[len(size)-1]
}

// code is a probed function.
func (l *Library) code(name string) bpf.KernelCode {
	p := l.Layout.Probes[name]
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

// InRelease formats the release to follow the library's path in a message.
func (l *Library) InRelease() string {
	if l.Release == "" {
		return ""
	}
	return " (ttnn " + l.Release + ")"
}

// Bias is the difference between addresses in a process that maps the library's code at
// start and addresses in the file.
func (l *Library) Bias(start, offset uint64) uint64 {
	for _, p := range l.Layout.Probes {
		// all probes lie in code, which is mapped as a whole
		return start - offset + p.FileOffset - p.ProbeAddr
	}
	return 0
}

// Fill sets the fields from the window of a Buffer, and reports whether a graph capture
// hooked the allocation, so that it has no memory.
func (l *Library) Fill(e *event.Event, window []uint8) (hooked bool) {
	u64 := func(at uint32) uint64 { return binary.LittleEndian.Uint64(window[at:]) }
	u32 := func(at uint32) uint32 { return binary.LittleEndian.Uint32(window[at:]) }
	k := &l.Kernel
	e.SizeBytes, e.PageSizeBytes, e.Address = u64(k.Size), u64(k.PageSize), u64(k.Address)
	SetType(e, u32(k.Type), u32(k.Sharding))
	return window[k.Hooked] != 0
}

// SetType sets the type and the layout of a buffer: no unknown value becomes a known one.
func SetType(e *event.Event, bufferType, layout uint32) {
	e.Region, e.Layout = event.Region(min(bufferType, math.MaxUint8)), event.Layout(min(layout, math.MaxUint8))
}
