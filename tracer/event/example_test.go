package event_test

import (
	"fmt"

	"ttmem/tracer/event"
)

// An event as the lines of `ttmem log --json` have it.
func ExampleEvent_Record() {
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "step", File: "model.py", Line: 31}})
	e := event.Event{
		Kind: event.Alloc, TimeNs: 1000, PID: 4242, BufferID: 1, Devices: []int{0}, Region: event.L1,
		SizeBytes: 12 << 10, BytesPerBank: 1 << 10, Banks: 12, Stack: stack,
	}
	line, err := event.MarshalJSON(e.Record())
	fmt.Println(string(line), err)
	// Output:
	// {"v":1,"time_ns":1000,"kind":"alloc","pid":4242,"devices":[0],"region":"L1","buffer_id":1,"object":0,"address":0,"size_bytes":12288,"page_size_bytes":0,"layout":"interleaved","bytes_per_bank":1024,"banks":12,"stack":[{"kind":"python","name":"step","file":"model.py","line":31}]} <nil>
}
