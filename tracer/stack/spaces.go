package stack

// This file tells the kernel side what it needs to unwind a process: its code,
// the unwind rows of that code, and its CPython.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"weak"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
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

func (s *Spaces) work() {
	defer close(s.stopped)
	host.RaisePriority()
	for range s.wake {
		s.Settle()
	}
}

// Settle tells the kernel of all that has changed, and returns when that is done.
// It lets others have their turn after each process: programs map code for
// seconds on end.
func (s *Spaces) Settle() {
	for s.updateOne() {
	}
}

func (s *Spaces) updateOne() bool {
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	pid, any := 0, false
	for pid = range s.dirty {
		delete(s.dirty, pid)
		any = true
		break
	}
	s.mu.Unlock()
	if any {
		s.update(pid)
	}
	return any
}

// update tells the kernel of a process's code as it is now; s.updating is held.
func (s *Spaces) update(pid int) {
	err := s.updateSpace(pid)
	if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || host.Ended(pid) {
		return
	}
	s.mu.Lock()
	p := s.byPID[pid]
	warned := p != nil && p.warned
	if p != nil {
		p.warned = true
	}
	s.mu.Unlock()
	if !warned {
		s.warn(fmt.Sprintf("process %d: stacks are not taken: %v", pid, err))
	}
}

func (s *Spaces) updateSpace(pid int) error {
	begun := host.Now()
	var unloaded uint64 // how often by the time that its mappings are read
	_ = s.objs.Unloading.Lookup(uint32(pid), &unloaded)
	code, err := host.CodeMappings(pid)
	if err != nil {
		return err
	}
	if len(code) == 0 {
		return nil // it has ended, and is only waited for
	}
	mappings := s.open(pid, code)
	p, err := s.space(pid, begun)
	if err != nil {
		return err
	}
	waits := p.python == nil && slices.ContainsFunc(mappings, func(m codeMapping) bool { return m.file.python != nil })
	if p.newest != nil && slices.Equal(p.newest.mappings, mappings) && !p.lacksRows && !waits {
		s.resumeStacks(pid, unloaded)
		return nil
	}
	// A program that loads a hundred libraries may allocate before all their rows are
	// read: it has what is there already at once.
	if used, lacking := s.readyRows(mappings); lacking && p.gains(mappings) {
		p.lacksRows = true
		if err := s.show(pid, p, mappings, used); err != nil {
			return err
		}
	} else {
		s.release(used)
	}
	used, err := s.loadRows(mappings)
	if err != nil {
		s.release(used)
		return err
	}
	p.lacksRows = false
	if err := s.show(pid, p, mappings, used); err != nil {
		return err
	}
	s.resumeStacks(pid, unloaded)
	return nil
}

// gains reports whether mappings have rows that the newest state has not.
func (p *space) gains(mappings []codeMapping) bool {
	return slices.ContainsFunc(mappings, func(m codeMapping) bool {
		return m.file.table != nil && (p.newest == nil || !slices.Contains(p.newest.mappings, m))
	})
}

func (s *Spaces) release(tables []*kernelTable) {
	for _, t := range tables {
		s.tables.release(t)
	}
}

// show gives the kernel a process's code, with the tables that it uses: they are
// released when they are not in use any more.
func (s *Spaces) show(pid int, p *space, mappings []codeMapping, tables []*kernelTable) error {
	defer func() { s.release(tables) }()
	s.mu.Lock()
	s.generation++
	view := &spaceView{s.generation, mappings}
	s.mu.Unlock()
	if p.execID == 0 {
		p.execID = view.generation
	}
	k := bpf.KernelSpace{Generation: view.generation, Image: p.execID}
	// where rows are only not read yet, frame pointers would make up frames
	listed := slices.DeleteFunc(slices.Clone(mappings), func(m codeMapping) bool { return m.file.lacksRows() })
	if len(listed) > len(k.Mappings) {
		// those that a compiler made in the process first: they have no rows
		listed = slices.DeleteFunc(listed, func(m codeMapping) bool { return m.file.table == nil })
		listed = listed[:min(len(listed), len(k.Mappings))]
		if !p.warned {
			p.warned = true
			s.warn(fmt.Sprintf("process %d maps code in %d places, of which %d can be unwound", pid, len(mappings), len(listed)))
		}
	}
	for i, m := range listed {
		to := &k.Mappings[i]
		to.Start, to.End, to.Bias, to.Index = m.start, m.end, m.bias, bpf.NoTable
		if t := m.file.table; t != nil {
			to.Index, to.FirstPage, to.Pages = t.index, t.firstPage, t.pages
		}
		k.Count++
	}
	if err := s.probeLoader(pid, p, mappings); err != nil {
		return err
	}
	s.findPython(pid, p, mappings, &k.Python)
	return s.publish(pid, p, view, &k, &tables)
}

// resumeStacks has stacks of a process taken again that has unloaded code, unless it is
// about to, or has done so once more.
func (s *Spaces) resumeStacks(pid int, unloaded uint64) {
	var again uint64
	if s.objs.Unloading.Lookup(uint32(pid), &again) == nil && again == unloaded && again%2 == 0 {
		_ = s.objs.Unloading.Delete(uint32(pid))
	}
}

// probeLoader has the kernel side told when a process unloads code. One that is
// linked statically has no dynamic linker and cannot.
func (s *Spaces) probeLoader(pid int, p *space, mappings []codeMapping) error {
	if p.loader != nil {
		return nil
	}
	i := slices.IndexFunc(mappings, func(m codeMapping) bool { return m.file.loader != nil })
	if i < 0 {
		return nil
	}
	m := &mappings[i]
	var err error
	p.loader, err = s.probe(pid, m, m.file.loader.debugState.Addr, s.objs.OnDebugState, m.file.loader.debug.Addr+m.bias)
	return err
}

// probe places a probe in one process alone: others that map the same file are to
// pay nothing.
func (s *Spaces) probe(pid int, m *codeMapping, addr uint64, program *ebpf.Program, cookie uint64) (io.Closer, error) {
	offset, ok := m.file.elf.FileOffset(addr)
	if !ok {
		return nil, fmt.Errorf("%s has no code at %#x", m.file.path, addr)
	}
	path := fmt.Sprintf("%s/map_files/%x-%x", host.ProcDir(pid), m.start, m.end)
	return s.objs.Support.Uprobes.Place(path, program, []uint64{offset}, []uint64{cookie}, pid)
}

// publish gives a state to the kernel. Of the tables that it uses and those that the
// last one did it leaves those that are to be released.
func (s *Spaces) publish(pid int, p *space, view *spaceView, k *bpf.KernelSpace, tables *[]*kernelTable) error {
	m, err := ebpf.NewMap(s.inner)
	if err != nil {
		return fmt.Errorf("making room for its address space: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), k); err != nil {
		return fmt.Errorf("telling the kernel its address space: %w", err)
	}
	// before the kernel uses it: stacks come with its number
	s.mu.Lock()
	p.views[view.generation] = view
	for generation := range p.views {
		if generation+viewsKept < view.generation && len(p.views) > viewsKept {
			delete(p.views, generation)
		}
	}
	p.newest = view
	s.mu.Unlock()
	if err := s.objs.Spaces.Put(p.slot, m); err != nil {
		return fmt.Errorf("telling the kernel its address space: %w", err)
	}
	p.tables, *tables = *tables, p.tables
	listed, err := s.objs.ChangeProcess(pid, func(process *bpf.KernelProcess) bool {
		if process.Space == p.slot {
			return false
		}
		process.Space, process.Inherited = p.slot, 0
		return true
	})
	if !listed && err == nil && len(p.views) == 1 {
		s.drop(pid, p) // it had ended before this: its end will not be reported again
	}
	return err
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
