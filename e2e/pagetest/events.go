package pagetest

import (
	"fmt"

	"ttmem/tracer/event"
)

var Capacities = [event.BankedRegions]event.Capacity{
	event.DRAM: {Banks: 12, BytesPerBank: 1 << 20, Base: 0x1000},
	event.L1:   {Banks: 64, BytesPerBank: 0x10000, Base: 0x8000},
}

// Buffer is an Alloc or a Free of PID 4242.
func Buffer(kind event.Kind, id uint64, region event.Region, address, perBank uint64, stack *event.Stack, devices ...int) event.Event {
	e := event.Event{
		Kind: kind, PID: 4242, TID: 4242, Comm: "python3", Devices: devices, Region: region, BufferID: id,
		Object: 0x7f0000001000 + id*0x100, Allocator: 1, Address: address, SizeBytes: perBank * 12, PageSizeBytes: 2048,
		BytesPerBank: perBank, Banks: 12, Stack: stack,
	}
	if kind == event.Free {
		e.Reason, e.Stack = event.ReasonExplicit, nil
	}
	return e
}

// Emptied is a chip that was nearly full, of DRAM and L1, and has little now.
func Emptied() *Run {
	r := NewRun()
	r.Start(7, "python3 serve.py")
	r.Open(7, "n150", 0)
	r.Alloc(7, event.DRAM, 1<<20, 12, 0)
	dram := r.Alloc(7, event.DRAM, 1000<<20, 12, 0)
	l1 := r.Alloc(7, event.L1, 1200<<10, 64, 0)
	r.Free(7, dram)
	r.Free(7, l1)
	return r
}

// Stack is a stack as a call of ttnn's has it.
func Stack(op, function string, line int) *event.Stack {
	return event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::GraphTracker::track_allocate", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "ttnn::" + op, Module: "_ttnncpp.so"},
		{Kind: event.Native, Name: "nanobind::detail::func_create<ttnn." + op + ">::{lambda#1}", Module: "_ttnn.so"},
		{Kind: event.Python, Name: "__call__", File: "/venv/lib/python3.12/site-packages/ttnn/decorators.py", Line: 1245},
		{Kind: event.Python, Name: function, File: "/srv/model.py", Line: line},
		{Kind: event.Python, Name: "<module>", File: "/srv/run.py", Line: 7},
	})
}

// At is a call stack of an operation, with a line for each of the user's calls,
// innermost first.
func At(op string, lines ...int) *event.Stack {
	frames := []event.Frame{{Kind: event.Native, Name: "func_create<" + op + ">"}}
	for _, line := range lines {
		frames = append(frames, event.Frame{Kind: event.Python, Name: fmt.Sprintf("call_%d", line), File: "/home/someone/a/model.py", Line: line})
	}
	return event.StackOf(frames)
}
