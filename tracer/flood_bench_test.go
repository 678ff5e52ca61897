package tracer

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"ttmem/aggregate"
	"ttmem/bpf"
	"ttmem/tracer/event"
)

// BenchmarkFlood takes the records of a user who fills the ring buffer, as `ttmem attach` does:
// allocations of Buffers in the place of earlier ones, each with its implied free, from some call
// stacks or each from another one.
func BenchmarkFlood(b *testing.B) {
	for _, bench := range []struct {
		name           string
		stacks, frames int
	}{{"256 stacks", 256, 3}, {"new stacks", 0, 60}} {
		b.Run(bench.name, func(b *testing.B) {
			d := newTestDecoder()
			dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
			dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Flags: bpf.DeviceReady, Count: 1}
			dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 64, AlignmentBytes: 16}
			d.decode(raw(&dev))
			alloc := bpf.KernelBufferRecord{Object: 0x7f0000003000, Device: 0x1000, Allocator: 0x2000}
			alloc.H = bpf.KernelHeader{Tgid: 7, Tid: 7, Kind: bpf.RecordAlloc}
			alloc.Window[9], alloc.Window[16], alloc.Window[41] = 0x10, byte(event.L1), 4
			native := bpf.KernelNativeRecord{Frames: uint16(bench.frames)}
			native.H = bpf.KernelHeader{Tgid: 7, Tid: 7, Kind: bpf.RecordNativeStack}
			length := unsafe.Offsetof(native.Addresses) + uintptr(8*bench.frames)

			state, events, random := aggregate.New(), 0, uint64(88172645463325252)
			handle := func(e *event.Event) {
				state.Complete(e)
				state.Apply(e)
				events++
			}
			b.ReportAllocs()
			start := processorTime(b)
			for n := uint64(1); b.Loop(); n++ {
				id := n
				if bench.stacks > 0 {
					id = n%uint64(bench.stacks) + 1
				}
				if id == n {
					for i := range bench.frames {
						random ^= random << 13
						random ^= random >> 7
						random ^= random << 17
						native.Addresses[i] = 0x400000 + random%256
					}
					native.Id, native.H.TimeNs = id, 2000*n
					d.decode(raw(&native)[:length])
				}
				alloc.H.TimeNs, alloc.H.Stack.Native, alloc.UniqueId = 2000*n, id, n
				binary.LittleEndian.PutUint64(alloc.Window[32:], n%4096<<11)
				d.decode(raw(&alloc))
				if len(d.queue.Events) >= 1<<13 {
					d.queue.Release(2000*n, handle)
				}
			}
			b.ReportMetric(float64(processorTime(b)-start)/float64(max(events, 1)), "cpu-ns/event")
		})
	}
}
