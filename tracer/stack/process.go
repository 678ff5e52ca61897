// Package stack records call stacks: it gives the kernel side the data to unwind a process,
// and turns the resulting addresses and Python frames into stacks with names.
package stack

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
	"ttmem/symbolize/python"
	"ttmem/tracer/event"
	"ttmem/tracer/kernel"
)

// Options select how stacks are shown.
type Options struct {
	// FullNames shows C++ functions with parameters and template arguments.
	FullNames bool
	// AllFrames keeps the interpreter's own calls between Python's.
	AllFrames bool
}

// Process are the stacks of a process. The kernel side sends each stack once; names and
// lines are resolved on first use.
type Process struct {
	o      Options
	lastID *uint64 // shared by all processes

	mu     sync.Mutex
	native lists[int32] // indices of places
	python lists[bpf.KernelPythonCall]
	codes  map[uint32]*python.Code
	shown  map[bpf.KernelStackIds]*event.Stack
	// byIdentity has each stack once, however the interpreter came to its calls.
	byIdentity map[uint64]*event.Stack
	places     []place
	known      map[placeKey]int32
	// at is the index of places by address and by the generation of the process's code
	at         map[uint64]int32
	generation uint32
	// recent caches recently used entries of at
	recent *[1 << recentBits]recentPlace
	calls  map[bpf.KernelPythonCall]pythonCall // resolved ones
	// called caches recently used entries of calls
	called *[1 << recentBits]recentCall
	// scratch space for the two parts of a stack
	nativeCalls []nativeCall
	pythonCalls []pythonCall
}

// place is an address in a process's stacks, and the file that contains it.
type place struct {
	placeKey
	call nativeCall // resolved on first use
	seen bool
}

// recentBits is the binary logarithm of the size of these caches: most stacks of a program
// share a few hundred places and calls.
const recentBits = 9

// recentSlot hashes a number to a slot of a cache.
func recentSlot(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 >> (64 - recentBits) }

type recentPlace struct {
	addr  uint64 // 0: empty
	place int32
}

type recentCall struct {
	of   bpf.KernelPythonCall
	call pythonCall // without shown: empty
}

type placeKey struct {
	file *codeFile
	addr uint64
}

// NewProcess returns a process without stacks. lastID counts the stacks of all processes.
func NewProcess(o Options, lastID *uint64) *Process {
	return &Process{
		o:          o,
		lastID:     lastID,
		native:     newLists[int32](),
		python:     newLists[bpf.KernelPythonCall](),
		codes:      make(map[uint32]*python.Code),
		shown:      make(map[bpf.KernelStackIds]*event.Stack),
		byIdentity: make(map[uint64]*event.Stack),
		known:      make(map[placeKey]int32),
		calls:      make(map[bpf.KernelPythonCall]pythonCall),
		called:     new([1 << recentBits]recentCall),
	}
}

// addNative adds a native stack; view is the process's code at that time.
func (s *Process) addNative(id uint64, generation uint32, addresses []uint64, view *spaceView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation || s.at == nil {
		s.at, s.generation = make(map[uint64]int32), generation
		s.recent = new([1 << recentBits]recentPlace)
	}
	stack := s.native.add(id, len(addresses))
	for i, addr := range addresses {
		recent := &s.recent[recentSlot(addr)]
		if recent.addr != addr || addr == 0 {
			*recent = recentPlace{addr, s.placeOf(addr, view)}
		}
		stack[i] = recent.place
	}
}

// placeOf returns the index of the place at an address; s.mu is held.
func (s *Process) placeOf(addr uint64, view *spaceView) int32 {
	if i, ok := s.at[addr]; ok {
		return i
	}
	key := placeKey{anonymous, addr}
	if view != nil {
		if m, ok := view.find(addr); ok && m.file != anonymous {
			key = placeKey{m.file, addr - m.bias}
		}
	}
	i, ok := s.known[key]
	if !ok {
		i = int32(len(s.places))
		s.places = append(s.places, place{placeKey: key})
		s.known[key] = i
	}
	s.at[addr] = i
	return i
}

func (s *Process) addPython(id uint64, calls []bpf.KernelPythonCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(s.python.add(id, len(calls)), calls)
}

func (s *Process) addCode(r *bpf.KernelCodeRecord, table []byte) {
	text := func(t bpf.KernelText, data []uint8) string {
		return python.DecodeString(t.State, data[:min(int(t.Bytes), len(data))])
	}
	code := &python.Code{
		Minor: int(r.Minor), Name: text(r.Name, r.NameData[:]), QualName: text(r.Qualname, r.QualnameData[:]),
		File: text(r.File, r.FileData[:]), FirstLine: int(int32(r.FirstLine)),
		LineTable: append([]byte(nil), table...),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[r.Id] = code
}

// Stack returns the stack of an event; nil if it has none.
func (s *Process) Stack(ids bpf.KernelStackIds) *event.Stack {
	if ids.Native == 0 && ids.Python == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stack := s.shown[ids]
	if stack == nil {
		id, known := s.identity(ids)
		if known {
			stack = s.byIdentity[id]
		}
		if stack == nil {
			*s.lastID++
			stack = event.NewStack(*s.lastID, func() []*event.Call { return s.resolve(ids) })
		}
		if known {
			s.byIdentity[id] = stack
		}
		s.shown[ids] = stack
	}
	return stack
}

var identitySeed = maphash.MakeSeed()

// identity is equal for stacks that are shown alike: the interpreter takes different ways
// through its own code from one call to the next, which would split one call site into
// several. It is not known if a part of the stack is missing. s.mu is held.
func (s *Process) identity(ids bpf.KernelStackIds) (id uint64, known bool) {
	native, python := s.native.get(ids.Native), s.python.get(ids.Python)
	if ids.Native != 0 && native == nil || ids.Python != 0 && python == nil {
		return 0, false
	}
	var h maphash.Hash
	h.SetSeed(identitySeed)
	var b [8]byte
	write := func(n uint64) {
		binary.NativeEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	for _, i := range native {
		p := &s.places[i]
		switch {
		case p.file.python == nil || s.o.AllFrames:
			write(uint64(i) + 1)
		case p.file.inEval(p.addr): // here the Python calls are
			write(0)
		}
	}
	write(math.MaxUint64)
	for _, c := range python {
		write(uint64(c.Code)<<32 | uint64(c.Place))
	}
	return h.Sum64(), true
}

// resolve looks up the names and lines of a stack.
func (s *Process) resolve(ids bpf.KernelStackIds) []*event.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	native, python := s.nativeCalls[:0], s.pythonCalls[:0]
	for _, i := range s.native.get(ids.Native) {
		p := &s.places[i]
		if !p.seen {
			p.seen = true
			p.call = nativeCall{eval: p.file.inEval(p.addr), interpreter: p.file.python != nil}
			if !p.call.interpreter || s.o.AllFrames {
				p.call.shown = event.NewCall([]event.Frame{p.file.frame(p.addr, s.o.FullNames)})
			}
		}
		native = append(native, p.call)
	}
	for _, c := range s.python.get(ids.Python) {
		recent := &s.called[recentSlot(uint64(c.Code)<<32|uint64(c.Place))]
		if recent.of != c || recent.call.shown == nil {
			call, known := s.calls[c]
			if !known {
				call, known = s.pythonCall(c)
			}
			if !known {
				python = append(python, call)
				continue
			}
			*recent = recentCall{c, call}
		}
		python = append(python, recent.call)
	}
	s.nativeCalls, s.pythonCalls = native, python
	return interleave(native, python, s.o.AllFrames)
}

// pythonCall resolves a Python call, and reports whether its code object is known by now;
// s.mu is held.
func (s *Process) pythonCall(c bpf.KernelPythonCall) (call pythonCall, known bool) {
	f := event.Frame{Kind: event.Python}
	code := s.codes[c.Code]
	if code != nil {
		f.Name, f.Symbol, f.File = code.QualName, code.Name, code.File
		if f.Name == "" {
			f.Name = code.Name
		}
		f.Line = code.Line(int(int32(c.Place<<1) >> 1)) // without bpf.PythonEntry, sign-extended
	}
	call = pythonCall{event.NewCall([]event.Frame{f}), c.Place&bpf.PythonEntry != 0}
	if code != nil { // else it may come later
		s.calls[c] = call
	}
	return call, code != nil
}

// forget removes the process's stacks from the kernel side, until stop is closed.
func (s *Process) forget(objs *kernel.Objects, stop <-chan struct{}) {
	s.mu.Lock()
	ids := slices.AppendSeq(slices.Collect(maps.Keys(s.native.at)), maps.Keys(s.python.at))
	s.mu.Unlock()
	remove := func(m *ebpf.Map, key any) bool {
		select {
		case <-stop:
			return false
		default:
			_ = m.Delete(key) // it may be gone already
			return true
		}
	}
	for i := range ids {
		if !remove(objs.Stacks, &ids[i]) {
			return
		}
	}
}
