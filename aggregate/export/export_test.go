package export

import (
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

const second = 1_000_000_000

// a run is a profile in the making, each event a tenth of a second after the
// one before.
type run struct {
	state   *aggregate.State
	now, id uint64
}

func newRun() *run {
	r := &run{state: aggregate.New(), now: 1000 * second}
	r.state.KeepSites()
	return r
}

func (r *run) apply(e event.Event) {
	r.now += second / 10
	e.TimeNs = r.now
	for implied := range r.state.Implied(&e) {
		r.state.Apply(implied)
	}
	r.state.Apply(&e)
}

func (r *run) start(pid int, comm, command string) {
	r.apply(event.Event{Kind: event.ProcessStart, PID: pid, Comm: comm, Start: &event.Start{Command: command}})
}

// alloc allocates bytes of one bank and returns the buffer's id.
func (r *run) alloc(pid int, region event.Region, bytes uint64, stack *event.Stack, devices ...int) uint64 {
	r.id++
	r.apply(event.Event{
		Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.id, Devices: devices, Region: region,
		SizeBytes: bytes, BytesPerBank: bytes, Banks: 1, Stack: stack,
	})
	return r.id
}

func (r *run) free(pid int, id uint64) {
	r.apply(event.Event{Kind: event.Free, PID: pid, BufferID: id, Reason: event.ReasonExplicit})
}

func python(name, file string, line int) event.Frame {
	return event.Frame{Kind: event.Python, Name: name, Symbol: name, File: file, Line: line}
}

const (
	metalID = "9f2c5b3d8e6a41707d6c0f1a2b3c4d5e6f708192"
	ttnnID  = "0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f60718293a"
)

func metal(name, symbol string, address uint64) event.Frame {
	return event.Frame{
		Kind: event.Native, Name: name, Symbol: symbol, Module: "libtt_metal.so", BuildID: metalID, Address: address,
	}
}

// allocator is what is innermost of every stack, with an inlined function.
func allocator() []event.Frame {
	inlined := metal("tt::tt_metal::GraphTracker::instance", "_ZN2tt8tt_metal12GraphTracker8instanceEv", 0x41f2a3)
	inlined.Inlined, inlined.File, inlined.Line = true, "/project/tt_metal/graph/graph_tracking.hpp", 71
	outer := metal("tt::tt_metal::BufferImpl::allocate_impl", "_ZN2tt8tt_metal10BufferImpl13allocate_implEv", 0x41f2a3)
	outer.File, outer.Line = "/project/tt_metal/impl/buffers/buffer.cpp", 428
	return []event.Frame{
		inlined, outer,
		metal("tt::tt_metal::distributed::MeshBuffer::create", "_ZN2tt8tt_metal11distributed10MeshBuffer6createE", 0x3a1190),
	}
}

func ttnn(name string, address uint64) event.Frame {
	return event.Frame{Kind: event.Native, Name: name, Module: "_ttnn.so", BuildID: ttnnID, Address: address}
}

func stackOf(parts ...any) *event.Stack {
	var list []event.Frame
	for _, p := range parts {
		switch p := p.(type) {
		case event.Frame:
			list = append(list, p)
		case []event.Frame:
			list = append(list, p...)
		}
	}
	return event.StackOf(list)
}

var main = python("<module>", "/srv/models/demo.py", 212)

// smallRun has all that can come: two processes, chips and regions, a buffer
// that lives, one of the peak, one without a stack, a circular buffer and
// kernels, and names that mean harm.
func smallRun() *run {
	r := newRun()
	r.start(1234, "python3", "python3 demo.py --batch 8")
	weights := stackOf(allocator(), ttnn("ttnn::as_tensor", 0x88120), python("load", "/srv/models/weights.py", 31), main)
	forward := stackOf(allocator(), ttnn("ttnn::matmul", 0x99a40), python("forward", "/srv/models/model.py", 123), main)
	program := stackOf(
		metal("tt::tt_metal::ProgramImpl::allocate_circular_buffers", "", 0x52ab10), ttnn("", 0x99a88),
		python("forward", "/srv/models/model.py", 124), main,
	)
	hostile := stackOf(
		event.Frame{Kind: event.Native, Name: "a;b\nc 12", Module: "lib;x.so", Address: 0x10},
		python("</script><img src=x onerror=alert(1)>", "/srv/\"é\u2028'.py", 1), main,
	)
	r.alloc(1234, event.DRAM, 64<<20, weights, 0, 1)
	activation := r.alloc(1234, event.L1, 512<<10, forward, 0)
	r.apply(event.Event{
		Kind: event.CBAlloc, PID: 1234, ProgramID: 1, Devices: []int{0}, Address: 100000, SizeBytes: 4096,
		Cores: []event.CoreRange{{X1: 7, Y1: 7}}, StaticKind: event.CircularBuffer, Stack: program,
	})
	r.apply(event.Event{
		Kind: event.KernelLoad, PID: 1234, ProgramID: 1, Devices: []int{0}, SizeBytes: 40 << 10, Stack: program,
	})
	r.free(1234, activation)
	r.alloc(1234, event.DRAM, 1<<20, nil, 0)
	r.start(1300, "work;er\n", "")
	r.alloc(1300, event.DRAM, 3<<20, hostile, 1)
	r.free(1300, r.id)
	r.apply(event.Event{Kind: event.ProcessExit, PID: 1234})
	return r
}

var begun = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
