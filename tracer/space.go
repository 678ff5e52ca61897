package tracer

// This file tells the kernel side what it needs to unwind a process: its code,
// the unwind rows of that code, and its CPython.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
)

// spaces keeps the address spaces of traced processes as the kernel side has
// them.
type spaces struct {
	objs   *objects
	inner  *ebpf.MapSpec
	tables *unwindTables
	warn   func(string)

	wake    chan struct{}
	stopped chan struct{}

	mu       sync.Mutex
	byPID    map[int]*space
	files    map[fileID]*codeFile
	byBuild  map[string]*kernelTable
	dirty    map[int]bool
	slots    []bool // taken; 0 is none
	nextSlot int
	// generation is the number of the newest state of any process.
	generation uint32
	// updating is held while a process's state is worked out.
	updating sync.Mutex
}

// space is a process's address space.
type space struct {
	slot   uint32
	views  map[uint32]*spaceView // by generation
	newest *spaceView
	tables []*kernelTable
	python *pythonSpace // nil: none that can be read
	loader link.Link    // the probe on its dynamic linker; nil: none
	warned bool
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
	file    *codeFile
	bias    uint64
	dealloc link.Link
}

// viewsKept is how many states of a process are kept: stacks come a few
// milliseconds after they were taken.
const viewsKept = 64

func newSpaces(objs *objects, spec *ebpf.CollectionSpec, warn func(string)) (*spaces, error) {
	tables, err := newUnwindTables(objs, spec.Maps["chunks"])
	if err != nil {
		return nil, err
	}
	s := &spaces{
		objs: objs, inner: spec.Maps["spaces"].InnerMap, tables: tables, warn: warn,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		byPID: make(map[int]*space), files: make(map[fileID]*codeFile),
		byBuild: make(map[string]*kernelTable), dirty: make(map[int]bool),
		slots: make([]bool, objs.Spaces.MaxEntries()),
	}
	go s.work()
	return s, nil
}

// changed says that a process maps other code than before.
func (s *spaces) changed(pid int) {
	s.mu.Lock()
	s.dirty[pid] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// changedIfKnown is changed for a process that has a space.
func (s *spaces) changedIfKnown(pid int) {
	s.mu.Lock()
	known := s.byPID[pid] != nil
	s.mu.Unlock()
	if known {
		s.changed(pid)
	}
}

func (s *spaces) work() {
	defer close(s.stopped)
	for range s.wake {
		s.settle()
	}
}

// settle tells the kernel of all that has changed, and returns when that is done.
func (s *spaces) settle() {
	s.updating.Lock()
	defer s.updating.Unlock()
	for {
		s.mu.Lock()
		var pids []int
		for pid := range s.dirty {
			pids = append(pids, pid)
		}
		clear(s.dirty)
		s.mu.Unlock()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			s.update(pid)
		}
	}
}

// update tells the kernel of a process's code as it is now; s.updating is held.
func (s *spaces) update(pid int) {
	err := s.tell(pid)
	if err == nil || errors.Is(err, os.ErrNotExist) || !isRunning(pid) {
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

func (s *spaces) tell(pid int) error {
	var unloaded uint64 // how often by the time that its mappings are read
	_ = s.objs.Unloading.Lookup(uint32(pid), &unloaded)
	code, err := codeMaps(pid)
	if err != nil {
		return err
	}
	mappings := s.open(pid, code)
	tables, err := s.loadRows(mappings)
	defer func() {
		for _, t := range tables {
			s.tables.release(t)
		}
	}()
	if err != nil {
		return err
	}
	p, err := s.space(pid)
	if err != nil {
		return err
	}
	if p.newest != nil && slices.Equal(p.newest.mappings, mappings) && p.python != nil {
		s.seen(pid, unloaded)
		return nil
	}
	s.mu.Lock()
	s.generation++
	view := &spaceView{s.generation, mappings}
	s.mu.Unlock()
	k := bpf.KernelSpace{Generation: view.generation}
	if len(mappings) > len(k.Mappings) && !p.warned {
		p.warned = true
		s.warn(fmt.Sprintf("process %d maps code in %d places, of which %d can be unwound", pid, len(mappings), len(k.Mappings)))
	}
	for i, m := range mappings[:min(len(mappings), len(k.Mappings))] {
		to := &k.Mappings[i]
		to.Start, to.End, to.Bias, to.Index = m.start, m.end, m.bias, noTable
		if t := m.file.table; t != nil {
			to.Index, to.FirstPage, to.Pages = t.index, t.firstPage, t.pages
		}
		k.Count++
	}
	if err := s.probeLoader(pid, p, mappings); err != nil {
		return err
	}
	s.findPython(pid, p, mappings, &k.Python)
	if err := s.publish(pid, p, view, &k, &tables); err != nil {
		return err
	}
	s.seen(pid, unloaded)
	return nil
}

// seen has stacks of a process taken again that has unloaded code, unless it has
// done so once more.
func (s *spaces) seen(pid int, unloaded uint64) {
	var again uint64
	if s.objs.Unloading.Lookup(uint32(pid), &again) == nil && again == unloaded {
		_ = s.objs.Unloading.Delete(uint32(pid))
	}
}

// probeLoader has the kernel side told when a process unloads code. One that is
// linked statically has no dynamic linker and cannot.
func (s *spaces) probeLoader(pid int, p *space, mappings []codeMapping) error {
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
func (s *spaces) probe(pid int, m *codeMapping, addr uint64, program *ebpf.Program, cookie uint64) (link.Link, error) {
	offset, ok := m.file.elf.FileOffset(addr)
	if !ok {
		return nil, fmt.Errorf("%s has no code at %#x", m.file.path, addr)
	}
	exe, err := link.OpenExecutable(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.start, m.end))
	if err != nil {
		return nil, err
	}
	return exe.UprobeMulti(nil, program, &link.UprobeMultiOptions{
		Addresses: []uint64{offset}, Cookies: []uint64{cookie}, PID: uint32(pid),
	})
}

// publish gives a state to the kernel. Of the tables that it uses and those that the
// last one did it leaves those that are to be released.
func (s *spaces) publish(pid int, p *space, view *spaceView, k *bpf.KernelSpace, tables *[]*kernelTable) error {
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
	var process bpf.KernelProcess
	if err := s.objs.Processes.Lookup(uint32(pid), &process); err != nil {
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil // it has ended, or is not traced yet: listed tells
	}
	if process.Space == p.slot {
		return nil
	}
	process.Space = p.slot
	return s.objs.Processes.Update(uint32(pid), &process, ebpf.UpdateExist)
}

// space is what is kept of a process, with a slot in the kernel's list.
func (s *spaces) space(pid int) (*space, error) {
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
			p := &space{slot: uint32(s.nextSlot), views: make(map[uint32]*spaceView)}
			s.byPID[pid] = p
			return p, nil
		}
	}
	return nil, fmt.Errorf("the stacks of %d processes are taken already", len(s.slots)-1)
}

// forget drops a process that has ended, or has become another program.
func (s *spaces) forget(pid int) {
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	p := s.byPID[pid]
	delete(s.byPID, pid)
	s.mu.Unlock()
	if p == nil {
		return
	}
	if p.python != nil {
		p.python.dealloc.Close()
	}
	if p.loader != nil {
		p.loader.Close()
	}
	_ = s.objs.Unloading.Delete(uint32(pid))
	_ = s.objs.Spaces.Delete(p.slot)
	for _, t := range p.tables {
		s.tables.release(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[p.slot] = false
	used := make(map[*codeFile]bool)
	for _, p := range s.byPID {
		if p.newest != nil {
			for _, m := range p.newest.mappings {
				used[m.file] = true
			}
		}
	}
	// stacks that are kept keep theirs, and what is no longer held is closed
	maps.DeleteFunc(s.files, func(_ fileID, f *codeFile) bool { return !used[f] })
}

func (s *spaces) close() {
	close(s.wake)
	<-s.stopped
	for pid := range s.byPID {
		s.forget(pid)
	}
}

// view is a process's state by its generation. A child has its parent's until it
// has one of its own.
func (s *spaces) view(pid int, generation uint32) *spaceView {
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

// open opens the files of mappings that are not known yet.
func (s *spaces) open(pid int, maps []procMap) []codeMapping {
	mappings := make([]codeMapping, len(maps))
	each(len(maps), func(i int) {
		m := maps[i]
		var f *codeFile
		if m.file.inode != 0 {
			s.mu.Lock()
			f = s.files[m.file]
			s.mu.Unlock()
		}
		if f == nil {
			f = s.openOne(pid, m)
		}
		mappings[i] = codeMapping{start: m.start, end: m.end, file: f}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range maps {
		to := &mappings[i]
		if m.file.inode != 0 && to.file != anonymous {
			if known := s.files[m.file]; known != nil {
				to.file = known // mapped twice
			}
			s.files[m.file] = to.file
		}
		if to.file.elf != nil {
			to.bias, _ = to.file.elf.Bias(m.start, m.offset)
		}
	}
	return mappings
}

func (s *spaces) openOne(pid int, m procMap) *codeFile {
	if m.path == "[vdso]" {
		return openVDSO(pid, m.start, m.end)
	}
	if m.file.inode == 0 {
		return anonymous
	}
	file, err := openMapped(pid, m.start, m.end)
	if err != nil {
		return anonymous
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return anonymous
	}
	return openCodeFile(file, info.Size(), m.path, fmt.Sprintf("/proc/%d/root", pid))
}

// loadRows gives the kernel the unwind rows that it does not have yet. Files of one
// build share theirs. It returns the tables of the mappings' files, which are in
// use until they are released: those that are loaded must not drive them out.
func (s *spaces) loadRows(mappings []codeMapping) (used []*kernelTable, err error) {
	var files []*codeFile
	seen := make(map[*codeFile]bool)
	copies := make(map[string][]*codeFile) // by build-id, of one of files
	for _, m := range mappings {
		f := m.file
		if f.elf == nil || f.noRows || seen[f] {
			continue
		}
		seen[f] = true
		if f.table == nil || f.table.gone {
			f.table = s.byBuild[f.buildID()]
		}
		if f.table != nil && s.tables.use(f.table) {
			used = append(used, f.table)
			continue
		}
		f.table = nil
		id := f.buildID()
		copies[id] = append(copies[id], f)
		if id == "" || len(copies[id]) == 1 {
			files = append(files, f)
		}
	}
	rows := make([]*unwind.Table, len(files))
	each(len(files), func(i int) {
		var err error
		if rows[i], err = unwind.Build(files[i].elf); err != nil {
			rows[i], files[i].noRows = nil, true // frame pointers may do
		}
	})
	files = slices.DeleteFunc(files, func(f *codeFile) bool { return f.noRows })
	rows = slices.DeleteFunc(rows, func(t *unwind.Table) bool { return t == nil })
	tables, err := s.tables.load(rows)
	if err != nil {
		return used, err
	}
	for i, f := range files {
		f.table = tables[i]
		if id := f.buildID(); id != "" {
			s.byBuild[id] = tables[i]
			for _, f := range copies[id] {
				f.table = tables[i]
			}
		}
	}
	return append(used, tables...), nil
}

// each calls do for 0 to n-1, on all processors.
func each(n int, do func(i int)) {
	var wait sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.NumCPU()) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
}

// findPython tells the kernel how to read the process's CPython, if it has one.
func (s *spaces) findPython(pid int, p *space, mappings []codeMapping, k *bpf.KernelPythonOffsets) {
	var interpreter, libc *codeMapping
	for i := range mappings {
		m := &mappings[i]
		switch {
		case m.file.python != nil && interpreter == nil:
			interpreter = m
		case m.file.pthread != nil:
			libc = m
		case m.file.refused != nil && !p.warned:
			p.warned = true
			s.warn(fmt.Sprintf("process %d: Python's part of stacks is not taken: %v", pid, m.file.refused))
		}
	}
	if interpreter == nil || libc == nil {
		return
	}
	r := interpreter.file.python
	// struct Py_tss_t: is it initialised, and the key
	tss, err := readProcess(pid, r.Runtime+interpreter.bias+r.Key, 8)
	if err != nil || binary.LittleEndian.Uint32(tss) != 1 {
		return // not yet
	}
	typ, ok := interpreter.file.elf.Lookup("PyCode_Type")
	if !ok {
		return
	}
	if p.python == nil {
		// of code objects that die: others come to lie where they were
		dealloc, err := s.probe(pid, interpreter, r.CodeDealloc, s.objs.OnCodeDealloc, 0)
		if err != nil {
			if !p.warned {
				p.warned = true
				s.warn(fmt.Sprintf("process %d: Python's part of stacks is not taken: %v", pid, err))
			}
			return
		}
		p.python = &pythonSpace{file: interpreter.file, bias: interpreter.bias, dealloc: dealloc}
	}
	o := &r.Offsets
	*k = bpf.KernelPythonOffsets{
		Minor: uint32(r.Minor), ThreadFrame: o.ThreadFrame, CframeFrame: noField,
		FrameBytes: o.FrameSize, FrameCode: o.FrameCode, FramePrevious: o.FramePrevious,
		FrameInstruction: o.FrameInstruction, FrameOwner: o.FrameMarker,
		CodeName: o.CodeName, CodeFile: o.CodeFile, CodeQualname: o.CodeQualName,
		CodeFirstLine: o.CodeFirstLine, CodeLineTable: o.CodeLineTable, CodeBytes: o.CodeBytes,
		StrAscii: o.StrASCII, StrOther: o.StrOther,
		Key: binary.LittleEndian.Uint32(tss[4:]), CodeType: typ.Addr + interpreter.bias,
	}
	if o.CFrame {
		k.CframeFrame = o.CFrameFrame
	}
	pthread := libc.file.pthread
	k.KeySlots, k.PthreadSpecific = pthread.Level2Size, pthread.Specific
	k.KeySlot, k.KeyData = pthread.KeySize, pthread.KeyData
}

// readProcess reads memory of a process.
func readProcess(pid int, at uint64, n int) ([]byte, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	b := make([]byte, n)
	_, err = mem.ReadAt(b, int64(at))
	return b, err
}
