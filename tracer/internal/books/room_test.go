package books

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// TestLiveBuffersAndProgramsHaveABound: those beyond it are losses of their process, and what ends makes
// room.
func TestLiveBuffersAndProgramsHaveABound(t *testing.T) {
	d := newTestProcess()
	d.room = quota.New(5*(1+quota.Program), 500)
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceMesh | bpf.DeviceReady, Count: 1}
	d.decode(raw(&dev))
	d.events = nil
	now := uint64(2)
	alloc := func(object uint64) {
		r := bpf.KernelBufferRecord{Object: object, UniqueId: object, Device: 0x1000, Allocator: 0x2000}
		now++
		r.H = bpf.KernelHeader{TimeNs: now, Tgid: 7, Tid: 7, Kind: bpf.RecordAlloc}
		r.Window[8], r.Window[9] = 0, 0x10
		r.Window[16] = byte(event.L1)
		d.decode(raw(&r))
	}
	program := func(id uint64) {
		r := bpf.KernelCbRecord{ProgramId: id, SizeBytes: 8, Device: 0x1000}
		now++
		r.H = bpf.KernelHeader{TimeNs: now, Tgid: 7, Tid: 7, Kind: bpf.RecordCB, Count: 1}
		d.decode(raw(&r))
	}
	count := func() (n int) {
		for i := range d.events {
			if k := d.events[i].Kind; k == event.Alloc || k == event.CBAlloc {
				n++
			}
		}
		return n
	}
	for i := range uint64(20) { // a pointer that slides over one pattern: each is another Buffer
		alloc(0x10000 + 8*i)
		program(100 + i)
		program(100 + i)
	}
	qt.Check(t, qt.Equals(len(d.Live)+len(d.programs), 10))
	qt.Check(t, qt.Equals(count(), len(d.Live)+2*len(d.programs)))
	qt.Check(t, qt.Equals(d.lost[quota.Beyond], 15+30))

	free := bpf.KernelFreeRecord{Object: 0x10000}
	free.H = bpf.KernelHeader{TimeNs: now + 1, Tgid: 7, Tid: 7, Kind: bpf.RecordFree}
	d.decode(raw(&free))
	before := count()
	alloc(0x90000)
	qt.Check(t, qt.Equals(count(), before+1))
	d.End()
	qt.Check(t, qt.Equals(d.room.Of(d.share.User()), 0))
}
