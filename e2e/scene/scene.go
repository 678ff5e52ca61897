// Package scene makes up what happens on a host with many chips, for tests and pictures
// of views. It is the same each time: no clock, no dice.
package scene

import (
	"fmt"

	"ttmem/tracer/event"
)

// A Scene is a host with 32 chips: a server of a large model on all of them, a training
// on the last eight, a test on chip 3. Its server forgets to free what it logs.
type Scene struct {
	// Emit is given each event.
	Emit func(*event.Event)
	// NowNs is the time of the latest event.
	NowNs uint64

	pace          uint64
	ids, programs uint64
	// tokens are what the server frees one after the other.
	tokens []uint64
	stacks map[string]*event.Stack
}

// The processes of a scene.
const (
	Server   = 4242
	Training = 5150
	Test     = 6001
)

// users are the ids of the users of the processes.
var users = map[int]int{Server: 1001, Training: 1002, Test: 1003}

// UserNames are the names of the users.
var UserNames = map[int]string{1001: "alice", 1002: "bob", 1003: "ci"}

// Chips is how many chips there are.
const Chips = 32

// The time at which a scene begins, and between two events while models are loaded and
// when they run, in ns.
const (
	begin    = 1_000_000_000_000
	loadPace = 50_000_000
	pace     = 100_000 // 10,000 events a second
)

// Capacities are those of a chip of a Wormhole Galaxy.
var Capacities = [event.BankedRegions]event.Capacity{
	event.DRAM:    {Banks: 12, BytesPerBank: 1_070_596_096},
	event.L1:      {Banks: 64, BytesPerBank: 1_360_576},
	event.L1Small: {Banks: 64, BytesPerBank: 32_768},
	event.Trace:   {Banks: 12, BytesPerBank: 2_097_152},
}

// New returns a scene of which nothing has happened.
func New(emit func(*event.Event)) *Scene {
	return &Scene{Emit: emit, NowNs: begin, pace: loadPace, stacks: make(map[string]*event.Stack)}
}

// chips are those from a to b.
func chips(a, b int) (ids []int) {
	for id := a; id <= b; id++ {
		ids = append(ids, id)
	}
	return ids
}

// The chips of the processes.
var (
	all  = chips(0, Chips-1)
	last = chips(24, 31)
	one  = []int{3}
)

// Load starts the processes, and loads their models.
func (s *Scene) Load() {
	s.start(Server, "python serve.py --model llama-70b", all)
	for range 80 {
		for _, name := range []string{"wq", "wk", "wv", "wo", "w1", "w2", "w3"} {
			perBank := uint64(614_400)
			if name[1] >= '1' && name[1] <= '3' {
				perBank = 1_638_400
			}
			s.alloc(Server, all, event.DRAM, perBank, weightStack(name))
		}
	}
	for range 80 {
		s.alloc(Server, all, event.DRAM, 1_048_576, cacheStack("k"))
		s.alloc(Server, all, event.DRAM, 1_048_576, cacheStack("v"))
	}
	s.alloc(Server, all, event.L1Small, 2048, call("ttnn.conv2d", "vision.py", 52, "Encoder.forward", "serve.py", 71, "embed"))
	for _, name := range []string{"matmul", "softmax", "rms_norm", "all_gather", "add"} {
		s.program(Server, all, name)
	}
	s.start(Training, "python train.py --data c4", last)
	for range 32 {
		s.alloc(Training, last, event.DRAM, 5_242_880, call("ttnn.from_torch", "train.py", 88, "Layer.__init__", "train.py", 20, "build"))
		s.alloc(Training, last, event.DRAM, 1_048_576, call("ttnn.zeros_like", "adam.py", 31, "Adam.state", "train.py", 120, "build"))
	}
	s.start(Test, "pytest tests/test_conv.py", one)
	s.alloc(Test, one, event.DRAM, 1_048_576, call("ttnn.from_torch", "test_conv.py", 17, "test_conv", "test_conv.py", 9, "run"))
	s.alloc(Test, one, event.L1, 524_288, call("ttnn.to_layout", "test_conv.py", 23, "test_conv", "test_conv.py", 9, "run"))
	for i := range 12 {
		s.alloc(Server, all, event.L1, 24_576, call("ttnn.matmul", "attention.py", 40+i%3, "Attention.forward", "model.py", 61, "Block.forward"))
	}
}

// Step is a token of the server: some 44 events. One tensor of each is never freed.
func (s *Scene) Step() {
	s.pace = pace
	for i := range 20 {
		s.alloc(Server, all, event.L1, 8192, call("ttnn.add", "mlp.py", 30+i%4, "MLP.forward", "model.py", 66, "Block.forward"))
		s.tokens = append(s.tokens, s.ids)
	}
	for len(s.tokens) > 10 {
		s.free(Server, s.tokens[0])
		s.tokens = s.tokens[1:]
	}
	s.alloc(Server, all, event.DRAM, 65_536, call("ttnn.clone", "serve.py", 88, "log_probs", "serve.py", 64, "generate"))
}

// Steps is that many of them.
func (s *Scene) Steps(n int) {
	for range n {
		s.Step()
	}
}

func (s *Scene) emit(e event.Event) {
	s.NowNs += s.pace
	e.TimeNs, e.TID = s.NowNs, e.PID
	s.Emit(&e)
}

func (s *Scene) start(pid int, command string, on []int) {
	s.emit(event.Event{Kind: event.ProcessStart, PID: pid, Comm: "python", Start: &event.Start{Command: command}, UID: users[pid]})
	s.emit(event.Event{
		Kind: event.DeviceOpen, PID: pid, Comm: "python", Devices: on, Open: &event.Open{Board: "galaxy", Arch: "wormhole_b0", Capacities: Capacities},
		Mesh: true, Allocator: 1,
	})
}

func (s *Scene) alloc(pid int, on []int, region event.Region, perBank uint64, frames []event.Frame) {
	s.ids++
	banks := Capacities[region].Banks
	s.emit(event.Event{
		Kind: event.Alloc, PID: pid, Comm: "python", Devices: on, Region: region, BufferID: s.ids, Allocator: 1,
		SizeBytes: perBank * uint64(banks), PageSizeBytes: 2048, BytesPerBank: perBank, Banks: banks, Stack: s.stack(frames),
	})
}

func (s *Scene) free(pid int, id uint64) {
	s.emit(event.Event{Kind: event.Free, PID: pid, Comm: "python", BufferID: id, Reason: event.ReasonExplicit})
}

// program is one with three circular buffers on 64 cores.
func (s *Scene) program(pid int, on []int, op string) {
	s.programs++
	s.emit(event.Event{
		Kind: event.KernelLoad, PID: pid, Devices: on, Region: event.Kernel, ProgramID: s.programs,
		SizeBytes: 20_480, BytesPerBank: 10_240 + 512*s.programs,
	})
	frames := call("ttnn."+op, "model.py", 60+int(s.programs), "Block.forward", "model.py", 90, "Model.forward")
	for i := range uint64(3) {
		s.emit(event.Event{
			Kind: event.CBAlloc, PID: pid, Devices: on, Region: event.CB, ProgramID: s.programs, StaticKind: event.CircularBuffer,
			Address: 107_712 + i*65_536, SizeBytes: 65_536 - 4096*s.programs, Cores: []event.CoreRange{{X1: 7, Y1: 7}},
			Stack: s.stack(frames),
		})
	}
}

// stack is the one of the frames, shared by all that is from there.
func (s *Scene) stack(frames []event.Frame) *event.Stack {
	key := fmt.Sprint(frames)
	if s.stacks[key] == nil {
		s.stacks[key] = event.StackOf(frames)
	}
	return s.stacks[key]
}

func weightStack(name string) []event.Frame {
	part, line := "attention.py", 22
	if name[1] >= '1' && name[1] <= '3' {
		part, line = "mlp.py", 14
	}
	return call("ttnn.from_torch", part, line+int(name[1])%16, "load_"+name, "model.py", 40, "Model.load")
}

func cacheStack(name string) []event.Frame {
	return call("ttnn.zeros", "cache.py", 12+int(name[0])%3, "KVCache.__init__", "model.py", 48, "Model.load")
}

// call is the stack of an operation that two of the user's functions called.
func call(op, file string, line int, function, callerFile string, callerLine int, caller string) []event.Frame {
	const home = "/home/user/llama/"
	name := "ttnn::" + op[len("ttnn."):]
	return []event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::GraphTracker::track_allocate", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "tt::tt_metal::BufferImpl::create", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "tt::tt_metal::distributed::MeshBuffer::create", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "ttnn::create_device_tensor", Module: "_ttnncpp.so"},
		{Kind: event.Native, Name: name, Module: "_ttnncpp.so"},
		{Kind: event.Native, Name: "nanobind::detail::func_create<" + op + ">::{lambda#1}", Module: "_ttnn.cpython-310-x86_64-linux-gnu.so"},
		{Kind: event.Python, Name: "__call__", File: "/usr/lib/python3/dist-packages/ttnn/decorators.py", Line: 512},
		{Kind: event.Python, Name: function, File: home + file, Line: line},
		{Kind: event.Python, Name: caller, File: home + callerFile, Line: callerLine},
		{Kind: event.Python, Name: "main", File: home + "main.py", Line: 12},
		{Kind: event.Python, Name: "<module>", File: home + "main.py", Line: 20},
	}
}
