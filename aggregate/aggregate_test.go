package aggregate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

const (
	wormholeDRAM = 1072693184
	wormholeL1   = 1393312
)

// wormhole is a process that opens N150s.
func wormhole(time uint64, pid int, allocator uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.DeviceOpen, PID: pid, Allocator: allocator, Devices: devices,
		Open: &event.Open{Board: "n150", Arch: "wormhole_b0",
			Capacities: [event.BankedRegions]event.Capacity{
				event.DRAM: {Banks: 12, BytesPerBank: wormholeDRAM},
				event.L1:   {Banks: 64, BytesPerBank: wormholeL1},
			}},
	}
}

// tensor is a buffer of 524,288 bytes, 45,056 on each of 12 banks.
func tensor(time uint64, pid int, id uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.Alloc, PID: pid, BufferID: id, Devices: devices,
		Region: event.DRAM, SizeBytes: 524288, PageSizeBytes: 2048, BytesPerBank: 45056, Banks: 12,
	}
}

func free(time uint64, pid int, id uint64) event.Event {
	return event.Event{TimeNs: time, Kind: event.Free, PID: pid, BufferID: id, Reason: event.ReasonExplicit}
}

// cb is a circular buffer on the cores from (0,0) to (x,y).
func cb(time uint64, pid int, program, address, size uint64, x, y uint16, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.CBAlloc, PID: pid, ProgramID: program, Devices: devices,
		Region: event.CB, Address: address, SizeBytes: size,
		Cores: []event.CoreRange{{X0: 0, Y0: 0, X1: x, Y1: y}}, StaticKind: event.CircularBuffer,
	}
}

func endCBs(time uint64, pid int, program uint64, devices ...int) event.Event {
	return event.Event{TimeNs: time, Kind: event.CBFree, PID: pid, ProgramID: program, Devices: devices}
}

func kernels(time uint64, pid int, program, dram, text uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.KernelLoad, PID: pid, ProgramID: program, Devices: devices,
		Region: event.Kernel, SizeBytes: dram, BytesPerBank: text,
	}
}

func after(events ...event.Event) *aggregate.State {
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	return s
}

func device(t *testing.T, s *aggregate.State, id int) memory.Device {
	t.Helper()
	for _, d := range s.Snapshot().Devices {
		if d.ID == id {
			return d
		}
	}
	t.Fatalf("no device %d", id)
	return memory.Device{}
}

func TestABufferCountsAsTheAllocatorCounts(t *testing.T) {
	dram := device(t, after(wormhole(1, 7, 1, 0), tensor(5, 7, 1, 0)), 0).Regions.DRAM
	qt.Check(t, qt.DeepEquals(dram, memory.Region{
		Buffers: 1, SizeBytes: 524288, BytesPerBank: 45056, AllocatedBytes: 540672,
		Banks: 12, CapacityBytes: 12 * wormholeDRAM, CapacityBytesPerBank: wormholeDRAM,
		PeakBytes: 540672, PeakTimeNs: 5, PeakCapacityBytes: 12 * wormholeDRAM,
	}))
}

func TestABufferOnAMeshCountsOnEachChip(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0, 1, 2), tensor(2, 7, 1, 0, 1, 2), tensor(3, 7, 2, 1))
	for id, want := range map[int]uint64{0: 1, 1: 2, 2: 1} {
		qt.Check(t, qt.Equals(device(t, s, id).Regions.DRAM.Buffers, want), qt.Commentf("device %d", id))
	}
}

func TestThePeakStaysWithItsTime(t *testing.T) {
	s := after(tensor(1, 7, 1, 0), tensor(2, 7, 2, 0), free(3, 7, 1), free(4, 7, 2), tensor(5, 7, 3, 0))
	dram := device(t, s, 0).Regions.DRAM
	qt.Check(t, qt.Equals(dram.Buffers, 1))
	qt.Check(t, qt.Equals(dram.PeakBytes, 2*540672))
	qt.Check(t, qt.Equals(dram.PeakTimeNs, 2))
}

func TestContradictionsAreCountedAndDoNoHarm(t *testing.T) {
	for _, test := range []struct {
		name    string
		events  []event.Event
		buffers uint64
		want    memory.Anomalies
	}{
		{
			"a buffer that is freed twice",
			[]event.Event{tensor(1, 7, 1, 0), tensor(1, 7, 2, 0), free(2, 7, 1), free(3, 7, 1)},
			1, memory.Anomalies{RepeatedFrees: 1},
		}, {
			"a free of a buffer that was never seen",
			[]event.Event{tensor(1, 7, 1, 0), free(2, 7, 99)},
			1, memory.Anomalies{RepeatedFrees: 1},
		}, {
			"a free in a process that was never seen",
			[]event.Event{tensor(1, 7, 1, 0), free(2, 8, 1)},
			1, memory.Anomalies{RepeatedFrees: 1},
		}, {
			"a buffer that is allocated twice",
			[]event.Event{tensor(1, 7, 1, 0), tensor(2, 7, 1, 0)},
			1, memory.Anomalies{ReplacedBuffers: 1},
		}, {
			"the same id in two processes",
			[]event.Event{tensor(1, 7, 1, 0), tensor(2, 8, 1, 0), free(3, 7, 1)},
			1, memory.Anomalies{},
		}, {
			"an address that is used again",
			[]event.Event{tensor(1, 7, 1, 0), free(2, 7, 1), tensor(3, 7, 2, 0)},
			1, memory.Anomalies{},
		}, {
			"a chip that is named twice",
			[]event.Event{tensor(1, 7, 1, 0, 0)},
			1, memory.Anomalies{},
		}, {
			"a buffer of no known chip",
			[]event.Event{tensor(1, 7, 1, 0), tensor(2, 7, 2)},
			1, memory.Anomalies{UnplacedBuffers: 1},
		}, {
			"a circular buffer on too many cores",
			[]event.Event{tensor(1, 7, 1, 0), cb(2, 7, 1, 0, 1, 65535, 65535, 0)},
			1, memory.Anomalies{MalformedEvents: 1},
		}, {
			"a circular buffer past the end of the addresses",
			[]event.Event{tensor(1, 7, 1, 0), cb(2, 7, 1, 1<<63, 1<<63+1, 0, 0, 0)},
			1, memory.Anomalies{MalformedEvents: 1},
		}, {
			"a buffer in a region without banks",
			[]event.Event{tensor(1, 7, 1, 0), {Kind: event.Alloc, PID: 7, BufferID: 2, Region: event.CB, Devices: []int{0}}},
			1, memory.Anomalies{MalformedEvents: 1},
		}, {
			"an event of no kind",
			[]event.Event{tensor(1, 7, 1, 0), {}},
			1, memory.Anomalies{MalformedEvents: 1},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := after(test.events...)
			qt.Check(t, qt.Equals(device(t, s, 0).Regions.DRAM.Buffers, test.buffers))
			qt.Check(t, qt.Equals(s.Snapshot().Anomalies, test.want))
		})
	}
}

func TestClosingADeviceDropsWhatItsAllocatorHolds(t *testing.T) {
	with := func(e event.Event, allocator uint64) event.Event {
		e.Allocator = allocator
		return e
	}
	s := after(wormhole(1, 7, 100, 0), wormhole(1, 7, 200, 0),
		with(tensor(2, 7, 1, 0), 100), with(tensor(3, 7, 2, 0), 200), with(tensor(4, 8, 3, 0), 100))
	held := slices.DeleteFunc(s.BuffersOf(7), func(b memory.Buffer) bool { return b.Allocator != 100 })
	qt.Assert(t, qt.HasLen(held, 1))
	qt.Check(t, qt.Equals(held[0].BufferID, 1))

	s.Apply(&event.Event{TimeNs: 5, Kind: event.DeviceClose, PID: 7, Allocator: 100})
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.Devices[0].Regions.DRAM.Buffers, 2))
	qt.Check(t, qt.DeepEquals(snap.Processes[0].Unfreed, []memory.RegionTotal{{
		Region: "DRAM", Reason: "device_close", Buffers: 1, SizeBytes: 524288, AllocatedBytes: 540672,
	}}))
}

func TestAProcessThatEndsHoldsNothing(t *testing.T) {
	s := after(tensor(1, 7, 1, 0, 1), cb(2, 7, 1, 1000, 500, 1, 1, 0, 1), kernels(3, 7, 1, 900, 300, 0, 1),
		tensor(4, 8, 1, 0), event.Event{TimeNs: 9, Kind: event.ProcessExit, PID: 7, ExitStatus: 9})
	snap := s.Snapshot()
	d := snap.Devices[0].Regions
	qt.Check(t, qt.Equals(d.DRAM.Buffers, 1))
	qt.Check(t, qt.Equals(d.CB.MaxBytesPerCore+d.CB.Bytes+d.CB.SumBytes+d.CB.Programs, 0))
	qt.Check(t, qt.Equals(d.Kernel.DRAMBytes+d.Kernel.MaxBytesPerCore+d.Kernel.Programs, 0))

	qt.Assert(t, qt.HasLen(snap.Processes, 2))
	gone := snap.Processes[1]
	qt.Check(t, qt.Equals(gone.PID, 7))
	qt.Check(t, qt.Equals(gone.Exit.TimeNs, 9))
	qt.Check(t, qt.Equals(*gone.Exit.Status, 9))
	qt.Check(t, qt.Equals(gone.Devices[0].Regions.DRAM.Buffers, 0))
	qt.Check(t, qt.Equals(gone.Devices[0].Regions.DRAM.PeakBytes, 540672))
	qt.Check(t, qt.DeepEquals(gone.Unfreed, []memory.RegionTotal{{
		Region: "DRAM", Reason: "process_exit", Buffers: 1, SizeBytes: 2 * 524288, AllocatedBytes: 2 * 540672,
	}}))
}

func TestAProcessIDThatIsUsedAgainIsAnotherProcess(t *testing.T) {
	s := after(
		event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: 7, Start: &event.Start{Command: "first"}}, tensor(2, 7, 1, 0),
		event.Event{TimeNs: 3, Kind: event.ProcessStart, PID: 7, Start: &event.Start{Command: "second"}}, tensor(4, 7, 1, 0))
	snap := s.Snapshot()
	qt.Assert(t, qt.HasLen(snap.Processes, 2))
	qt.Check(t, qt.Equals(snap.Processes[0].Command, "second"))
	qt.Check(t, qt.Equals(snap.Processes[1].Command, "first"))
	qt.Check(t, qt.IsNil(snap.Processes[1].Exit.Status))
	qt.Check(t, qt.Equals(snap.Devices[0].Regions.DRAM.Buffers, 1))
	qt.Check(t, qt.Equals(snap.Anomalies, memory.Anomalies{}))
}

func TestOnlyTheNewestProcessesThatEndedAreKept(t *testing.T) {
	s := aggregate.New()
	for pid := 1; pid <= 1000; pid++ {
		s.Apply(&event.Event{TimeNs: uint64(pid), Kind: event.ProcessStart, PID: pid})
		s.Apply(&event.Event{TimeNs: uint64(pid), Kind: event.ProcessExit, PID: pid})
	}
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.ExitedProcesses, 1000))
	qt.Check(t, qt.HasLen(snap.Processes, 64))
	qt.Check(t, qt.Equals(snap.Processes[63].PID, 1000))
}

func TestAProcessHasTheCapacityOfItsLargestOpenAllocator(t *testing.T) {
	small := wormhole(2, 7, 2, 0)
	small.Open.Capacities[event.L1].BytesPerBank = 1000
	s := after(wormhole(1, 7, 1, 0), small)
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.L1.CapacityBytesPerBank, wormholeL1))
	qt.Check(t, qt.Equals(device(t, s, 0).Board, "n150"))

	e := event.Event{TimeNs: 9, Kind: event.DeviceClose, PID: 7, Allocator: 1}
	s.Apply(&e)
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.L1.CapacityBytesPerBank, 1000))

	e.Allocator = 2
	s.Apply(&e)
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.L1.CapacityBytesPerBank, 1000), qt.Commentf("the last one stays"))
}

func TestWhatOneProcessReservesOfABankNoOtherCanUse(t *testing.T) {
	reserving := wormhole(2, 8, 2, 0)
	reserving.Open.Capacities[event.L1].BytesPerBank = wormholeL1 - 32768
	reserving.Open.Capacities[event.L1Small] = event.Capacity{Banks: 64, BytesPerBank: 32768}
	s := after(wormhole(1, 7, 1, 0), reserving)
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.Devices[0].Regions.L1.CapacityBytesPerBank, wormholeL1-32768))
	qt.Check(t, qt.Equals(snap.Devices[0].Regions.L1Small.CapacityBytesPerBank, 32768))
	qt.Check(t, qt.Equals(snap.Processes[0].Devices[0].Regions.L1.CapacityBytesPerBank, wormholeL1))
	qt.Check(t, qt.Equals(snap.Processes[0].Devices[0].Regions.L1Small.CapacityBytesPerBank, 0))

	s.Apply(&event.Event{TimeNs: 9, Kind: event.DeviceClose, PID: 8, Allocator: 2})
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.L1.CapacityBytesPerBank, wormholeL1))
	qt.Check(t, qt.Equals(s.Snapshot().Processes[1].Devices[0].Regions.L1Small.CapacityBytesPerBank, 32768),
		qt.Commentf("what it had stays"))
}

func TestThePeakKeepsTheCapacityOfItsTime(t *testing.T) {
	larger := wormhole(1, 7, 1, 0)
	smaller := wormhole(4, 7, 2, 0)
	smaller.Open.Capacities[event.DRAM].BytesPerBank = 1000
	s := after(larger, tensor(2, 7, 1, 0), event.Event{TimeNs: 3, Kind: event.DeviceClose, PID: 7, Allocator: 1}, smaller)
	dram := device(t, s, 0).Regions.DRAM
	qt.Check(t, qt.Equals(dram.CapacityBytes, 12*1000))
	qt.Check(t, qt.Equals(dram.PeakCapacityBytes, 12*wormholeDRAM))
}

// The figures are those of the largest program.
func TestProgramsShareTheSpaceOfTheirCircularBuffers(t *testing.T) {
	global := cb(1, 7, 1, 1000, 4000, 0, 0, 0)
	global.Global = true
	for _, test := range []struct {
		name            string
		events          []event.Event
		max, bytes, sum uint64
	}{
		{"one on four cores", []event.Event{cb(1, 7, 1, 1000, 100, 1, 1, 0)}, 100, 400, 400},
		{"two of one program", []event.Event{cb(1, 7, 1, 1000, 100, 1, 1, 0), cb(1, 7, 1, 1100, 50, 1, 1, 0)}, 150, 600, 600},
		{"the same of two programs", []event.Event{cb(1, 7, 1, 1000, 100, 1, 1, 0), cb(1, 7, 2, 1000, 100, 1, 1, 0)}, 100, 400, 800},
		{"overlapping ones of two programs", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(1, 7, 2, 1050, 120, 0, 0, 0)}, 120, 120, 220},
		{"two with a gap between", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(1, 7, 2, 2000, 100, 0, 0, 0)}, 100, 100, 200},
		{"on different cores", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(1, 7, 2, 1000, 300, 1, 0, 0)}, 300, 600, 700},
		{"again of the same program", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(2, 7, 1, 1000, 100, 0, 0, 0)}, 100, 100, 100},
		{"a global one, which lies in a buffer", []event.Event{global}, 0, 0, 0},
		{"of two processes", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(1, 8, 1, 1000, 200, 0, 0, 0)}, 200, 200, 300},
		{"the larger program ends", []event.Event{cb(1, 7, 1, 1000, 100, 1, 0, 0), cb(1, 7, 2, 1000, 300, 0, 0, 0), endCBs(2, 7, 2)}, 100, 200, 200},
		{"one of two equal ones ends", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(1, 7, 2, 1000, 100, 0, 0, 0), endCBs(2, 7, 1)}, 100, 100, 100},
		{"a program ends twice", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0), cb(1, 7, 2, 1000, 100, 0, 0, 0), endCBs(2, 7, 1), endCBs(2, 7, 1, 0)}, 100, 100, 100},
		{"a program ends on another chip", []event.Event{cb(1, 7, 1, 1000, 100, 0, 0, 0, 1), endCBs(2, 7, 1, 1)}, 100, 100, 100},
		{"of no size", []event.Event{cb(1, 7, 1, 1000, 0, 0, 0, 0)}, 0, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			use := device(t, after(test.events...), 0).Regions.CB
			qt.Check(t, qt.Equals(use.MaxBytesPerCore, test.max))
			qt.Check(t, qt.Equals(use.Bytes, test.bytes))
			qt.Check(t, qt.Equals(use.SumBytes, test.sum))
		})
	}
}

func TestStaticsListEachProgramsBuffers(t *testing.T) {
	global := cb(3, 7, 2, 5000, 64, 0, 0, 0)
	global.Global = true
	list := after(global, cb(1, 7, 1, 1000, 100, 1, 1, 0, 1)).Statics(0)
	qt.Check(t, qt.DeepEquals(list, []memory.Static{
		{PID: 7, ProgramID: 1, Cores: []event.CoreRange{{X0: 0, Y0: 0, X1: 1, Y1: 1}}, Address: 1000, BytesPerCore: 100, Kind: event.CircularBuffer, SinceNs: 1},
		{PID: 7, ProgramID: 2, Cores: []event.CoreRange{{}}, Address: 5000, BytesPerCore: 64, Kind: event.CircularBuffer, Global: true, SinceNs: 3},
	}))
}

func TestKernelsCountTheirLargestTextAndTheSumOfBinaries(t *testing.T) {
	s := after(kernels(1, 7, 1, 1000, 300, 0), kernels(1, 7, 2, 2000, 200, 0), kernels(2, 8, 1, 10, 500, 0),
		kernels(3, 7, 2, 2000, 200, 0), event.Event{TimeNs: 4, Kind: event.KernelUnload, PID: 8, ProgramID: 1})
	qt.Check(t, qt.DeepEquals(device(t, s, 0).Regions.Kernel, memory.KernelsUse{
		Programs: 2, MaxBytesPerCore: 300, SumBytes: 500, DRAMBytes: 3000,
	}))
}

// The kernels of command queues and of the fabric are on other cores than the workers, and not in
// DRAM. What is not reported is said to be so.
func TestKernelsOfTheRuntimeDoNotCountAsWorkers(t *testing.T) {
	runtime := func(kind event.KernelKind, program, text uint64, devices ...int) event.Event {
		e := kernels(1, 7, program, 0, text, devices...)
		e.KernelKind = kind
		return e
	}
	events := []event.Event{
		runtime(event.QueueKernels, 0, 31616, 0), runtime(event.QueueKernels, 1, 32464, 1), runtime(event.FabricKernels, 2, 0, 1),
		cb(2, 7, 3, 1000, 100, 0, 0, 0, 1),
	}
	queue := func(text uint64) memory.RuntimeKernels {
		return memory.RuntimeKernels{Programs: 1, MaxBytesPerCore: text}
	}
	s := after(events...)
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.Kernel, memory.KernelsUse{NotReported: true, CommandQueue: queue(31616)}))
	s = after(append(events, kernels(3, 7, 3, 4096, 1424, 0, 1))...)
	worker := memory.KernelsUse{Programs: 1, MaxBytesPerCore: 1424, SumBytes: 1424, DRAMBytes: 4096}
	worker.CommandQueue, worker.Fabric = queue(32464), memory.RuntimeKernels{Programs: 1}
	qt.Check(t, qt.Equals(device(t, s, 1).Regions.Kernel, worker))
	restored := aggregate.New()
	qt.Assert(t, qt.IsNil(restored.Restore(s.Freeze(nil)().State)))
	qt.Check(t, qt.Equals(device(t, restored, 1).Regions.Kernel, worker))
	end := event.Event{TimeNs: 4, Kind: event.KernelUnload, PID: 7, ProgramID: 1}
	s.Apply(&end)
	worker.CommandQueue = memory.RuntimeKernels{}
	qt.Check(t, qt.Equals(device(t, s, 1).Regions.Kernel, worker))

	late := event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: 7, Start: &event.Start{AttachedLate: true}}
	s = after(late, events[0])
	qt.Check(t, qt.Equals(device(t, s, 0).Regions.Kernel, memory.KernelsUse{NotReported: true, CommandQueue: queue(31616)}))
}

func TestImpliedEndsLeaveNothingForTheEventItself(t *testing.T) {
	s := after(wormhole(0, 7, 0, 0, 1), tensor(3, 7, 2, 0, 1), tensor(1, 7, 9, 0), tensor(3, 7, 1, 0),
		cb(4, 7, 5, 1000, 100, 0, 0, 0, 1), cb(4, 7, 4, 1000, 100, 0, 0, 1), kernels(4, 7, 5, 1, 1, 0))
	exit := event.Event{TimeNs: 10, Kind: event.ProcessExit, PID: 7}
	var got []string
	for implied := range s.Implied(&exit) {
		e := implied
		got = append(got, fmt.Sprint(e.TimeNs, e.PID, e.Kind, e.Reason, e.Region, e.BufferID, e.ProgramID, e.Devices))
		s.Apply(e)
	}
	qt.Check(t, qt.DeepEquals(got, []string{
		"10 7 free process_exit DRAM 9 0 [0]",
		"10 7 free process_exit DRAM 1 0 [0]",
		"10 7 free process_exit DRAM 2 0 [0 1]",
		"10 7 cb_free process_exit CB 0 4 [1]",
		"10 7 cb_free process_exit CB 0 5 [0 1]",
		"10 7 kernel_unload process_exit KERNEL 0 5 [0]",
	}))
	for implied := range s.Implied(&exit) {
		t.Errorf("%+v is implied", implied)
	}
	s.Apply(&exit)
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.Anomalies, memory.Anomalies{}))
	qt.Check(t, qt.Equals(snap.Processes[0].Unfreed[0].Buffers, 3))
}

func TestAStartOfAKnownProcessImpliesTheEndOfTheEarlierOne(t *testing.T) {
	s := after(tensor(1, 7, 1, 0))
	start := event.Event{TimeNs: 5, Kind: event.ProcessStart, PID: 7}
	kinds := func() (list []event.Kind) {
		for implied := range s.Implied(&start) {
			list = append(list, implied.Kind)
		}
		return list
	}
	qt.Check(t, qt.DeepEquals(kinds(), []event.Kind{event.Free, event.ProcessExit}))
	start.PID = 8
	qt.Check(t, qt.HasLen(kinds(), 0))
}

func TestLostEventsAreCountedByCause(t *testing.T) {
	lost := func(n uint64, cause string) event.Event {
		return event.Event{Kind: event.Lost, Count: n, Cause: cause}
	}
	snap := after(lost(2, "a"), lost(3, "b"), lost(4, "a")).Snapshot()
	qt.Check(t, qt.DeepEquals(snap.Lost, map[string]uint64{"a": 6, "b": 3}))
	qt.Check(t, qt.Equals(snap.LostEvents, 9))
}

// TestLossesBelongToTheirProcess: a process's losses do not taint others, end with it, and are
// history once its memory was read again.
func TestLossesBelongToTheirProcess(t *testing.T) {
	lost := func(ns uint64, pid int, n uint64, cause string) event.Event {
		return event.Event{TimeNs: ns, Kind: event.Lost, PID: pid, Count: n, Cause: cause}
	}
	s := after(
		tensor(1, 7, 1, 0), tensor(1, 8, 1, 0), lost(2, 7, 2, "a"), lost(3, 7, 1, "b"), lost(3, 8, 5, "a"),
		event.Event{TimeNs: 4, Kind: event.ProcessExit, PID: 8}, lost(5, 9, 4, "of an unknown process"),
	)
	snap := s.Snapshot()
	qt.Check(t, qt.DeepEquals(snap.Lost, map[string]uint64{"of an unknown process": 4}))
	qt.Check(t, qt.Equals(snap.LostEvents, 12))
	qt.Check(t, qt.HasLen(snap.Losses(false, []int{8}).Processes, 1))
	qt.Check(t, qt.DeepEquals(snap.Losses(true, nil).Processes, []memory.ProcessLosses{
		{PID: 7, SinceNs: 1, Losses: memory.Losses{Lost: map[string]uint64{"a": 2, "b": 1}}},
	}))
	qt.Check(t, qt.DeepEquals(snap.Losses(false, nil).Processes, []memory.ProcessLosses{
		{PID: 7, SinceNs: 1, Losses: memory.Losses{Lost: map[string]uint64{"a": 2, "b": 1}}},
		{PID: 8, SinceNs: 1, Losses: memory.Losses{Lost: map[string]uint64{"a": 5}}},
	}))

	s.Apply(&event.Event{TimeNs: 6, Kind: event.Reread, PID: 7})
	e := lost(7, 7, 1, "a")
	s.Apply(&e)
	now := s.Snapshot()
	qt.Check(t, qt.DeepEquals(now.Processes[0].Losses, memory.Losses{
		Lost: map[string]uint64{"a": 1}, Corrected: map[string]uint64{"a": 2, "b": 1}, RightSinceNs: 6,
	}))
	qt.Check(t, qt.DeepEquals(snap.Processes[0].Losses, memory.Losses{Lost: map[string]uint64{"a": 2, "b": 1}}))
	qt.Check(t, qt.Equals(now.LostEvents, 13))
}

func TestTheNewestFailuresAreKept(t *testing.T) {
	s := aggregate.New()
	for i := range uint64(5001) {
		s.Apply(&event.Event{TimeNs: i, Kind: event.AllocFailed, PID: 7, Region: event.L1, Message: "no"})
		if i == 1999 {
			early := s.Snapshot()
			defer func() { qt.Check(t, qt.Equals(early.Failures[999].TimeNs, 1999)) }()
		}
	}
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.FailureCount, 5001))
	qt.Assert(t, qt.HasLen(snap.Failures, 1000))
	qt.Check(t, qt.Equals(snap.Failures[0].TimeNs, 4001))
	qt.Check(t, qt.Equals(snap.Failures[999].TimeNs, 5000))
}

func TestASnapshotDoesNotChange(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0), cb(3, 7, 1, 0, 100, 0, 0, 0))
	snap := s.Snapshot()
	before, err := json.Marshal(snap)
	qt.Assert(t, qt.IsNil(err))
	for _, e := range []event.Event{
		tensor(4, 7, 2, 0), tensor(4, 8, 2, 0, 5), cb(4, 7, 2, 0, 500, 0, 0, 0),
		{TimeNs: 5, Kind: event.ProcessExit, PID: 7}, {Kind: event.Lost, Count: 1, Cause: "x"},
	} {
		s.Apply(&e)
	}
	again, err := json.Marshal(snap)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(again), string(before)))
}

func TestTheJSONIsTheDocumentedOne(t *testing.T) {
	b, err := json.Marshal(aggregate.New().Snapshot())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(b), `{"v":1,"time_ns":0,"devices":[],"processes":[],"exited_processes":0,"lost":{},`+
		`"anomalies":{"repeated_frees":0,"replaced_buffers":0,"unplaced_buffers":0,"malformed_events":0},"failure_count":0,"failures":[]}`))

	b, err = json.Marshal(after(wormhole(1, 7, 1, 0), tensor(2, 7, 1, 0)).Snapshot())
	qt.Assert(t, qt.IsNil(err))
	var doc struct {
		Devices []struct {
			ID      int
			Regions map[string]map[string]uint64
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &doc)))
	dram := doc.Devices[0].Regions["DRAM"]
	for _, field := range []string{"buffers", "size_bytes", "bytes_per_bank", "banks", "allocated_bytes", "capacity_bytes", "peak_bytes"} {
		qt.Check(t, qt.Not(qt.Equals(dram[field], 0)), qt.Commentf(field))
	}
	qt.Check(t, qt.HasLen(doc.Devices[0].Regions, int(event.NumRegions)))
}

func TestAProcessHoldsABufferOfAMeshOnce(t *testing.T) {
	s := after(tensor(1, 7, 1, 0, 1), tensor(2, 7, 2, 0), tensor(2, 7, 3, 0), free(3, 7, 3))
	qt.Check(t, qt.DeepEquals(s.Snapshot().Processes[0].Live, []memory.RegionTotal{
		{Region: "DRAM", Buffers: 2, SizeBytes: 3 * 524288, AllocatedBytes: 3 * 540672},
	}))
}

func TestTheTimeThatWasTracedIsNotThatOfTheEvents(t *testing.T) {
	s := aggregate.New()
	s.Begin(100)
	s.Apply(&event.Event{TimeNs: 200, Kind: event.ProcessStart, PID: 7})
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.BeganNs, 100))
	qt.Check(t, qt.Equals(snap.TimeNs, 200))
	s.Advance(900)
	s.Advance(300)
	qt.Check(t, qt.Equals(s.Snapshot().TimeNs, 900))
}
