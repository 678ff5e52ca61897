package pagetest

import "ttmem/tracer/event"

var (
	weightsAt = At("ttnn.empty", 10, 30)
	cacheAt   = At("ttnn.empty", 12, 31, 32, 33, 34, 35, 36)
	forwardAt = At("ttnn.matmul", 40, 41)
	softmaxAt = At("ttnn.softmax", 50)
)

// Failures are of a device whose L1 is 100,000 bytes from the address 0x10000 on: a
// fragmented one, in which the same fails again, and a program that reaches into it.
func Failures() []event.Event {
	open := event.Event{TimeNs: 1e9, Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}, Open: new(event.Open)}
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: 100_000, Base: 0x10000}
	buffer := func(ms, id, address, perBank uint64, stack *event.Stack) event.Event {
		return event.Event{
			TimeNs: 1e9 + ms*1e6, Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: id, Devices: []int{0}, Stack: stack,
			Region: event.L1, Address: address, SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64,
		}
	}
	fail := func(ms, perBank uint64) event.Event {
		return event.Event{
			TimeNs: 1e9 + ms*1e6, Kind: event.AllocFailed, PID: 7, Allocator: 1, Devices: []int{0}, Stack: forwardAt,
			Region: event.L1, SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64,
			Reason: event.ReasonOutOfMemory, Message: "TT_FATAL @ x.cpp:1\ninfo:\nOut of Memory: no\nbacktrace:\n",
		}
	}
	return []event.Event{
		{TimeNs: 1e9, Kind: event.ProcessStart, PID: 7, Comm: "python", Start: &event.Start{Command: "python model.py"}},
		open,
		buffer(100, 1, 0x10000+60_000, 40_000, weightsAt),
		buffer(200, 2, 0x10000+20_000, 500, cacheAt), buffer(201, 3, 0x10000+40_000, 500, cacheAt),
		fail(300, 30_000), fail(350, 30_000), fail(400, 70_000), fail(500, 200_000),
		{
			TimeNs: 1.6e9, Kind: event.CBAlloc, PID: 7, ProgramID: 4, Devices: []int{0}, Stack: softmaxAt, Region: event.CB,
			Address: 0x10000, SizeBytes: 30_000, Cores: []event.CoreRange{{X1: 7, Y1: 3}}, StaticKind: event.CircularBuffer,
		},
		{
			TimeNs: 1.7e9, Kind: event.AllocFailed, PID: 7, ProgramID: 4, Devices: []int{0}, Stack: softmaxAt, Region: event.CB,
			StaticKind: event.CircularBuffer, Reason: event.ReasonStaticClash, Message: "clash",
		},
		{TimeNs: 1.8e9, Kind: event.AllocFailed, PID: 8, Devices: []int{1}, Region: event.DRAM, Message: "something\x1b[2J else"},
		{TimeNs: 2e9, Kind: event.ProcessExit, PID: 7},
	}
}
