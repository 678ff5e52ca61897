package tracer

import (
	"encoding/binary"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/bpf"
	"ttmem/tracer/event"
)

// BenchmarkPair takes the records of a program's steady state: a buffer is allocated and freed again, from
// one of some call stacks. It reports the processor time of an event, which other programs disturb least.
func BenchmarkPair(b *testing.B) {
	const stacks = 64
	d := newTestDecoder()
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceReady, Count: 1}
	dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 64, AlignmentBytes: 16}
	d.decode(raw(&dev))
	native := bpf.KernelNativeRecord{Frames: 3}
	native.H = bpf.KernelHeader{Tgid: 7, Tid: 7, Kind: bpf.RecordNativeStack}
	for id := range uint64(stacks) {
		native.Id, native.Addresses[0] = id+1, 0x400000+id
		d.decode(raw(&native)[:unsafe.Offsetof(native.Addresses)+3*8])
	}
	alloc := bpf.KernelBufferRecord{Device: 0x1000, Allocator: 0x2000}
	alloc.H = bpf.KernelHeader{Tgid: 7, Tid: 7, Kind: bpf.RecordAlloc}
	alloc.Window[9], alloc.Window[16], alloc.Window[41] = 0x10, byte(event.L1), 4
	free := bpf.KernelFreeRecord{}
	free.H = bpf.KernelHeader{Tgid: 7, Tid: 7, Kind: bpf.RecordFree}
	free.SizeBytes, free.PageSizeBytes, free.Type = 4096, 1024, uint32(event.L1)

	state, events := aggregate.New(), 0
	handle := func(e *event.Event) {
		state.Complete(e)
		state.Apply(e)
		events++
	}
	b.ReportAllocs()
	start := processorTime(b)
	for n := uint64(1); b.Loop(); n++ {
		at := n % 64
		alloc.H.TimeNs, alloc.H.Stack.Native, alloc.UniqueId = 2000*n, n%stacks+1, n
		alloc.Object = 0x7f0000003000 + at<<8
		binary.LittleEndian.PutUint64(alloc.Window[32:], at<<11)
		d.decode(raw(&alloc))
		free.H.TimeNs, free.H.Stack.Native, free.Object = 2000*n+1000, n%stacks+1, alloc.Object
		d.decode(raw(&free))
		if n%1000 == 0 {
			d.queue.Release(2000*n, handle)
		}
	}
	b.ReportMetric(float64(processorTime(b)-start)/float64(max(events, 1)), "cpu-ns/event")
}

func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
