// Package stack records call stacks: it gives the kernel side the data to unwind a process,
// and turns the resulting addresses and Python frames into stacks with names.
package stack

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"weak"

	"ttmem/bpf"
	"ttmem/symbolize/python"
	"ttmem/tracer/event"
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
	shared *Shared // by all processes

	mu sync.Mutex
	// newest is the batch to which stacks are added. older is the batch before it, because
	// events that have not arrived yet may refer to its stacks.
	newest, older *batch
	codes         map[uint32]*python.Code
	codeBytes     int
	// byIdentity has each stack once, whatever way its calls took through the interpreter.
	byIdentity map[uint64]weak.Pointer[event.Stack]
	sweep      int                                 // the length of byIdentity at which unused ones are removed
	scratch    []byte                              // of identity
	calls      map[bpf.KernelPythonCall]pythonCall // resolved ones
	// latest caches the stacks of events, for the event loop only: it needs no lock
	latest *[1 << latestBits]latestStack
}

// A batch has the stacks that were added between two calls of Renew.
type batch struct {
	native map[uint64][]int32 // indices of places
	python map[uint64][]bpf.KernelPythonCall
	shown  map[bpf.KernelStackIds]*event.Stack
	places *places
	known  map[placeKey]int32
	// at is the index of places by address and by the generation of the process's code. recent caches the
	// entries that were used last: most stacks of a program share a few hundred places.
	at         map[uint64]int32
	recent     *[1 << recentBits]recentPlace
	generation uint32
	bytes      int // the approximate memory of the batch
}

// The approximate memory of a batch for each of its parts, besides their length.
const (
	stackBytes = 128
	frameBytes = 16
	callBytes  = 512 // of a call or place, with its names
)

// places are the addresses of the stacks of a batch.
type places struct{ list []place }

func newBatch() *batch {
	return &batch{
		native: make(map[uint64][]int32), python: make(map[uint64][]bpf.KernelPythonCall),
		shown: make(map[bpf.KernelStackIds]*event.Stack), places: new(places), known: make(map[placeKey]int32),
	}
}

// place is an address in a process's stacks, and the file that contains it.
type place struct {
	placeKey
	hash uint64     // of the key
	call nativeCall // resolved on first use
	seen bool
}

// recentBits is the binary logarithm of the number of places in batch.recent.
const recentBits = 9

type recentPlace struct {
	addr  uint64 // 0: empty
	place int32
}

// latestBits is the binary logarithm of the number of stacks in Process.latest.
const latestBits = 9

type latestStack struct {
	ids   bpf.KernelStackIds
	stack *event.Stack // nil: empty
}

type placeKey struct {
	file *codeFile
	addr uint64
}

// NewProcess returns a process without stacks.
func NewProcess(o Options, shared *Shared) *Process {
	return &Process{
		o:          o,
		shared:     shared,
		newest:     newBatch(),
		older:      newBatch(),
		codes:      make(map[uint32]*python.Code),
		byIdentity: make(map[uint64]weak.Pointer[event.Stack]),
		calls:      make(map[bpf.KernelPythonCall]pythonCall),
	}
}

// addNative adds a native stack; view is the process's code at that time.
func (s *Process) addNative(id uint64, generation uint32, addresses []uint64, view *spaceView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.newest
	if b.native[id] != nil {
		return // the kernel side forgot that it had sent the stack
	}
	if b.generation != generation || b.at == nil {
		b.at, b.generation = make(map[uint64]int32), generation
		b.recent = new([1 << recentBits]recentPlace)
	}
	stack := make([]int32, len(addresses))
	b.native[id] = stack
	b.bytes += stackBytes + frameBytes*len(addresses)
	for i, addr := range addresses {
		recent := &b.recent[addr%(1<<recentBits)]
		if recent.addr != addr || addr == 0 {
			*recent = recentPlace{addr, b.placeOf(addr, view)}
		}
		stack[i] = recent.place
	}
}

// placeOf returns the index of the place at an address.
func (b *batch) placeOf(addr uint64, view *spaceView) int32 {
	if i, ok := b.at[addr]; ok {
		return i
	}
	key := placeKey{anonymous, addr}
	if view != nil {
		if m, ok := view.find(addr); ok && m.file != anonymous {
			key = placeKey{m.file, addr - m.bias}
		}
	}
	i, ok := b.known[key]
	if !ok {
		i = int32(len(b.places.list))
		b.places.list = append(b.places.list, place{placeKey: key, hash: maphash.Comparable(identitySeed, key)})
		b.bytes += callBytes
		b.known[key] = i
	}
	b.at[addr] = i
	return i
}

func (s *Process) addPython(id uint64, calls []bpf.KernelPythonCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest.python[id] == nil {
		s.newest.python[id] = append(make([]bpf.KernelPythonCall, 0, len(calls)), calls...)
		s.newest.bytes += stackBytes + frameBytes*len(calls)
	}
}

// StackBytes returns the approximate memory of the stacks.
func (s *Process) StackBytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest.bytes + s.older.bytes
}

// Renew begins a new batch, makes the present one the older one and drops that. It returns the
// bytes of both. The kernel side has to report every stack again: see Spaces.Renew.
func (s *Process) Renew() (bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes = s.newest.bytes + s.older.bytes
	s.newest, s.older = newBatch(), s.newest
	clear(s.calls)
	s.latest = nil // the kernel side reports them again
	if len(s.byIdentity) >= s.sweep {
		maps.DeleteFunc(s.byIdentity, func(_ uint64, w weak.Pointer[event.Stack]) bool { return w.Value() == nil })
		s.sweep = 2 * len(s.byIdentity)
	}
	return bytes
}

// addCode adds a code object. If tableAt is not 0, it has only a part of the line table of one that was
// added before: the bytes from there on.
func (s *Process) addCode(id uint32, tableAt int, code *python.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tableAt > 0 {
		if of := s.codes[id]; of != nil && len(of.LineTable) == tableAt && tableAt < maxTable {
			of.LineTable = append(of.LineTable, code.LineTable...)
			s.codeBytes += len(code.LineTable)
		}
		return
	}
	if s.codes[id] != nil {
		return // the process forgot others: all are sent again
	}
	s.codes[id] = code
	s.codeBytes += codeSize(code)
}

// maxTable is the size from which on the kernel side sends no further part of a line table: MAX_TABLE.
const maxTable = 1 << 16

// CodeBytes returns the approximate memory of the code objects. A program may create them without
// end, and no event says which were freed.
func (s *Process) CodeBytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.codeBytes
}

// ForgetCode drops half of the code objects, and returns their bytes: those that the newest stacks have
// least calls of, the oldest first. From then on, their calls have no names unless they were looked up
// before, or the kernel side sends the code again: see bpf.ProcessForgetCode.
func (s *Process) ForgetCode() (bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, calls := s.codeBytes, s.newestCalls()
	least := slices.SortedFunc(maps.Keys(s.codes), func(a, b uint32) int {
		return cmp.Or(cmp.Compare(calls[a], calls[b]), cmp.Compare(a, b)) // ids ascend
	})
	for n := 0; s.codeBytes > before/2; n++ {
		s.codeBytes -= codeSize(s.codes[least[n]])
		delete(s.codes, least[n])
	}
	return before - s.codeBytes
}

// countedCalls bounds the calls that newestCalls counts: of more, some stacks are a sample.
const countedCalls = 1 << 16

// newestCalls counts calls in stacks, those of the newest batch first, by the ids of their code; s.mu is
// held.
func (s *Process) newestCalls() map[uint32]int {
	calls, n := make(map[uint32]int), 0
	for _, b := range []*batch{s.newest, s.older} {
		for _, stack := range b.python {
			for _, c := range stack {
				calls[c.Code]++
			}
			if n += len(stack); n >= countedCalls {
				return calls
			}
		}
	}
	return calls
}

// codeSize returns the approximate memory of a code object.
func codeSize(c *python.Code) int {
	return 256 + len(c.Name) + len(c.QualName) + len(c.File) + len(c.LineTable)
}

// Stack returns the stack of an event; nil if it has none. Only the event loop calls it, and Renew.
func (s *Process) Stack(ids bpf.KernelStackIds) *event.Stack {
	if ids.Native == 0 && ids.Python == 0 {
		return nil
	}
	if s.latest == nil {
		s.latest = new([1 << latestBits]latestStack)
	}
	latest := &s.latest[(ids.Native^ids.Python)%(1<<latestBits)]
	if latest.stack == nil || latest.ids != ids {
		*latest = latestStack{ids, s.find(ids)}
	}
	return latest.stack
}

// find looks a stack up in the batches, and adds it to the newest one if it is not there.
func (s *Process) find(ids bpf.KernelStackIds) *event.Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stack := s.newest.shown[ids]; stack != nil {
		return stack
	}
	p := s.parts(ids)
	id, known := s.identity(ids, p)
	var stack *event.Stack
	if known {
		stack = s.byIdentity[id].Value()
	} else {
		stack = s.older.shown[ids]
	}
	if stack == nil {
		s.shared.lastID++
		one := &shownStack{process: s, ids: ids, parts: p, known: known}
		one.Begin(s.shared.lastID, one)
		stack = &one.Stack
	}
	if known {
		s.byIdentity[id] = weak.Make(stack)
	}
	s.newest.shown[ids] = stack
	return stack
}

// A shownStack is a stack, and what its calls are looked up from until they are.
type shownStack struct {
	event.Stack
	process *Process
	ids     bpf.KernelStackIds
	parts   parts
	known   bool // all parts are
}

// LookUp returns the calls, and lets go of what is not needed again.
func (s *shownStack) LookUp() []*event.Call {
	p := s.process
	p.mu.Lock()
	defer p.mu.Unlock()
	of := s.parts
	if !s.known {
		of = p.parts(s.ids) // a missing part may have arrived since
	}
	s.process, s.parts = nil, parts{}
	return p.resolve(of)
}

// parts are the two parts of a stack; nil if they are not known. They stay valid when batches are
// dropped.
type parts struct {
	native []int32
	of     *places // of native
	python []bpf.KernelPythonCall
}

// parts looks up the parts of a stack; s.mu is held.
func (s *Process) parts(ids bpf.KernelStackIds) (p parts) {
	for _, b := range []*batch{s.newest, s.older} {
		if p.native == nil && ids.Native != 0 {
			p.native, p.of = b.native[ids.Native], b.places
		}
		if p.python == nil && ids.Python != 0 {
			p.python = b.python[ids.Python]
		}
	}
	return p
}

var identitySeed = maphash.MakeSeed()

// identity returns a number that is equal for stacks that look the same when they are shown. From
// call to call the interpreter takes different ways through its own code, which would split one
// call site into several. It is not known if a part of the stack is missing. s.mu is held.
func (s *Process) identity(ids bpf.KernelStackIds, of parts) (id uint64, known bool) {
	if ids.Native != 0 && of.native == nil || ids.Python != 0 && of.python == nil {
		return 0, false
	}
	b := s.scratch[:0]
	for _, i := range of.native {
		p := &of.of.list[i]
		switch {
		case p.file.python == nil || s.o.AllFrames:
			b = binary.NativeEndian.AppendUint64(b, p.hash)
		case p.file.inEval(p.addr): // the place of the Python calls
			b = binary.NativeEndian.AppendUint64(b, 0)
		}
	}
	b = binary.NativeEndian.AppendUint64(b, math.MaxUint64)
	for _, c := range of.python {
		b = binary.NativeEndian.AppendUint64(b, uint64(c.Code)<<32|uint64(c.Place))
	}
	s.scratch = b
	return maphash.Bytes(identitySeed, b), true
}

// resolve looks up the names and lines of a stack; s.mu is held.
func (s *Process) resolve(of parts) []*event.Call {
	var native []nativeCall
	var python []pythonCall
	for _, i := range of.native {
		p := &of.of.list[i]
		if !p.seen {
			p.seen = true
			p.call = nativeCall{eval: p.file.inEval(p.addr), interpreter: p.file.python != nil}
			if !p.call.interpreter || s.o.AllFrames {
				p.call.shown = s.shared.call(p.file.frame(p.addr, s.o.FullNames))
			}
		}
		native = append(native, p.call)
	}
	for _, c := range of.python {
		call, known := s.calls[c]
		if !known {
			call = s.pythonCall(c)
		}
		python = append(python, call)
	}
	return interleave(native, python, s.o.AllFrames)
}

// pythonCall resolves a Python call; s.mu is held.
func (s *Process) pythonCall(c bpf.KernelPythonCall) pythonCall {
	f := event.Frame{Kind: event.Python}
	code := s.codes[c.Code]
	if code != nil {
		f.Name, f.Symbol, f.File = code.QualName, code.Name, code.File
		if f.Name == "" {
			f.Name = code.Name
		}
		f.Line = code.Line(int(int32(c.Place<<1) >> 1)) // without bpf.PythonEntry, sign-extended
	}
	call := pythonCall{s.shared.call(f), c.Place&bpf.PythonEntry != 0}
	if code != nil { // else it may come later
		s.calls[c] = call
		s.newest.bytes += callBytes
	}
	return call
}
