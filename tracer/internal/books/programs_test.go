package books

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/heap"
)

// kernelRecords makes the records of a process with two chips and a mesh of both, as a chip
// that executes makes them.
type kernelRecords struct {
	*testProcess
	timeNs uint64
}

const chip0, chip1, bothChips = 0x1000, 0x1100, 0x1200

func newKernelRecords() *kernelRecords {
	d := newTestProcess()
	for address, chips := range map[uint64][]int{chip0: {0}, chip1: {1}, bothChips: {0, 1}} {
		d.devices[address] = &device{chips: chips}
	}
	return &kernelRecords{testProcess: d}
}

func (k *kernelRecords) header(tid uint32, kind uint8) bpf.KernelHeader {
	k.timeNs++
	return bpf.KernelHeader{TimeNs: k.timeNs, Tgid: 7, Tid: tid, Kind: kind}
}

func (k *kernelRecords) kernels(tid uint32, program, device uint64, kind uint8, dram, text uint64) {
	r := bpf.KernelKernelRecord{ProgramId: program, Device: device, BinaryBytes: dram, TextBytes: text}
	r.H = k.header(tid, bpf.RecordKernel)
	r.H.Flags = kind
	k.decode(raw(&r))
}

func (k *kernelRecords) compiled(tid uint32, program, device, dram, text uint64) {
	k.kernels(tid, program, device, bpf.KernelCompiled, dram, text)
}

func (k *kernelRecords) binariesLoaded(tid, programs uint32) {
	h := k.header(tid, bpf.RecordBinariesLoaded)
	h.Count = programs
	k.decode(raw(&h))
}

func (k *kernelRecords) destroyed(program uint64) {
	r := bpf.KernelProgramEndRecord{ProgramId: program}
	r.H = k.header(1, bpf.RecordProgramEnd)
	r.H.Flags = bpf.ProgramKernels
	k.decode(raw(&r))
}

// kernelEvents describes the events of kernels so far.
func (k *kernelRecords) kernelEvents() (list []string) {
	for _, e := range k.events {
		switch e.Kind {
		case event.KernelLoad:
			list = append(list, fmt.Sprintf("%d: load %d on %v %s %d+%d", e.TimeNs, e.ProgramID, e.Devices, e.KernelKind, e.SizeBytes, e.BytesPerBank))
		case event.KernelUnload:
			list = append(list, fmt.Sprintf("%d: unload %d", e.TimeNs, e.ProgramID))
		}
	}
	return list
}

const queueKernels, fabricKernels, workerKernels = uint8(event.QueueKernels), uint8(event.FabricKernels), uint8(event.WorkerKernels)

// TestKernelsAreReportedWhenTheyAreLoaded: a thread that opens a device compiles the programs of the
// command queue, and another one loads them. Programs of operations are reported once their binaries
// are loaded, all of a workload together.
func TestKernelsAreReportedWhenTheyAreLoaded(t *testing.T) {
	k := newKernelRecords()
	k.compiled(1, 0, chip0, 59392, 31616)
	k.compiled(1, 1, chip1, 59392, 31616)
	qt.Check(t, qt.HasLen(k.kernelEvents(), 0))
	k.kernels(3, 1, chip1, queueKernels, 0, 32464)
	k.kernels(2, 0, chip0, queueKernels, 0, 31616)
	k.compiled(1, 8, bothChips, 14336, 12112)
	k.compiled(1, 10, bothChips, 4096, 1424)
	k.compiled(4, 12, bothChips, 100, 10) // of another thread
	k.binariesLoaded(1, 2)
	k.binariesLoaded(1, 2)
	k.destroyed(12)
	k.destroyed(8)
	qt.Check(t, qt.DeepEquals(k.kernelEvents(), []string{
		"3: load 1 on [1] command_queue 0+32464",
		"4: load 0 on [0] command_queue 0+31616",
		"8: load 8 on [0 1]  14336+12112",
		"8: load 10 on [0 1]  4096+1424",
		"11: unload 8",
	}))
}

// TestProgramsThatAreNotLoadedTakeNothing: the programs of a command queue that was never configured
// are not those of the workload that the same thread loads later.
func TestProgramsThatAreNotLoadedTakeNothing(t *testing.T) {
	k := newKernelRecords()
	k.compiled(1, 0, chip0, 59392, 31616)
	k.compiled(1, 2, chip0, 4096, 1424)
	k.binariesLoaded(1, 1)
	k.destroyed(0)
	qt.Check(t, qt.DeepEquals(k.kernelEvents(), []string{"3: load 2 on [0]  4096+1424"}))
}

// TestSlowDispatchLoadsKernelsOfEachChipOnce: it writes them to L1 at each run.
func TestSlowDispatchLoadsKernelsOfEachChipOnce(t *testing.T) {
	k := newKernelRecords()
	for range 3 {
		k.kernels(2, 5, chip0, workerKernels, 0, 8160)
		k.kernels(3, 5, chip1, workerKernels, 0, 8160)
	}
	k.destroyed(5)
	k.kernels(2, 6, chip0, fabricKernels, 0, 8928)
	qt.Check(t, qt.DeepEquals(k.kernelEvents(), []string{
		"1: load 5 on [0]  0+8160", "2: load 5 on [1]  0+8160", "7: unload 5", "8: load 6 on [0] fabric 0+8928",
	}))
}

// TestRuntimeKernelsAreReadFromMemory: a late attach finds them in the devices. They end when no device
// has their chips any more, because the kernel side does not know their programs.
func TestRuntimeKernelsAreReadFromMemory(t *testing.T) {
	k := newKernelRecords()
	k.allocators[0x2000] = &allocator{device: k.devices[bothChips]}
	k.allocators[0x3000] = &allocator{device: k.devices[chip1]} // a submesh
	k.kernels(2, 9, chip1, fabricKernels, 0, 500)               // came as a record
	devices := []heap.Device{
		{Address: bothChips, Allocator: 0x2000, Runtime: []heap.RuntimeProgram{
			{ID: 2, Chip: 0, Kind: event.QueueKernels, TextBytes: 31616},
			{ID: 3, Chip: 1, Kind: event.QueueKernels, TextBytes: 31616},
			{ID: 9, Chip: 1, Kind: event.FabricKernels, TextBytes: 500},
		}},
		{Address: 0x9000, Allocator: 0x9900, Runtime: []heap.RuntimeProgram{{ID: 4}}}, // a parent's
	}
	for range 2 {
		k.runtimeKernels(event.Event{TimeNs: 10, PID: 7, TID: 7, BeforeAttach: true}, devices)
	}
	k.closeDevice(event.Event{TimeNs: 20, PID: 7}, 0x2000)
	k.closeDevice(event.Event{TimeNs: 30, PID: 7}, 0x3000)
	qt.Check(t, qt.DeepEquals(k.kernelEvents(), []string{
		"1: load 9 on [1] fabric 0+500",
		"10: load 2 on [0] command_queue 0+31616", "10: load 3 on [1] command_queue 0+31616",
		"20: unload 2", "30: unload 3",
	}))
}

// TestThreadsOfAPoolHaveTheOperationOfTheRun: with several chips the library places circular buffers,
// and with slow dispatch loads kernels, on threads of a pool, whose stacks have no operation.
func TestThreadsOfAPoolHaveTheOperationOfTheRun(t *testing.T) {
	k := newKernelRecords()
	operation := event.StackOf([]event.Frame{{Kind: event.Native, Name: "ttnn::add"}})
	k.runs[3] = latestRun{tid: 1, stack: operation}
	place := func(tid uint32, program uint64) {
		r := bpf.KernelCbRecord{ProgramId: program, Device: chip0, Address: 0x19d60 + k.timeNs, SizeBytes: 4096}
		r.H = k.header(tid, bpf.RecordCB)
		r.H.StaticKind, r.H.Count = bpf.StaticCircularBuffer, 1
		k.decode(raw(&r))
	}
	place(2, 3)
	place(1, 3) // its own stack, which is not known
	place(2, 4) // another program
	k.kernels(2, 3, chip0, workerKernels, 0, 8160)
	var stacks []*event.Stack
	for _, e := range k.events {
		if e.Kind == event.CBAlloc || e.Kind == event.KernelLoad {
			stacks = append(stacks, e.Stack)
		}
	}
	qt.Check(t, qt.IsTrue(slices.Equal(stacks, []*event.Stack{operation, nil, nil, operation})), qt.Commentf("%v", stacks))
}
