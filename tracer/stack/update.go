package stack

// This file publishes to the kernel side the data for unwinding a process, whenever they change:
// its code, the unwind rows of the code, and its CPython.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

func (s *Spaces) work() {
	defer close(s.stopped)
	host.RaisePriority()
	for {
		select {
		case <-s.closing.Done():
			return
		case <-s.wake:
			// one process at a time, because programs map code for several seconds
			if s.updateOne() {
				s.wakeUp()
			}
		}
	}
}

// Settle publishes all changes to the kernel, and waits until all files were read, and all probes
// placed.
func (s *Spaces) Settle() {
	for {
		for s.updateOne() {
		}
		if read := s.allRead(); read != nil {
			<-read
		} else if s.isSettled() {
			return
		} else {
			time.Sleep(time.Millisecond)
		}
	}
}

// isSettled reports whether nothing is to be published, and nothing that would be is under way.
func (s *Spaces) isSettled() bool {
	s.updating.Lock()
	defer s.updating.Unlock()
	if s.allRead() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.placing) > 0 || len(s.ended) > 0 {
		return false
	}
	for _, p := range s.byPID {
		if p.key.reading {
			return false
		}
	}
	_, any := s.next()
	return !any
}

// updateOne publishes the changes of one process; false if there are none.
func (s *Spaces) updateOne() bool {
	s.updating.Lock()
	defer s.updating.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.mu.Lock()
	if len(s.ended) > 0 {
		ended := s.ended[0]
		s.ended = s.ended[1:]
		s.mu.Unlock()
		s.forget(ended.PID, func(p kernel.Program) bool { return p == ended })
		return true
	}
	pid, any := s.next()
	changed := s.dirty[pid]
	delete(s.dirty, pid)
	s.mu.Unlock()
	if any {
		began, before := time.Now(), host.TimeOfThread()
		s.update(pid, changed)
		s.charge(pid, undelayed(time.Since(began), before, host.TimeOfThread()))
	}
	return any
}

const (
	// updateBurst is how long the updates of a process may take without a break, as while it
	// loads its libraries: that takes less than half a second, and three times as long where
	// the readers of rows have to wait for processors.
	updateBurst = 3 * time.Second
	// updateShare is the share of the time that its updates may take after that.
	updateShare = 10
)

// undelayed returns the time that an update would have taken on idle processors: on a busy host all of
// its work waits for a processor as long as this thread did.
func undelayed(took time.Duration, before, after host.ThreadTime) time.Duration {
	ran, waited := after.Ran-before.Ran, after.Waited-before.Waited
	if ran <= 0 || waited <= 0 {
		return took
	}
	return time.Duration(float64(took) * float64(ran) / float64(ran+waited))
}

// next returns the process whose updates have taken the least time among those to publish. A
// process beyond its share has to wait. s.mu is held.
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

// debt returns the time that the updates of a process have taken beyond its share.
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

// update publishes a process's code to the kernel; s.updating is held. changed is true if its
// mappings may have changed.
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

// changedLater schedules another update of a process whose mappings could not be read now.
func (s *Spaces) changedLater(pid int) {
	time.AfterFunc(retryAfter, func() { s.Changed(pid) })
}

// retryAfter is the time until data of a process that did not answer are read again.
const retryAfter = time.Second

func (s *Spaces) updateSpace(pid int, changed bool) error {
	var listed bpf.KernelProcess
	if err := s.objs.Processes.Lookup(uint32(pid), &listed); errors.Is(err, ebpf.ErrKeyNotExist) {
		return unix.ESRCH
	} else if err != nil {
		return err
	}
	program := kernel.Program{PID: pid, ExecID: listed.ExecId}
	s.forget(pid, func(p kernel.Program) bool { return p != program })
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
	p, err := s.space(program, user)
	if err != nil {
		return err
	}
	ready, err := s.probeLoader(pid, p, mappings)
	if err != nil {
		return err
	}
	used, unread, refusal := s.tablesOf(mappings, changed)
	if len(unread) > 0 {
		// A program that loads a hundred libraries may allocate before all their rows are
		// read. The rows that were read are published at once.
		if ready && p.gains(mappings, used) {
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
	if !ready {
		s.release(used)
		return refusal // it is published when the probe is placed
	}
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

// toRenew reports, once, whether the process is to be published even if it has not changed.
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

// show publishes a process's code with the tables that it uses, and releases tables that are no
// longer in use.
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
	s.findPython(pid, p, mappings, &k.Python)
	if err := s.publish(pid, p, view, &k, &tables); err != nil {
		return err
	}
	p.listed = known
	return nil
}

// unwindable returns the mappings whose rows were read or whose files have no rows. The others are
// left out, because frame pointers would give wrong frames until their rows are read.
func unwindable(mappings []codeMapping, tables tablesInUse) []codeMapping {
	return slices.DeleteFunc(slices.Clone(mappings), func(m codeMapping) bool {
		return tables[m.file] == nil && !m.file.withoutRows()
	})
}

// resumeStacks resumes the recording of stacks after a process has unloaded code, unless it has
// unloaded more since, or is about to.
func (s *Spaces) resumeStacks(pid int, unloaded uint64) {
	var again uint64
	if s.objs.Unloading.Lookup(uint32(pid), &again) == nil && again == unloaded && again%2 == 0 {
		_ = s.objs.Unloading.Delete(uint32(pid))
	}
}

// publish makes a view the current one. Afterwards tables has the tables of the old and the new
// view that are not in use and have to be released.
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
	if !s.objs.ChangeProcess(p.program, 0, p.slot) {
		s.drop(pid, p) // it has ended or executed another program
		return unix.ESRCH
	}
	return nil
}
