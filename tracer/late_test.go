package tracer

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

// foundBuffer is a Buffer as it is found in memory.
func foundBuffer(object, id, allocator uint64) lateBuffer {
	b := lateBuffer{object: object, id: id, allocator: allocator}
	b.event = event.Event{Region: event.L1, SizeBytes: 4096, PageSizeBytes: 1024, Banks: 64, BytesPerBank: 1024}
	return b
}

func foundDevice(address, allocator uint64, chip int) lateDevice {
	return lateDevice{address: address, chips: []int{chip}, allocator: allocator}
}

// TestLateAttach: what is found in a process's memory is told of once, and only what
// it still has by then.
func TestLateAttach(t *testing.T) {
	var events []event.Event
	d := newTestDecoder(&events, make(map[string]int))
	late := &lateAttach{freed: make(map[uint64]bool), cleared: make(map[uint64]bool)}
	d.late = func(int) *lateAttach { return late }

	header := func(kind uint8, at uint64) bpf.KernelHeader {
		return bpf.KernelHeader{TimeNs: at, Tgid: 7, Tid: 7, Kind: kind}
	}
	free := func(object, at uint64) {
		r := bpf.KernelFreeRecord{H: header(recordFree, at), Object: object}
		r.Window[8], r.Window[9], r.Window[16], r.Window[24] = 0, 0x10, byte(event.L1), 1
		d.decode(raw(&r))
	}
	alloc := func(object, id, at uint64) {
		r := bpf.KernelBufferRecord{H: header(recordAlloc, at), Object: object, UniqueId: id, Device: 0x1000, Allocator: 0x2000}
		r.Window[9], r.Window[16] = 0x10, byte(event.L1)
		d.decode(raw(&r))
	}
	// while memory is read: one that was there is freed, another one comes to lie
	// there; one is allocated; an allocator is given up
	free(0xa00, 1)
	alloc(0xa00, 21, 2)
	alloc(0xb00, 22, 3)
	free(0xc00, 4)
	cleared := bpf.KernelClearRecord{H: header(recordClear, 5), Allocator: 0x2900}
	d.decode(raw(&cleared))
	events = nil

	d.lateResult(&lateResult{
		pid: 7, library: d.libraries(0), late: late, readNs: 9,
		devices: []lateDevice{foundDevice(0x1000, 0x2000, 4), foundDevice(0x1900, 0x2900, 5)},
		buffers: []lateBuffer{
			foundBuffer(0xa00, 11, 0x2000), foundBuffer(0xb00, 22, 0x2000), foundBuffer(0xc00, 13, 0x2000),
			foundBuffer(0xd00, 14, 0x2000), foundBuffer(0xe00, 15, 0x2900),
		},
	})
	qt.Assert(t, qt.HasLen(events, 2))
	qt.Check(t, qt.Equals(events[0].Kind, event.DeviceOpen))
	qt.Check(t, qt.DeepEquals(events[0].Devices, []int{4}))
	found := events[1]
	qt.Check(t, qt.Equals(found.Kind, event.Alloc))
	qt.Check(t, qt.Equals(found.BufferID, 14))
	qt.Check(t, qt.DeepEquals(found.Devices, []int{4}))
	qt.Check(t, qt.IsTrue(found.BeforeAttach))
	qt.Check(t, qt.IsNil(found.Stack))
	qt.Check(t, qt.Equals(found.TimeNs, 9))

	// the kernel side meets the allocator later, and tells nothing new
	events = nil
	dev := bpf.KernelDeviceRecord{H: header(recordDevice, 10), Device: 0x1000, Allocator: 0x2000}
	dev.H.Count, dev.Chips[0] = 1, 4
	d.decode(raw(&dev))
	qt.Check(t, qt.HasLen(events, 0))

	// what was found is freed as everything else is
	free(0xd00, 11)
	qt.Assert(t, qt.HasLen(events, 1))
	qt.Check(t, qt.Equals(events[0].Kind, event.Free))
	qt.Check(t, qt.Equals(events[0].BufferID, 14))
	qt.Check(t, qt.IsTrue(events[0].BeforeAttach))
}

// TestLateAttachOfFork: a fork has a copy of its parent's Buffers, and none of its
// memory on a device.
func TestLateAttachOfFork(t *testing.T) {
	var events []event.Event
	d := newTestDecoder(&events, make(map[string]int))
	tell := func(pid, parent int, buffers ...lateBuffer) {
		d.lateResult(&lateResult{
			pid: pid, parent: parent, library: d.libraries(0), late: &lateAttach{}, readNs: 1,
			devices: []lateDevice{foundDevice(0x1000, 0x2000, 4)}, buffers: buffers,
		})
	}
	tell(7, 1, foundBuffer(0xa00, 11, 0x2000))
	tell(8, 7, foundBuffer(0xa00, 11, 0x2000))
	// this one has opened the device itself, where its parent's lies
	tell(9, 7, foundBuffer(0xa00, 12, 0x2000))
	var got []string
	for i := range events {
		if e := &events[i]; e.Kind != event.ProcessStart {
			got = append(got, fmt.Sprint(e.PID, " ", e.Kind, " ", e.BufferID))
		}
	}
	qt.Check(t, qt.DeepEquals(got, []string{"7 device_open 0", "7 alloc 11", "9 device_open 0", "9 alloc 12"}))
}
