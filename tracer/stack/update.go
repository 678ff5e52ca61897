package stack

// This file gives the kernel side what it needs to unwind a process: its code, the unwind
// rows of that code, and its CPython, whenever they change.

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/host"
)

func (s *Spaces) work() {
	defer close(s.stopped)
	host.RaisePriority()
	for {
		select {
		case <-s.closing.Done():
			return
		case <-s.wake:
			// a process at a time: programs map code for seconds on end
			if s.updateOne() {
				s.wakeUp()
			}
		}
	}
}

// Settle publishes all changes to the kernel, and returns when that is done and all files
// are read.
func (s *Spaces) Settle() {
	for {
		for s.updateOne() {
		}
		read, reading := s.allRead(), s.readingKeys()
		switch {
		case read != nil:
			<-read
		case reading:
			time.Sleep(time.Millisecond)
		default:
			return
		}
	}
}

// updateOne publishes the changes of one process; false if there are none.
func (s *Spaces) updateOne() bool {
	s.updating.Lock()
	defer s.updating.Unlock()
	s.mu.Lock()
	if len(s.ended) > 0 {
		ended := s.ended[0]
		s.ended = s.ended[1:]
		s.mu.Unlock()
		s.forget(ended)
		return true
	}
	pid, any := s.next()
	changed := s.dirty[pid]
	delete(s.dirty, pid)
	s.mu.Unlock()
	if any {
		began := time.Now()
		s.update(pid, changed)
		s.charge(pid, time.Since(began))
	}
	return any
}

const (
	// updateBurst is the time for updates that a process may take at once, as when it loads its
	// libraries.
	updateBurst = time.Second
	// updateShare is the part of the time that updates of a process may take after that.
	updateShare = 10
)

// next returns the process to be published that has taken the least time. Those that have taken
// more than they may have to wait. s.mu is held.
func (s *Spaces) next() (pid int, any bool) {
	least := updateBurst
	wait := time.Duration(-1)
	for other := range s.dirty {
		took := s.byPID[other].debt()
		if took < least {
			pid, any, least = other, true, took
		} else if over := took - updateBurst; wait < 0 || over < wait {
			wait = over
		}
	}
	if !any && wait >= 0 {
		s.due.Reset(wait*updateShare + time.Millisecond)
	}
	return pid, any
}

// debt is the time that the updates of a process took, less what it may take since then.
func (p *space) debt() time.Duration {
	if p == nil {
		return 0
	}
	return max(0, p.took-time.Since(p.tookUntil)/updateShare)
}

// charge adds the time of an update of a process.
func (s *Spaces) charge(pid int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byPID[pid]; p != nil {
		p.took, p.tookUntil = p.debt()+took, time.Now()
	}
}

// update publishes a process's code to the kernel; s.updating is held. changed: its mappings
// may have changed.
func (s *Spaces) update(pid int, changed bool) {
	err := s.updateSpace(pid, changed)
	if errors.Is(err, host.ErrNoAnswer) {
		s.changedLater(pid)
		return
	}
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
	if warned || errors.Is(err, errNoSlot) && !s.refuses(host.RealUser(pid)) {
		return
	}
	lack := "no call stacks"
	if errors.Is(err, errTablesFull) || errors.Is(err, unwind.ErrTooLarge) {
		lack = "call stacks may end early"
	}
	s.warn(fmt.Sprintf("process %d: %s: %v", pid, lack, err))
}

// changedLater has a process published again whose mappings could not be read now.
func (s *Spaces) changedLater(pid int) {
	time.AfterFunc(retryAfter, func() { s.Changed(pid) })
}

// retryAfter is when what a process did not answer is read again.
const retryAfter = time.Second

func (s *Spaces) updateSpace(pid int, changed bool) error {
	readNs := host.Now()
	var unloaded uint64 // the count when its mappings are read
	_ = s.objs.Unloading.Lookup(uint32(pid), &unloaded)
	code, err := s.readers.CodeMappings(pid)
	if err != nil {
		return err
	}
	if len(code) == 0 {
		return nil // it has ended
	}
	mappings := s.open(pid, code)
	user := host.RealUser(pid)
	p, err := s.space(pid, user, readNs)
	if err != nil {
		return err
	}
	used, unread, refusal := s.tablesOf(mappings, changed)
	if len(unread) > 0 {
		// A program that loads a hundred libraries may allocate before all their rows are
		// read. The rows that are there are published at once.
		if p.gains(mappings, used) {
			if err := s.show(pid, p, mappings, used); err != nil {
				return err
			}
		} else {
			s.release(used)
		}
		for _, f := range unread {
			f.user.Store(int64(user))
		}
		s.readSoon(unread)
		s.setLacksRows(p, true) // so that rows that are read from now on are published
		used, unread, refusal = s.tablesOf(mappings, false)
	}
	s.setLacksRows(p, len(unread) > 0)
	if p.newest != nil && !s.toRenew(p) && slices.Equal(p.newest.mappings, mappings) && len(unwindable(mappings, used)) == p.listed && !s.lacksPython(p, mappings) {
		s.release(used)
	} else if err := s.show(pid, p, mappings, used); err != nil {
		return err
	}
	s.resumeStacks(pid, unloaded)
	return refusal
}

func (s *Spaces) setLacksRows(p *space, lacks bool) {
	s.mu.Lock()
	p.lacksRows = lacks
	s.mu.Unlock()
}

// toRenew reports whether the process is to be published in any case, this time.
func (s *Spaces) toRenew(p *space) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	renew := p.renew
	p.renew = false
	return renew
}

// gains reports whether mappings have rows that the newest view lacks.
func (p *space) gains(mappings []codeMapping, used tablesInUse) bool {
	return slices.ContainsFunc(mappings, func(m codeMapping) bool {
		return used[m.file] != nil && (p.newest == nil || !slices.Contains(p.newest.mappings, m))
	})
}

func (s *Spaces) release(tables tablesInUse) {
	for _, t := range tables {
		s.tables.release(t)
	}
}

// show publishes a process's code with the tables that it uses. They are released when they
// are no longer in use.
func (s *Spaces) show(pid int, p *space, mappings []codeMapping, tables tablesInUse) error {
	defer func() { s.release(tables) }()
	s.mu.Lock()
	s.generation++
	view := &spaceView{s.generation, mappings}
	s.mu.Unlock()
	k := bpf.KernelSpace{Generation: view.generation}
	listed := unwindable(mappings, tables)
	known := len(listed)
	if len(listed) > len(k.Mappings) {
		// leave out generated code first: it has no rows
		listed = slices.DeleteFunc(listed, func(m codeMapping) bool { return tables[m.file] == nil })
		listed = listed[:min(len(listed), len(k.Mappings))]
		if !p.warned {
			p.warned = true
			places := fmt.Sprint(len(mappings))
			if len(mappings) == host.MaxCodeMappings {
				places += " or more"
			}
			s.warn(fmt.Sprintf("process %d maps code in %s places, of which %d can be unwound", pid, places, len(listed)))
		}
	}
	for i, m := range listed {
		to := &k.Mappings[i]
		to.Start, to.End, to.Bias, to.Index = m.start, m.end, m.bias, bpf.NoTable
		if t := tables[m.file]; t != nil {
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
	p.listed = known
	return nil
}

// unwindable returns the mappings whose rows are there, and those whose files have none.
// While rows are missing, frame pointers would give wrong frames.
func unwindable(mappings []codeMapping, tables tablesInUse) []codeMapping {
	return slices.DeleteFunc(slices.Clone(mappings), func(m codeMapping) bool {
		return tables[m.file] == nil && !m.file.withoutRows()
	})
}

// resumeStacks resumes the stacks of a process after it has unloaded code, unless it has
// unloaded more since or is about to.
func (s *Spaces) resumeStacks(pid int, unloaded uint64) {
	var again uint64
	if s.objs.Unloading.Lookup(uint32(pid), &again) == nil && again == unloaded && again%2 == 0 {
		_ = s.objs.Unloading.Delete(uint32(pid))
	}
}

// probeLoader lets the kernel side notice when a process unloads code. A statically linked
// program has no dynamic linker and cannot.
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

// probes are in a file, to which their path leads as long as it is open.
type probes struct {
	io.Closer
	file *os.File
}

// probe places a probe in one process alone, at no cost for others that map the same file.
func (s *Spaces) probe(pid int, m *codeMapping, addr uint64, program *ebpf.Program, cookie uint64) (io.Closer, error) {
	offset, ok := m.file.elf.FileOffset(addr)
	if !ok || m.file.file == nil {
		return nil, fmt.Errorf("%s has no code at %#x", m.file.path, addr)
	}
	// by descriptor: the process may map a file there by now whose file system does not answer
	path := fmt.Sprintf("/proc/self/fd/%d", m.file.file.Fd())
	placed, err := s.objs.Support.Uprobes.Place(path, program, []uint64{offset}, []uint64{cookie}, pid)
	if err != nil {
		return nil, err
	}
	return probes{placed, m.file.file}, nil
}

// publish makes a view the current one. It leaves in tables those that are to be released:
// of the old view's and the new one's, those that are not in use.
func (s *Spaces) publish(pid int, p *space, view *spaceView, k *bpf.KernelSpace, tables *tablesInUse) error {
	m, err := ebpf.NewMap(s.inner)
	if err != nil {
		return fmt.Errorf("making room for its address space: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), k); err != nil {
		return fmt.Errorf("storing its address space: %w", err)
	}
	// before the kernel uses it: stacks will refer to it
	s.mu.Lock()
	p.views[view.generation] = view
	for kept := max(minViews, min(maxViews, maxViewMappings/len(view.mappings))); len(p.views) > kept; {
		delete(p.views, slices.Min(slices.Collect(maps.Keys(p.views))))
	}
	p.newest = view
	s.mu.Unlock()
	if err := s.objs.Spaces.Put(p.slot, m); err != nil {
		return fmt.Errorf("storing its address space: %w", err)
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
		s.drop(pid, p) // it had ended before; its end will not be reported again
		return unix.ESRCH
	}
	return err
}
