package stack

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// Spaces keeps the address spaces of traced processes as the kernel side has
// them. A nil one keeps none: no stacks are taken.
type Spaces struct {
	objs   *kernel.Objects
	inner  *ebpf.MapSpec
	tables *unwindTables
	warn   func(string)

	wake    chan struct{}
	stopped chan struct{}

	mu    sync.Mutex
	byPID map[int]*space
	// files are those that a process maps, or that a stack that is kept has
	files    map[host.FileID]weak.Pointer[codeFile]
	byBuild  map[string]*kernelTable
	dirty    map[int]bool
	slots    []bool // taken; 0 is none
	nextSlot int
	// generation is the number of the newest state of any process.
	generation uint32
	// prepared are the tables, and kept the files, of what was read before any process
	// was known to map it.
	prepared []*kernelTable
	kept     []*codeFile
	// attaching is held for writing while a library is attached to: that is in a
	// hurry, and what is done here can wait.
	attaching sync.RWMutex
	// updating is held while a process's state is worked out.
	updating sync.Mutex
	// removing are probes that are being removed.
	removing sync.WaitGroup
	// collecting is true while a collection is due that closes files that nothing uses.
	collecting atomic.Bool
}

// space is a process's address space.
type space struct {
	slot    uint32
	begunNs uint64                // when its mappings were first read
	execID  uint32                // the number of its first state
	views   map[uint32]*spaceView // by generation
	newest  *spaceView
	tables  []*kernelTable
	python  *pythonSpace // nil: none that can be read
	loader  io.Closer    // the probe on its dynamic linker; nil: none
	// lacksRows: some of the newest state's files have rows that were not read yet
	lacksRows bool
	warned    bool
}

// spaceView is one state of a process's address space. It does not change.
type spaceView struct {
	generation uint32
	mappings   []codeMapping // ascending
}

// codeMapping is code that a process has mapped.
type codeMapping struct {
	start, end, bias uint64
	file             *codeFile
}

// pythonSpace is the CPython in a process.
type pythonSpace struct {
	dealloc io.Closer
}

// viewsKept is how many states of a process are kept: stacks come a few
// milliseconds after they were taken.
const viewsKept = 64

// NewSpaces knows no process yet. warn gets what stacks cannot be taken of.
func NewSpaces(warn func(string)) *Spaces {
	return &Spaces{
		warn: warn, wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		byPID: make(map[int]*space), files: make(map[host.FileID]weak.Pointer[codeFile]),
		byBuild: make(map[string]*kernelTable), dirty: make(map[int]bool),
	}
}

// Pause has files that are read here wait until resume is called: a library that is
// attached to is in a hurry.
func (s *Spaces) Pause() (resume func()) {
	if s == nil {
		return func() {}
	}
	s.attaching.Lock()
	return s.attaching.Unlock
}

// Start has the kernel told from now on of what changes.
func (s *Spaces) Start(objs *kernel.Objects) (err error) {
	if s == nil {
		return nil
	}
	spec := objs.Support.Spec
	if s.tables, err = newUnwindTables(objs, spec.Maps["chunks"]); err != nil {
		return err
	}
	s.objs, s.inner = objs, spec.Maps["spaces"].InnerMap
	s.slots = make([]bool, objs.Spaces.MaxEntries())
	go s.work()
	return nil
}

// Started settles what has changed until now, and lets go of what was read before.
func (s *Spaces) Started() {
	if s == nil {
		return
	}
	s.Settle()
	s.kept = nil
}

// Read reads the files that processes map, as far as that can be done before the
// kernel side is loaded.
func (s *Spaces) Read(pids []int) {
	for _, pid := range pids {
		if code, err := host.CodeMappings(pid); err == nil {
			mappings := s.open(pid, code)
			s.each(len(mappings), func(i int) { mappings[i].file.unwindRows() })
			for _, m := range mappings {
				s.kept = append(s.kept, m.file) // until the process is known
			}
		}
	}
}

// Changed says that a process maps other code than before.
func (s *Spaces) Changed(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.dirty[pid] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ChangedIfKnown is changed for a process that has a space.
func (s *Spaces) ChangedIfKnown(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	known := s.byPID[pid] != nil
	s.mu.Unlock()
	if known {
		s.Changed(pid)
	}
}

// space is what is kept of a process, with a slot in the kernel's list; begun is
// when its mappings were read.
func (s *Spaces) space(pid int, begun uint64) (*space, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byPID[pid]; p != nil {
		return p, nil
	}
	// round and round: a slot that was just given up may be in use for a moment
	for range s.slots {
		s.nextSlot = s.nextSlot%(len(s.slots)-1) + 1
		if !s.slots[s.nextSlot] {
			s.slots[s.nextSlot] = true
			p := &space{begunNs: begun, slot: uint32(s.nextSlot), views: make(map[uint32]*spaceView)}
			s.byPID[pid] = p
			return p, nil
		}
	}
	return nil, fmt.Errorf("the stacks of %d processes are taken already", len(s.slots)-1)
}

// Forget drops a process that ended, or became another program, at a time. What is
// known of what it is since then, or of another process with its id, is kept.
func (s *Spaces) Forget(pid int, timeNs uint64) {
	if s == nil {
		return
	}
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	p := s.byPID[pid]
	s.mu.Unlock()
	if p != nil && p.begunNs <= timeNs {
		s.drop(pid, p)
	}
}

// drop gives up what is kept of a process; s.updating is held.
func (s *Spaces) drop(pid int, p *space) {
	s.mu.Lock()
	delete(s.byPID, pid)
	s.mu.Unlock()
	// before its probes: what they tell is needed as long as stacks are taken
	_ = s.objs.Spaces.Delete(p.slot)
	if p.python != nil {
		s.remove(p.python.dealloc)
	}
	if p.loader != nil {
		s.remove(p.loader)
	}
	_ = s.objs.Unloading.Delete(uint32(pid))
	for _, t := range p.tables {
		s.tables.release(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[p.slot] = false
	maps.DeleteFunc(s.files, func(_ host.FileID, f weak.Pointer[codeFile]) bool { return f.Value() == nil })
	maps.DeleteFunc(s.byBuild, func(_ string, t *kernelTable) bool { return t.gone })
	s.closeFilesSoon()
}

// closeFilesAfter is how long files that no process maps may stay open.
const closeFilesAfter = 5 * time.Second

// closeFilesSoon has files closed that no process maps and no stack needs. Go closes a
// file when its collector finds that nothing uses it, which takes minutes in an idle
// service. Meanwhile its disk space is not freed, and its file system cannot be unmounted.
func (s *Spaces) closeFilesSoon() {
	if s.collecting.CompareAndSwap(false, true) {
		time.AfterFunc(closeFilesAfter, func() {
			s.collecting.Store(false)
			runtime.GC()
		})
	}
}

// remove removes probes of a process that needs them no more. That takes the kernel up to
// a tenth of a second for each, for which nothing else waits.
func (s *Spaces) remove(probes io.Closer) {
	s.removing.Go(func() { probes.Close() })
}

// Close forgets all processes and removes their probes.
func (s *Spaces) Close() {
	if s == nil {
		return
	}
	close(s.wake)
	if s.objs != nil {
		<-s.stopped
	}
	for pid := range s.byPID {
		s.Forget(pid, host.Now())
	}
	s.removing.Wait()
	if s.tables != nil {
		s.tables.close()
	}
}

// view is a process's state by its generation. A child has its parent's until it has
// one of its own.
func (s *Spaces) view(pid int, generation uint32) *spaceView {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byPID[pid]; p != nil && p.views[generation] != nil {
		return p.views[generation]
	}
	for _, p := range s.byPID {
		if v := p.views[generation]; v != nil {
			return v
		}
	}
	return nil
}

// find is the mapping that has an address.
func (v *spaceView) find(addr uint64) (codeMapping, bool) {
	i, found := slices.BinarySearchFunc(v.mappings, addr, func(m codeMapping, a uint64) int {
		return cmp.Compare(m.start, a)
	})
	if !found {
		i--
	}
	if i < 0 || v.mappings[i].end <= addr {
		return codeMapping{}, false
	}
	return v.mappings[i], true
}
