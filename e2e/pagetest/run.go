// Package pagetest has what tests of pages share: events, runs of them, and golden files.
package pagetest

import (
	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// From allocates buffers of 12 banks at a stack.
func (r *Run) From(pid int, stack *event.Stack, region event.Region, perBank uint64, buffers int) {
	for range buffers {
		r.Id++
		r.Apply(event.Event{
			Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.Id, Devices: []int{0}, Region: region,
			SizeBytes: perBank * 12, BytesPerBank: perBank, Banks: 12, Stack: stack,
		})
	}
}

const Second = 1_000_000_000

// Run builds the events of a run, each a tenth of a second after the one
// before.
type Run struct {
	State *aggregate.State
	Now   uint64
	Id    uint64
}

func NewRun() *Run {
	return &Run{State: aggregate.New(), Now: 1000 * Second}
}

func (r *Run) Apply(e event.Event) {
	r.Now += Second / 10
	e.TimeNs = r.Now
	for implied := range r.State.Implied(&e) {
		r.State.Apply(implied)
	}
	r.State.Apply(&e)
}

func (r *Run) Start(pid int, command string) {
	r.Apply(event.Event{Kind: event.ProcessStart, PID: pid, Comm: "python3", Start: &event.Start{Command: command, Release: "0.81.1"}})
}

func (r *Run) Open(pid int, board string, devices ...int) {
	r.Apply(event.Event{
		Kind: event.DeviceOpen, PID: pid, Allocator: 1, Devices: devices, Open: &event.Open{Board: board, Arch: "wormhole_b0",
			Capacities: [event.BankedRegions]event.Capacity{
				event.DRAM:    {Banks: 12, BytesPerBank: 1071857600},
				event.L1:      {Banks: 64, BytesPerBank: 1360544},
				event.L1Small: {Banks: 64, BytesPerBank: 32768},
				event.Trace:   {Banks: 12, BytesPerBank: 835584},
			}},
	})
}

// Alloc returns the new buffer's id.
func (r *Run) Alloc(pid int, region event.Region, perBank uint64, banks uint32, devices ...int) uint64 {
	r.Id++
	r.Apply(event.Event{
		Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.Id, Devices: devices, Region: region,
		SizeBytes: perBank * uint64(banks), BytesPerBank: perBank, Banks: banks,
	})
	return r.Id
}

// Own says who holds a buffer.
func (r *Run) Own(pid int, id uint64, path, tensor string) {
	r.Apply(event.Event{Kind: event.Owner, PID: pid, BufferID: id, Cause: path, Message: tensor})
}

func (r *Run) Free(pid int, id uint64) {
	r.Apply(event.Event{Kind: event.Free, PID: pid, BufferID: id, Reason: event.ReasonExplicit})
}

// Program compiles a program with one circular buffer, and runs it.
func (r *Run) Program(pid int, id, bytes uint64, devices ...int) {
	r.Apply(event.Event{
		Kind: event.CBAlloc, PID: pid, ProgramID: id, Devices: devices, Address: 105824, SizeBytes: bytes,
		Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer,
	})
	r.Apply(event.Event{Kind: event.KernelLoad, PID: pid, ProgramID: id, Devices: devices, SizeBytes: 40 << 10, BytesPerBank: 11 << 10})
	r.Apply(event.Event{Kind: event.ProgramRun, PID: pid, ProgramID: id, Devices: devices})
}

func (r *Run) Close(pid int, devices ...int) {
	r.Apply(event.Event{Kind: event.DeviceClose, PID: pid, Allocator: 1, Devices: devices})
}

func (r *Run) Exit(pid, status int) {
	r.Apply(event.Event{Kind: event.ProcessExit, PID: pid, ExitStatus: status})
}
