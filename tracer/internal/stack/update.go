package stack

// This file decides when the data for unwinding a process are published to the kernel side: its code, the
// unwind rows of the code, and its CPython.

import (
	"errors"
	"fmt"
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

// updaters is how many processes are updated at the same time, each by one of them. A process may hold the lock of its
// address space for a while, as when it has to wait for a processor.
const updaters = 4

func (s *Spaces) work() {
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
		if read := s.rows.allRead(); read != nil {
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
	// what is read is published when it is, and what is under way may begin to read
	return s.isPublished() && s.rows.allRead() == nil && s.isPublished()
}

// isPublished is isSettled but for files that are being read.
func (s *Spaces) isPublished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.placing) > 0 || len(s.ended) > 0 || len(s.underWay) > 0 {
		return false
	}
	_, any := s.next()
	return !any
}

// updateOne publishes the changes of one process, or drops one; false if there are none.
func (s *Spaces) updateOne() bool {
	s.mu.Lock()
	pid, do := s.nextUpdate()
	if do == nil {
		s.mu.Unlock()
		return false
	}
	s.underWay[pid] = true
	s.mu.Unlock()
	s.wakeUp() // for another process

	do()
	s.mu.Lock()
	delete(s.underWay, pid)
	s.mu.Unlock()
	return true
}

// nextUpdate takes what is to be done for a process from the lists; nil if there is nothing. s.mu is held.
func (s *Spaces) nextUpdate() (pid int, do func()) {
	if i := slices.IndexFunc(s.ended, func(p kernel.Program) bool { return !s.underWay[p.PID] }); i >= 0 {
		ended := s.ended[i]
		s.ended = slices.Delete(s.ended, i, i+1)
		return ended.PID, func() { s.forget(ended.PID, func(p kernel.Program) bool { return p == ended }) }
	}
	pid, any := s.next()
	if !any {
		return 0, nil
	}
	changed := s.dirty[pid]
	delete(s.dirty, pid)
	return pid, func() { s.update(pid, changed) }
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
		if s.underWay[other] {
			continue
		}
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

// update publishes a process's code to the kernel. changed is true if its mappings may have changed.
func (s *Spaces) update(pid int, changed bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, before := time.Now(), host.TimeOfThread()
	err := s.showMade(pid)
	var read spaceRead
	if err == nil {
		read, err = s.read(pid)
	}
	if err == nil {
		err = s.updateSpace(read, changed)
	}
	switch {
	case errors.Is(err, host.ErrNoAnswer): // it counts as a silence of the process: see host.Proc
		s.changedLater(pid)
		return
	case err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) && !host.Ended(pid):
		s.warnOf(pid, err)
	}
	s.charge(pid, undelayed(time.Since(began), before, host.TimeOfThread()))
}

// warnOf warns, once, that a process could not be published.
func (s *Spaces) warnOf(pid int, err error) {
	user := host.RealUser(pid)
	s.mu.Lock()
	p := s.byPID[pid]
	warned := p != nil && p.warned || errors.Is(err, errNoSlot) && !s.slots.refuses(user)
	if p != nil {
		p.warned = true
	}
	s.mu.Unlock()
	if warned {
		return
	}
	lack := "no call stacks"
	if errors.Is(err, errTablesFull) || errors.Is(err, unwind.ErrTooLarge) {
		lack = "call stacks may end early"
	}
	s.warn(fmt.Sprintf("process %d: %s: %v", pid, lack, err))
}

// changedLater schedules another update of a process whose mappings could not be read now, unless one is scheduled:
// every further change would add one for as long as the process does not answer.
func (s *Spaces) changedLater(pid int) {
	if _, scheduled := s.later.LoadOrStore(pid, nil); !scheduled {
		time.AfterFunc(retryAfter, func() {
			s.later.Delete(pid)
			s.Changed(pid)
		})
	}
}

// retryAfter is the time until data of a process that did not answer are read again.
const retryAfter = time.Second / 5

// A spaceRead is what was read of a program's address space.
type spaceRead struct {
	kernel.Program
	ns       uint64 // when it began to be read
	mappings []codeMapping
	unloaded uint64 // the count of Unloading before
}

// read reads a process's address space.
func (s *Spaces) read(pid int) (r spaceRead, err error) {
	if r.Program, err = s.program(pid); err != nil {
		return r, err
	}
	r.ns = host.Now()
	_ = s.objs.Unloading.Lookup(uint32(pid), &r.unloaded)
	code, err := s.readers.CodeMappings(pid)
	if err != nil {
		return r, err
	}
	var published *spaceView
	s.mu.Lock()
	if p := s.byPID[pid]; p != nil && p.program == r.Program {
		published = p.newest
	}
	s.mu.Unlock()
	r.mappings = s.files.open(pid, code, published)
	return r, nil
}

// program returns the program that a listed process runs.
func (s *Spaces) program(pid int) (kernel.Program, error) {
	var listed bpf.KernelProcess
	err := s.objs.Processes.Lookup(uint32(pid), &listed)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = unix.ESRCH
	}
	if listed.Flags&bpf.ProcessNewLeader != 0 {
		s.mu.Lock()
		s.ahead[pid].lose(&s.removing)
		s.mu.Unlock()
	}
	return kernel.Program{PID: pid, ExecID: listed.ExecId}, err
}

// updateSpace publishes what was read.
func (s *Spaces) updateSpace(r spaceRead, changed bool) error {
	pid, mappings := r.PID, r.mappings
	s.forget(pid, func(p kernel.Program) bool { return p != r.Program })
	if len(mappings) == 0 {
		return nil // it has ended
	}
	user := host.RealUser(pid)
	s.mu.Lock()
	p := s.byPID[pid]
	s.mu.Unlock()
	if p == nil {
		var err error
		if p, err = s.add(r.Program, user); err != nil {
			return err
		}
	}
	ready, err := s.probeLoader(pid, p, mappings)
	if err != nil {
		return err
	}
	if !ready {
		s.probePython(pid, p, mappings) // at the same time; else show does it
	}
	used, unread, refusal := s.rows.tables.of(mappings, changed)
	if len(unread) > 0 {
		// A program that loads a hundred libraries may allocate before all their rows are
		// read. The rows that were read are published at once.
		if ready && p.gains(mappings, used) {
			if err := s.show(pid, p, mappings, used); err != nil {
				return err
			}
			p.readNs = r.ns
		} else {
			s.rows.tables.releaseAll(used)
		}
		for _, f := range unread {
			f.user.Store(int64(user))
		}
		s.rows.soon(unread)
		s.setLacksRows(p, true) // so that rows that are read from now on are published
		used, unread, refusal = s.rows.tables.of(mappings, false)
	}
	s.setLacksRows(p, len(unread) > 0)
	if !ready {
		s.rows.tables.releaseAll(used)
		return refusal // it is published when the probe is placed
	}
	if p.newest != nil && !s.toRenew(p) && slices.Equal(p.newest.mappings, mappings) && len(unwindable(mappings, used)) == p.listed && !s.lacksPython(p, mappings) {
		s.rows.tables.releaseAll(used)
	} else if err := s.show(pid, p, mappings, used); err != nil {
		return err
	}
	p.readNs = r.ns
	s.resumeStacks(pid, r.unloaded)
	return refusal
}

// add returns a new record of a process, with a slot in the kernel's list.
func (s *Spaces) add(program kernel.Program, user int) (*space, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, err := s.slots.take(user)
	if err != nil {
		return nil, err
	}
	p := &space{program: program, slot: slot, user: user, views: make(map[uint32]*spaceView)}
	s.byPID[program.PID] = p
	return p, nil
}

// rowsWereRead schedules publishing of the processes that lack rows.
func (s *Spaces) rowsWereRead() {
	s.mu.Lock()
	for pid, p := range s.byPID {
		if p.lacksRows && !s.dirty[pid] {
			s.dirty[pid] = false
		}
	}
	s.mu.Unlock()
	s.wakeUp()
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

// resumeStacks resumes the recording of stacks after a process has unloaded code, unless it has
// unloaded more since, or is about to.
func (s *Spaces) resumeStacks(pid int, unloaded uint64) {
	var again uint64
	if s.objs.Unloading.Lookup(uint32(pid), &again) == nil && again == unloaded && again%2 == 0 {
		_ = s.objs.Unloading.Delete(uint32(pid))
	}
}
