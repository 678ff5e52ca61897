package tracer

import (
	"sync"

	"ttmem/bpf"
	"ttmem/symbolize/python"
	"ttmem/tracer/event"
)

// stackOptions say how stacks are shown.
type stackOptions struct {
	// fullNames has C++ functions named with parameters and template arguments.
	fullNames bool
	// allFrames keeps the interpreter's own calls between Python's.
	allFrames bool
}

// processStacks are the stacks of a process. They come from the kernel side once
// each; names and lines are looked up when somebody asks for them.
type processStacks struct {
	o stackOptions

	mu     sync.Mutex
	native map[uint64][]int32 // indices of places, which the garbage collector can pass by
	python map[uint64][]bpf.KernelPythonCall
	codes  map[uint32]*python.Code
	keys   []bpf.KernelObjectKey // of the kernel side's code objects
	shown  map[bpf.KernelStackIds]*event.Stack
	places []place
	known  map[placeKey]int32
	// at are the places by where they were in the process, in the state of its
	// code that has this number
	at         map[uint64]int32
	generation uint32
	calls      map[bpf.KernelPythonCall]pythonCall // that were asked for
	// room for the two parts of one stack
	nativeCalls []nativeCall
	pythonCalls []pythonCall
}

// place is an address that stacks of a process have, in the file that has it.
type place struct {
	placeKey
	call nativeCall // looked up when somebody asks
	seen bool
}

type placeKey struct {
	file *codeFile
	addr uint64
}

func newProcessStacks(o stackOptions) *processStacks {
	return &processStacks{
		o:      o,
		native: make(map[uint64][]int32),
		python: make(map[uint64][]bpf.KernelPythonCall),
		codes:  make(map[uint32]*python.Code),
		shown:  make(map[bpf.KernelStackIds]*event.Stack),
		known:  make(map[placeKey]int32),
		calls:  make(map[bpf.KernelPythonCall]pythonCall),
	}
}

// addNative takes a native stack; view is the process's code as it was then.
func (s *processStacks) addNative(r *bpf.KernelNativeRecord, addresses []uint64, view *spaceView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != r.Generation {
		s.at, s.generation = make(map[uint64]int32), r.Generation
	}
	stack := make([]int32, 0, len(addresses))
	for _, addr := range addresses {
		if i, ok := s.at[addr]; ok {
			stack = append(stack, i)
			continue
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
		stack = append(stack, i)
	}
	s.native[r.Id] = stack
}

func (s *processStacks) addPython(id uint64, calls []bpf.KernelPythonCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.python[id] = append([]bpf.KernelPythonCall(nil), calls...)
}

func (s *processStacks) addCode(r *bpf.KernelCodeRecord, table []byte) {
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
	s.keys = append(s.keys, bpf.KernelObjectKey{Tgid: r.H.Tgid, Image: r.Image, Object: r.Object})
}

// nextStackID makes the ids of stacks; the decoder alone uses it.
var nextStackID uint64

// stack is the stack that an event has; nil where none was taken.
func (s *processStacks) stack(ids bpf.KernelStackIds) *event.Stack {
	if ids.Native == 0 && ids.Python == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stack := s.shown[ids]
	if stack == nil {
		nextStackID++
		stack = event.NewStack(nextStackID, func() []*event.Call { return s.resolve(ids) })
		s.shown[ids] = stack
	}
	return stack
}

// resolve looks up the names and lines of a stack.
func (s *processStacks) resolve(ids bpf.KernelStackIds) []*event.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	native, python := s.nativeCalls[:0], s.pythonCalls[:0]
	for _, i := range s.native[ids.Native] {
		p := &s.places[i]
		if !p.seen {
			p.seen = true
			p.call = nativeCall{eval: p.file.inEval(p.addr), interpreter: p.file.python != nil}
			if !p.call.interpreter || s.o.allFrames {
				p.call.shown = event.NewCall(p.file.frames(p.addr, s.o.fullNames))
			}
		}
		native = append(native, p.call)
	}
	for _, c := range s.python[ids.Python] {
		call, known := s.calls[c]
		if !known {
			call = s.pythonCall(c)
		}
		python = append(python, call)
	}
	s.nativeCalls, s.pythonCalls = native, python
	return weave(native, python, s.o.allFrames)
}

// pythonCall looks up a call of Python; s.mu is held.
func (s *processStacks) pythonCall(c bpf.KernelPythonCall) pythonCall {
	f := event.Frame{Kind: event.Python}
	code := s.codes[c.Code]
	if code != nil {
		f.Name, f.Symbol, f.File = code.QualName, code.Name, code.File
		if f.Name == "" {
			f.Name = code.Name
		}
		f.Line = code.Line(int(int32(c.Place<<1) >> 1)) // without pythonEntry, with its sign
	}
	call := pythonCall{event.NewCall([]event.Frame{f}), c.Place&pythonEntry != 0}
	if code != nil { // or it may come later
		s.calls[c] = call
	}
	return call
}

// forgetStacks drops what the kernel side knows of the stacks of a process.
func (t *Tracer) forgetStacks(s *processStacks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// some may be gone already
	for id := range s.native {
		_ = t.objs.Stacks.Delete(&id)
	}
	for id := range s.python {
		_ = t.objs.Stacks.Delete(&id)
	}
	for i := range s.keys {
		_ = t.objs.Codes.Delete(&s.keys[i])
	}
}
