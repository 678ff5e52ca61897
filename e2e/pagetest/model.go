package pagetest

import (
	"path/filepath"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// Model returns the events of a program that loads weights and makes four steps on one chip. Each step frees its
// activation and leaves an entry of its history. Marks are set after the first and the last step, and then an
// allocation fails.
func Model() (events []event.Event) {
	call := func(op, function string, line int) *event.Stack {
		return event.StackOf([]event.Frame{
			{Kind: event.Native, Name: "func_create<" + op + ">", Module: "_ttnn.so"},
			{Kind: event.Python, Name: function, File: "/srv/model.py", Line: line},
		})
	}
	load, step, history := call("ttnn.from_torch", "load", 12), call("ttnn.matmul", "step", 31), call("ttnn.add", "step", 33)
	now, id := uint64(1000*Second), uint64(0)
	add := func(e event.Event) {
		now += Second / 10
		e.TimeNs, e.PID, e.Comm = now, 4242, "python3"
		events = append(events, e)
	}
	alloc := func(kind event.Kind, region event.Region, perBank uint64, banks uint32, stack *event.Stack) uint64 {
		id++
		add(event.Event{
			Kind: kind, Allocator: 1, BufferID: id, Devices: []int{0}, Region: region, Address: 0x1000 + id<<20, Stack: stack,
			SizeBytes: perBank * uint64(banks), PageSizeBytes: 2048, BytesPerBank: perBank, Banks: banks,
		})
		return id
	}
	add(event.Event{Kind: event.ProcessStart, Start: &event.Start{Command: "python3 model.py", Release: "0.81.1"}})
	add(event.Event{Kind: event.DeviceOpen, Allocator: 1, Devices: []int{0}, Open: &event.Open{Board: "n150", Arch: "wormhole_b0",
		Capacities: [event.BankedRegions]event.Capacity{
			event.DRAM: {Banks: 12, BytesPerBank: 1 << 30}, event.L1: {Banks: 64, BytesPerBank: 1 << 20},
		}}})
	for range 3 {
		alloc(event.Alloc, event.DRAM, 2<<20, 12, load)
	}
	for n := range 4 {
		activation := alloc(event.Alloc, event.L1, 256<<10, 64, step)
		alloc(event.Alloc, event.DRAM, 1<<20, 12, history)
		add(event.Event{Kind: event.Free, Allocator: 1, BufferID: activation, Devices: []int{0}, Region: event.L1, Reason: event.ReasonExplicit})
		if n == 0 {
			add(event.Event{Kind: event.Mark, Cause: "warm"})
		}
	}
	add(event.Event{Kind: event.Mark, Cause: "trained"})
	alloc(event.AllocFailed, event.L1, 2<<20, 64, step)
	return events
}

// ModelFile records Model in a file in a folder.
func ModelFile(folder string) (path string, err error) {
	path = filepath.Join(folder, "model.ttmem")
	events, state := Model(), aggregate.New()
	f, err := recording.Create(path, recording.FileOptions{Checkpoint: func() func() *event.Event { return state.Freeze(nil) }})
	if err != nil {
		return "", err
	}
	for i := range events {
		state.Apply(&events[i])
		f.Add(&events[i])
	}
	return path, f.Close(recording.End{TimeNs: state.Now()})
}
