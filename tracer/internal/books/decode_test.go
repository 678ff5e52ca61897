package books

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/heap/heaptest"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/quota"
)

// testProcess is a process with the id 7 and one library, whose Buffer has consecutive fields.
type testProcess struct {
	*Books
	library *libraries.Library
	events  []event.Event
	lost    map[string]int // by cause
	parent  *testProcess
}

func (p *testProcess) Board([]int) string  { return "" }
func (p *testProcess) Emit(e *event.Event) { p.events = append(p.events, *e) }
func (p *testProcess) Lost(cause string)   { p.lost[cause]++ }
func (p *testProcess) Read(uint64, func(context.Context, host.ReadableProcess) func()) bool {
	return true
}
func (p *testProcess) Parent() *Books {
	if p.parent == nil {
		return nil
	}
	return p.parent.Books
}

func newTestProcess() *testProcess {
	p := &testProcess{library: &libraries.Library{Library: heaptest.Library()}, lost: make(map[string]int)}
	p.library.AttachedNs.Store(1)
	p.Books = New(p, stack.NewProcess(stack.Options{}, new(stack.Shared)), quota.New(quota.Allocations, quota.AllAllocations))
	return p
}

func (p *testProcess) decode(raw []byte) {
	h := bpf.As[bpf.KernelHeader](raw)
	if !p.Decode(h.Kind, &event.Event{TimeNs: h.TimeNs, PID: int(h.Tgid), TID: int(h.Tid)}, p.library, raw) {
		p.Lost("record not understood")
	}
}

func raw[T any](t *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t))
}

func TestDecodeAllocation(t *testing.T) {
	d := newTestProcess()

	dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceMesh | bpf.DeviceReady, Count: 3}
	dev.Chips[0], dev.Chips[1], dev.Chips[2] = 4, -1, 2 // the second belongs to another host
	dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 64, AlignmentBytes: 16}
	d.decode(raw(&dev))

	buffer := bpf.KernelBufferRecord{Object: 0x3000, UniqueId: 9, Device: 0x1000, Allocator: 0x2000}
	buffer.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordAlloc}
	buffer.Window[8], buffer.Window[9] = 0, 0x10 // 4096 bytes
	buffer.Window[16], buffer.Window[41] = byte(event.L1), 4
	d.decode(raw(&buffer))

	qt.Assert(t, qt.HasLen(d.events, 2))
	qt.Check(t, qt.Equals(d.events[0].Kind, event.DeviceOpen))
	alloc := d.events[1]
	qt.Check(t, qt.Equals(alloc.Kind, event.Alloc))
	qt.Check(t, qt.DeepEquals(alloc.Devices, []int{4, 2}))
	qt.Check(t, qt.Equals(alloc.SizeBytes, 4096))
	qt.Check(t, qt.Equals(alloc.PageSizeBytes, 1024))
	qt.Check(t, qt.Equals(alloc.Banks, 64))
	qt.Check(t, qt.Equals(alloc.BytesPerBank, 1024)) // four pages on 64 banks
	qt.Check(t, qt.HasLen(d.lost, 0))
}

// An allocation from before all probes were in place is read from memory; it is a loss if that never happens.
func TestEarlyAllocations(t *testing.T) {
	for _, read := range []bool{false, true} {
		d := newTestProcess()
		d.library.AttachedNs.Store(3)
		buffer := bpf.KernelBufferRecord{Object: 0x3000, UniqueId: 9, Device: 0x1000, Allocator: 0x2000}
		buffer.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordAlloc}
		buffer.Window[8], buffer.Window[9] = 0, 0x10
		buffer.Window[16], buffer.Window[41] = byte(event.L1), 4
		d.decode(raw(&buffer))
		buffer.Window[57] = 1 // hooked: it takes no memory
		d.decode(raw(&buffer))
		qt.Check(t, qt.HasLen(d.events, 0))
		if read {
			d.Follow()
			d.AddExisting(event.Event{TimeNs: 4, PID: 7}, &Reading{})
		}
		d.End()
		want := map[string]int{earlyUnread: 1}
		if read {
			want = map[string]int{}
		}
		qt.Check(t, qt.DeepEquals(d.lost, want))
	}
}

// A process that mapped its library before the probes were in place, and of which no device was seen, has lost
// allocations, unless its memory says that it made none.
func TestMissedAllocations(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*testProcess)
		lost map[string]int
	}{
		"ended before its memory was read": {func(*testProcess) {}, map[string]int{earlyUnread: 1}},
		"a closed device":                  {func(d *testProcess) { d.AddExisting(event.Event{TimeNs: 4}, &Reading{}) }, map[string]int{earlyUnread: 1}},
		"made none":                        {func(d *testProcess) { d.AddExisting(event.Event{TimeNs: 4}, &Reading{MadeNone: true}) }, map[string]int{}},
		"a device":                         {func(d *testProcess) { d.devices[0x1000] = &device{} }, map[string]int{}},
	} {
		d := newTestProcess()
		d.Missed = true
		d.Follow()
		c.do(d)
		d.EndReads(ProgramUnread)
		d.End()
		qt.Check(t, qt.DeepEquals(d.lost, c.lost), qt.Commentf("%s", name))
	}
}

// A program that runs is an event of the chips of its device, also of one that is not known.
func TestDecodeProgramRun(t *testing.T) {
	d := newTestProcess()
	d.devices[0x1000] = &device{chips: []int{4, 2}}
	run := bpf.KernelProgramRun{ProgramId: 9, Device: 0x1000}
	run.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordProgramRun}
	d.decode(raw(&run))
	run.Device = 0x2000
	d.decode(raw(&run))
	var runs []event.Event
	for _, e := range d.events {
		if e.Kind == event.ProgramRun {
			runs = append(runs, e)
		}
	}
	qt.Assert(t, qt.HasLen(runs, 2))
	qt.Check(t, qt.DeepEquals([]uint64{runs[0].ProgramID, uint64(runs[0].TID)}, []uint64{9, 8}))
	qt.Check(t, qt.DeepEquals(runs[0].Devices, []int{4, 2}))
	qt.Check(t, qt.HasLen(runs[1].Devices, 0))
}

// A run has what its program uses, in order and each once, if that was read. Runs that use the same share it.
func TestDecodeUses(t *testing.T) {
	d := newTestProcess()
	d.devices[0x1000] = &device{chips: []int{0}}
	run := bpf.KernelProgramRunRecord{Run: bpf.KernelProgramRun{ProgramId: 9, Device: 0x1000}}
	run.Uses[0], run.Uses[1], run.Uses[2], run.Uses[3] = 0x30000, 0x20000, 0x30000, 0x30000|bpf.UseStatic
	decode := func(flags uint8, count uint32) *event.Uses {
		run.Run.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordProgramRun, Flags: flags, Count: count}
		d.events = nil
		d.decode(raw(&run)[:unsafe.Offsetof(run.Uses)+4*uintptr(min(int(count), len(run.Uses)))])
		qt.Assert(t, qt.HasLen(d.events, 1))
		return d.events[0].Uses
	}
	qt.Check(t, qt.IsNil(decode(0, 0)))
	qt.Check(t, qt.DeepEquals(decode(bpf.UsesRead, 0), &event.Uses{}))
	two := decode(bpf.UsesRead, 3)
	qt.Check(t, qt.DeepEquals(two, &event.Uses{Arguments: []uint32{0x20000, 0x30000}}))
	qt.Check(t, qt.Equals(decode(bpf.UsesRead, 3), two))
	qt.Check(t, qt.DeepEquals(decode(bpf.UsesRead|bpf.UsesTooMany, 3), &event.Uses{Arguments: []uint32{0x20000, 0x30000}, Partial: true}))
	qt.Check(t, qt.DeepEquals(decode(bpf.UsesRead|bpf.UsesUnreadable, 4), &event.Uses{Arguments: []uint32{0x20000, 0x30000}, Statics: []uint32{0x30000}, Partial: true}))
	qt.Check(t, qt.HasLen(decode(bpf.UsesRead, 1<<20).Statics, 1)) // a count beyond the record
	qt.Check(t, qt.HasLen(d.lost, 0))
}

// A transfer names the buffer that is known at that address, and its chips. A view has an address on the device, and perhaps
// that of another Buffer.
func TestDecodeTransfers(t *testing.T) {
	d := newTestProcess()
	d.allocators[0x2000] = &allocator{device: &device{chips: []int{4, 2}}}
	d.addLive(0x3000, Buffer{ID: 9, allocator: 0x2000, place: place{0x18000, event.L1}})
	d.addLive(0x5000, Buffer{ID: 10, allocator: 0x2000, place: place{0x18000, event.DRAM}})
	for _, flags := range []uint8{0, bpf.TransferRead} {
		for _, r := range []bpf.KernelTransferRecord{
			{Object: 0x3000}, {Object: 0x4000}, {Object: 0x3000, Address: 0x18000, Type: uint32(event.L1)},
			{Object: 0x4000, Address: 0x18000, Type: uint32(event.L1)}, {Object: 0x5000, Address: 0x18000, Type: uint32(event.L1)},
			{Object: 0x3000, Address: 0x19000, Type: uint32(event.L1)}, {Object: 0x3000, Address: 0x18000, Type: 1 << 20},
		} {
			r.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordTransfer, Flags: flags}
			d.decode(raw(&r))
		}
	}
	qt.Assert(t, qt.HasLen(d.events, 2*4))
	for i, e := range d.events {
		qt.Check(t, qt.Equals(e.Kind, []event.Kind{event.BufferWrite, event.BufferRead}[i/4]))
		qt.Check(t, qt.DeepEquals([]uint64{e.BufferID, e.Object, uint64(e.Region)}, []uint64{9, 0x3000, uint64(event.L1)}))
		qt.Check(t, qt.DeepEquals(e.Devices, []int{4, 2}))
	}
	qt.Check(t, qt.HasLen(d.lost, 0))
}

// The transfer of a view names the newest of the buffers that are live at its place, whether they were allocated before
// the first such transfer or after it.
func TestDecodeTransfersOfViews(t *testing.T) {
	d := newTestProcess()
	at := place{0x18000, event.L1}
	viewOf := func() (id uint64) {
		d.events = nil
		r := bpf.KernelTransferRecord{Object: 0x9000, Address: at.address, Type: uint32(at.region)}
		r.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordTransfer}
		if d.decode(raw(&r)); len(d.events) > 0 {
			id = d.events[0].BufferID
		}
		return id
	}
	for id := range uint64(9) {
		d.addLive(0x3000+id<<8, Buffer{ID: id + 1, place: at})
	}
	qt.Check(t, qt.Equals(viewOf(), 9))
	d.addLive(0x5000, Buffer{ID: 10, place: at})
	qt.Check(t, qt.Equals(viewOf(), 10))
	d.dropLive(0x5000, d.Live[0x5000])
	qt.Check(t, qt.Equals(viewOf(), 0))
	qt.Check(t, qt.HasLen(d.lost, 0))
}

// A step of a captured trace is an event of the chips of its mesh, of which the record has the
// MeshDeviceImpl or, in older libraries, the MeshDevice.
func TestDecodeTraceSteps(t *testing.T) {
	d := newTestProcess()
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Impl: 0x5000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceMesh, Count: 2}
	dev.Chips[0], dev.Chips[1] = 4, 2
	d.decode(raw(&dev))
	d.events = nil
	step := bpf.KernelTraceRecord{Id: 9}
	step.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordTrace}
	for _, mesh := range []uint64{0x5000, 0x1000} {
		for _, what := range []uint8{bpf.TraceBegin, bpf.TraceEnd, bpf.TraceReplay, bpf.TraceRelease} {
			step.Device, step.H.StaticKind = mesh, what
			d.decode(raw(&step))
		}
	}
	qt.Assert(t, qt.HasLen(d.events, 8))
	for i, e := range d.events {
		want := []event.Kind{event.TraceBegin, event.TraceEnd, event.TraceReplay, event.TraceRelease}[i%4]
		qt.Check(t, qt.Equals(e.Kind, want))
		qt.Check(t, qt.DeepEquals(e.Devices, []int{4, 2}))
		qt.Check(t, qt.DeepEquals([]uint64{e.ProgramID, uint64(e.TID)}, []uint64{9, 8}))
	}
	qt.Check(t, qt.HasLen(d.lost, 0))
	for _, what := range []uint8{0, bpf.TraceRelease + 1} {
		step.H.StaticKind = what
		d.decode(raw(&step))
	}
	qt.Check(t, qt.HasLen(d.events, 8))
	qt.Check(t, qt.HasLen(d.lost, 1))
}

// A sub-device manager takes the beginning of each bank of L1 from the allocator, and gives it back. The
// next allocation reports the same banks, or what they really are.
func TestDecodeBanksThatChange(t *testing.T) {
	d := newTestProcess()
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceMesh | bpf.DeviceReady, Count: 1}
	dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1000, Base: 100, Banks: 64}
	local := dev
	// without DRAM, its size there is what is left of 0 behind a reserved part
	local.Allocator, local.Banks[event.DRAM] = 0x3000, bpf.KernelBankInfo{BytesPerBank: 1<<64 - 32, Base: 32, Banks: 12}
	d.decode(raw(&dev))
	d.decode(raw(&local))
	qt.Assert(t, qt.HasLen(d.events, 2))
	qt.Check(t, qt.Equals(d.events[1].Open.Capacities[event.DRAM], event.Capacity{}))
	change := func(flags uint8, region event.Region, bytes uint64) {
		r := bpf.KernelBanksRecord{Allocator: 0x2000, Bytes: bytes, Type: uint32(region)}
		r.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordBanks, Flags: flags}
		d.decode(raw(&r))
	}
	check := func(list ...event.Capacity) {
		t.Helper()
		qt.Assert(t, qt.HasLen(d.events, len(list)))
		for i, e := range d.events {
			qt.Check(t, qt.Equals(e.Kind, event.DeviceOpen))
			qt.Check(t, qt.Equals(e.Cause, "sub-device manager"))
			qt.Check(t, qt.Equals(e.Allocator, 0x2000))
			qt.Check(t, qt.Equals(e.Open.Capacities[event.L1], list[i]))
		}
		d.events = nil
	}
	whole, less := event.Capacity{Banks: 64, BytesPerBank: 1000, Base: 100}, event.Capacity{Banks: 64, BytesPerBank: 800, Base: 300}
	d.events = nil
	change(0, event.L1, 0) // it has its first size
	change(bpf.BanksShrink, event.L1, 0)
	check()
	change(bpf.BanksShrink, event.L1, 200)
	check(less)
	change(bpf.BanksShrink, event.L1, 800) // the library refuses it
	check()
	dev.H.Flags = bpf.DeviceMesh
	dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 800, Base: 300, Banks: 64, ShrunkBytes: 200}
	d.decode(raw(&dev)) // the next allocation
	check()
	change(bpf.BanksShrink, event.L1, 50)
	check(event.Capacity{Banks: 64, BytesPerBank: 750, Base: 350})
	d.decode(raw(&dev)) // the library refused it
	check(less)
	change(0, event.L1, 0)
	check(whole)
}

// TestScratchpads: the kernel side reports whole regions of a program. What its dataflow buffers
// leave of them are scratchpads.
func TestScratchpads(t *testing.T) {
	d := newTestProcess()
	d.devices[0x1000] = &device{chips: []int{4}}
	here, there := bpf.KernelCoreRange{X1: 7, Y1: 7}, bpf.KernelCoreRange{X0: 8, X1: 9, Y1: 7}
	place := func(program uint64, kind uint8, cores bpf.KernelCoreRange, begin, end uint64) {
		r := bpf.KernelCbRecord{ProgramId: program, Device: 0x1000, Address: begin, SizeBytes: end - begin}
		r.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordCB, StaticKind: kind, Count: 1}
		r.Ranges[0] = cores
		d.decode(raw(&r))
	}
	place(1, bpf.StaticDataflowBuffer, here, 100, 120)
	place(1, bpf.StaticDataflowBuffer, here, 120, 150)
	place(1, bpf.StaticDataflowBuffer, there, 100, 130)
	place(2, bpf.StaticDataflowBuffer, here, 100, 200)
	d.events = nil
	for range 2 { // the second time, all is known
		place(1, bpf.StaticScratchpad, here, 100, 160)
		place(1, bpf.StaticScratchpad, here, 176, 192)
		place(1, bpf.StaticScratchpad, there, 100, 130)
		place(3, bpf.StaticScratchpad, here, 100, 160)
	}
	type scratchpad struct{ program, begin, end uint64 }
	var list []scratchpad
	for _, e := range d.events {
		qt.Check(t, qt.Equals(e.StaticKind, event.Scratchpad))
		list = append(list, scratchpad{e.ProgramID, e.Address, e.Address + e.SizeBytes})
	}
	qt.Check(t, qt.IsTrue(slices.Equal(list, []scratchpad{{1, 150, 160}, {1, 176, 192}, {3, 100, 160}})), qt.Commentf("%v", list))
	end := bpf.KernelProgramEndRecord{ProgramId: 1}
	end.H = bpf.KernelHeader{TimeNs: 3, Tgid: 7, Tid: 8, Kind: bpf.RecordProgramEnd, Flags: bpf.ProgramDFBs}
	d.decode(raw(&end))
	d.events = nil
	place(1, bpf.StaticScratchpad, here, 100, 160)
	qt.Assert(t, qt.HasLen(d.events, 1))
	qt.Check(t, qt.Equals(d.events[0].SizeBytes, 60), qt.Commentf("it is placed anew"))
}

// TestUnknownBufferTypesAreCounted: a buffer whose type this version does not know is a loss of
// its process, and never one of a known type.
func TestUnknownBufferTypesAreCounted(t *testing.T) {
	d := newTestProcess()
	for _, kind := range []uint32{5, 77, 256, 1<<32 - 1} {
		buffer := bpf.KernelBufferRecord{Object: 0x3000, UniqueId: 9, Device: 0x1000, Allocator: 0x2000}
		buffer.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordAlloc}
		buffer.Window[8] = 64 // bytes
		binary.LittleEndian.PutUint32(buffer.Window[16:], kind)
		d.decode(raw(&buffer))
	}
	qt.Check(t, qt.HasLen(d.events, 0))
	qt.Check(t, qt.DeepEquals(d.lost, map[string]int{"buffer of an unknown type": 4}))
}

// The cores of a buffer on single cores come in any order; its address is known if it is the
// same on all.
func TestDecodeAllocationOnSingleCores(t *testing.T) {
	d := newTestProcess()
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceReady, Count: 1}
	dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 64, AlignmentBytes: 16}
	d.decode(raw(&dev))

	alloc := func(id uint64, cores ...bpf.KernelCoreAddress) event.Event {
		r := bpf.KernelPerCoreRecord{Buffer: bpf.KernelBufferRecord{Object: 0x3000 + id, UniqueId: id, Device: 0x1000, Allocator: 0x2000}}
		r.Buffer.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordAllocPerCore, Count: uint32(copy(r.Cores[:], cores))}
		r.Buffer.Window[9], r.Buffer.Window[16], r.Buffer.Window[20] = 0x10, byte(event.L1), byte(event.HeightSharded)
		r.Buffer.Request = bpf.KernelShardRequest{SizeBytes: 1024, PageSizeBytes: 1024, Shards: 1}
		d.decode(raw(&r))
		return d.events[len(d.events)-1]
	}
	same := alloc(1, bpf.KernelCoreAddress{X: 1, Y: 1, Address: 0x9000}, bpf.KernelCoreAddress{X: 2, Address: 0x9000},
		bpf.KernelCoreAddress{X: 1, Address: 0x9000})
	qt.Check(t, qt.IsTrue(same.PerCore))
	qt.Check(t, qt.DeepEquals(same.Cores, []event.CoreRange{{X0: 1, X1: 2}, {X0: 1, Y0: 1, X1: 1, Y1: 1}}))
	qt.Check(t, qt.Equals(same.Address, 0x9000))
	qt.Check(t, qt.Equals(same.BytesPerBank, 1024))
	qt.Check(t, qt.Equals(same.Banks, 3))

	differs := alloc(2, bpf.KernelCoreAddress{Address: 0x9000}, bpf.KernelCoreAddress{X: 1, Address: 0x8000})
	qt.Check(t, qt.DeepEquals(differs.Cores, []event.CoreRange{{X1: 1}}))
	qt.Check(t, qt.Equals(differs.Address, 0))

	unknown := alloc(3)
	qt.Check(t, qt.IsTrue(unknown.PerCore))
	qt.Check(t, qt.IsNil(unknown.Cores))
	qt.Check(t, qt.Equals(unknown.Banks, 0))
	qt.Check(t, qt.HasLen(d.lost, 0))
}

func TestFailureIgnoresGarbageOnStack(t *testing.T) {
	d := newTestProcess()
	failed := bpf.KernelFailedRecord{}
	failed.Buffers[0] = bpf.KernelFailedBuffer{Object: 0x3000, UniqueId: 9}
	failed.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordFailed}
	for i := range failed.Buffers[0].Window {
		failed.Buffers[0].Window[i] = 0xc4
	}
	message := "TT_FATAL: Out of Memory: Not enough space to allocate 131072 B L1_SMALL buffer across 4 banks, where each bank needs to store 32768 B"
	copy(failed.Message[:], message)
	d.decode(raw(&failed))
	d.ThrownSince(1e9)
	e := d.events[len(d.events)-1]
	qt.Check(t, qt.Equals(e.Kind, event.AllocFailed))
	qt.Check(t, qt.Equals(e.Region, event.L1Small))
	qt.Check(t, qt.Equals(e.SizeBytes, 131072))
	qt.Check(t, qt.Equals(e.Banks, 4))
	qt.Check(t, qt.Equals(e.BytesPerBank, 32768))
	qt.Check(t, qt.Equals(e.BufferID, 0))
}

func TestFailureTakesMatchingBufferFromStack(t *testing.T) {
	d := newTestProcess()
	d.decode(raw(&bpf.KernelDeviceRecord{
		H: bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 8, Kind: bpf.RecordDevice, Count: 1}, Device: 0x1000,
	}))
	failed := bpf.KernelFailedRecord{}
	failed.H = bpf.KernelHeader{TimeNs: 2, Tgid: 7, Tid: 8, Kind: bpf.RecordFailed}
	// one of another size, left by an earlier call; then the same size, from an earlier try
	// and from this one
	for i, b := range []struct{ id, size uint64 }{{11, 4096}, {12, 131072}, {13, 131072}} {
		failed.Buffers[i] = bpf.KernelFailedBuffer{Object: 0x3000 + b.id, UniqueId: b.id}
		w := failed.Buffers[i].Window[:]
		binary.LittleEndian.PutUint64(w[0:], 0x1000)
		binary.LittleEndian.PutUint64(w[8:], b.size)
		w[16] = byte(event.L1Small)
		w[24] = 1
	}
	copy(failed.Message[:], "Out of Memory: Not enough space to allocate 131072 B L1_SMALL buffer across 4 banks, where each bank needs to store 32768 B")
	d.decode(raw(&failed))
	d.ThrownSince(1e9)
	e := d.events[len(d.events)-1]
	qt.Check(t, qt.Equals(e.Kind, event.AllocFailed))
	qt.Check(t, qt.Equals(e.BufferID, 13))
	qt.Check(t, qt.DeepEquals(e.Devices, []int{0}))
}

// TestDecodeBoundsDevices: a process cannot make the tracer keep more chips, devices and
// allocators than a host can have.
func TestDecodeBoundsDevices(t *testing.T) {
	report := func(p *testProcess, device, allocator uint64, chips ...int32) {
		r := bpf.KernelDeviceRecord{Device: device, Allocator: allocator}
		r.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Count: uint32(len(chips))}
		copy(r.Chips[:], chips)
		p.decode(raw(&r))
	}
	p := newTestProcess()
	report(p, 1, 1, 3, heap.MaxChips, heap.MaxChips-1, 1<<31-1)
	qt.Check(t, qt.DeepEquals(p.events[0].Devices, []int{3, heap.MaxChips - 1}))
	qt.Check(t, qt.DeepEquals(p.lost, map[string]int{"id of a chip not plausible": 2}))

	devices, allocators := newTestProcess(), newTestProcess()
	for i := range uint64(maxDevices + 5) {
		report(devices, 1+i, 0, 0)
		report(allocators, 1, 1+i, 0)
	}
	qt.Check(t, qt.HasLen(devices.devices, maxDevices))
	qt.Check(t, qt.DeepEquals(devices.lost, map[string]int{"too many devices": 5}))
	qt.Check(t, qt.HasLen(allocators.allocators, heap.MaxAllocators))
	qt.Check(t, qt.DeepEquals(allocators.lost, map[string]int{"too many allocators": maxDevices + 5 - heap.MaxAllocators}))

	// what is allocated by the others is not kept either
	before := len(allocators.events)
	r := bufferRecord(2, 0x3000, 5)
	r.Allocator = 1 << 40
	allocators.decode(raw(r))
	qt.Check(t, qt.HasLen(allocators.events, before))
	qt.Check(t, qt.DeepEquals(allocators.lost, map[string]int{"too many allocators": maxDevices + 6 - heap.MaxAllocators}))
}

func bufferRecord(ns uint64, object, id uint64) *bpf.KernelBufferRecord {
	r := &bpf.KernelBufferRecord{Object: object, UniqueId: id, Device: 0x1000, Allocator: 0x2000}
	r.H = bpf.KernelHeader{TimeNs: ns, Tgid: 7, Tid: 7, Kind: bpf.RecordAlloc}
	r.Window[9], r.Window[41] = 4, 4 // 1024 bytes, in pages of as many
	return r
}

// TestBufferInThePlaceOfAnother: a Buffer at the address of a live one means that the free of
// that one was lost.
func TestBufferInThePlaceOfAnother(t *testing.T) {
	p := newTestProcess()
	p.decode(raw(bufferRecord(2e9, 1, 1)))
	p.decode(raw(bufferRecord(3e9, 1, 2)))
	qt.Assert(t, qt.HasLen(p.events, 3))
	qt.Check(t, qt.Equals(p.events[1].Kind, event.Free))
	qt.Check(t, qt.Equals(p.events[1].BufferID, 1))
	qt.Check(t, qt.IsTrue(p.events[1].Reread))
	qt.Check(t, qt.Equals(p.events[2].BufferID, 2))
}

// TestForksInheritBuffers: what a fork has in its memory from before its first own buffer is its parent's,
// also if that has ended or freed it.
func TestForksInheritBuffers(t *testing.T) {
	p := newTestProcess()
	p.Forked = true
	inherits := func(id uint64) bool { return p.inherited(&heap.Buffer{Object: id, ID: id}) }
	qt.Check(t, qt.IsTrue(inherits(5)))
	qt.Check(t, qt.IsTrue(p.InheritsAll()), qt.Commentf("its first own buffer may be lost"))
	p.decode(raw(bufferRecord(2, 0x3000, 5)))
	p.decode(raw(bufferRecord(3, 0x4000, 6)))
	qt.Check(t, qt.IsTrue(inherits(4)))
	qt.Check(t, qt.IsFalse(inherits(5)))
	qt.Check(t, qt.IsFalse(inherits(6)))

	p.parent = newTestProcess()
	p.parent.decode(raw(bufferRecord(1, 5, 5)))
	qt.Check(t, qt.IsTrue(inherits(5)), qt.Commentf("its parent has it"))
}

// TestChangesAreFollowed: what was read of Buffers and allocators that events are about meanwhile may be
// older, and is not reported.
func TestChangesAreFollowed(t *testing.T) {
	p := newTestProcess()
	p.Follow()
	p.decode(raw(bufferRecord(2, 0x10, 1)))
	for _, object := range []uint64{0x10, 0x20} {
		p.decode(raw(&bpf.KernelFreeRecord{Object: object, H: bpf.KernelHeader{TimeNs: 3, Tgid: 7, Kind: bpf.RecordFree}}))
	}
	p.decode(raw(&bpf.KernelClearRecord{Allocator: 0x3000, H: bpf.KernelHeader{TimeNs: 4, Tgid: 7, Kind: bpf.RecordClear}}))
	p.events = nil
	read := []heap.Buffer{{Object: 0x10, ID: 1, Allocator: 0x2000}, {Object: 0x20, ID: 2, Allocator: 0x2000}, {Object: 0x30, ID: 3, Allocator: 0x3000}, {Object: 0x40, ID: 4, Allocator: 0x2000}}
	p.AddExisting(event.Event{TimeNs: 5, PID: 7}, &Reading{Devices: []heap.Device{{Address: 1, Allocator: 0x2000}, {Address: 2, Allocator: 0x3000}}, Buffers: read})
	qt.Assert(t, qt.HasLen(p.events, 2))
	qt.Check(t, qt.Equals(p.events[0].Kind, event.DeviceOpen))
	qt.Check(t, qt.Equals(p.events[1].BufferID, 4))
	qt.Check(t, qt.IsTrue(p.events[1].BeforeAttach))
}
