package stack

import (
	"context"
	"sort"
	"sync"
	"time"
	"weak"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/quota"
)

// Spaces mirrors the address spaces of traced processes to the kernel side. If it is nil,
// no stacks are recorded.
type Spaces struct {
	*pace
	objs  *kernel.Objects
	inner *ebpf.MapSpec
	files *codeFiles
	rows  *rowReader
	warn  func(string)
	// readers read the memory and the /proc files of processes.
	readers *host.Readers

	wake    chan struct{}
	due     *time.Timer        // wakes when a process may be published again
	cancel  context.CancelFunc // ends closing
	working sync.WaitGroup

	mu    sync.Mutex
	byPID map[int]*space
	dirty map[int]bool // processes to publish; true: their mappings may have changed
	// underWay are the processes that are being updated or dropped. What is not protected by mu, such as most of
	// their space, belongs to the one who does that.
	underWay map[int]bool
	later    sync.Map         // processes that are changed again soon
	ended    []kernel.Program // that are to be dropped
	slots    slots
	// generation is the number of the newest view of any process.
	generation uint32
	// prepared are tables and preread are files that were read before a process was known to
	// map them.
	prepared []tablesInUse
	preread  []*codeFile
	// placing counts the probes that are placed in the background, by user.
	placing map[int]int
	// ahead are the probes of Expect by process, and expected counts them by user.
	ahead    map[int]*aheadProbes
	expected *quota.Quota
	// removing counts what is removed in the background.
	removing sync.WaitGroup
}

// space is a process's address space.
type space struct {
	program kernel.Program
	slot    uint32
	user    int
	views   map[uint32]*spaceView // by generation
	newest  *spaceView
	tables  tablesInUse // of the newest view
	listed  int         // mappings of the newest view that can be unwound
	// dealloc is on the interpreter's function that frees code objects.
	dealloc placement
	// showsPython is true if the newest view has its CPython.
	showsPython bool
	loader      placement // on its dynamic linker
	// made are the mappings since readNs, when those of the newest view were read.
	made   madeCode
	readNs uint64
	// lacksRows is true if rows of files in the newest view were not read yet
	lacksRows bool
	warned    bool
	// renew is true if its unchanged code is to be published as a new state
	renew bool
	// took is the update time beyond the process's share, as of tookUntil
	took      time.Duration
	tookUntil time.Time
}

// tablesInUse are tables that stay in the kernel until they are released.
type tablesInUse map[*codeFile]*kernelTable

// spaceView is one state of a process's address space. It is immutable.
type spaceView struct {
	generation uint32
	mappings   []codeMapping // ascending
}

// codeMapping is mapped code.
type codeMapping struct {
	start, end, bias uint64
	file             *codeFile
}

func newCodeMapping(m host.Mapping, file *codeFile) codeMapping {
	to := codeMapping{start: m.Start, end: m.End, file: file}
	if file.elf != nil {
		to.bias, _ = file.elf.Bias(m.Start, m.Offset)
	}
	return to
}

// maxViews bounds the views of a process, because stacks arrive a few milliseconds after they were
// recorded. A process with many mappings has fewer views.
const (
	maxViews        = 64
	minViews        = 8
	maxViewMappings = 1 << 15
)

// NewSpaces returns Spaces without processes. warn gets a line for each process without
// stacks.
func NewSpaces(readers *host.Readers, warn func(string)) *Spaces {
	closing, cancel := context.WithCancel(context.Background())
	s := &Spaces{
		pace: &pace{closing: closing}, readers: readers, warn: warn, wake: make(chan struct{}, 1),
		cancel: cancel,
		byPID:  make(map[int]*space), dirty: make(map[int]bool), underWay: make(map[int]bool), slots: newSlots(0), placing: make(map[int]int),
		ahead: make(map[int]*aheadProbes), expected: quota.New(maxExpected, allExpected),
	}
	s.files = &codeFiles{pace: s.pace, readers: readers, again: s.changedLater, large: make(chan struct{}, 1), byID: make(map[host.FileID]weak.Pointer[codeFile])}
	s.rows = newRowReader(s.pace, s.rowsWereRead)
	s.due = time.AfterFunc(updateBurst, s.wakeUp)
	return s
}

// Start begins to publish changes to the kernel side.
func (s *Spaces) Start(objs *kernel.Objects) (err error) {
	if s == nil {
		return nil
	}
	spec := objs.Support.Spec
	if s.rows.tables, err = newUnwindTables(objs, spec.Maps["slabs"]); err != nil {
		return err
	}
	s.objs, s.inner = objs, spec.Maps["spaces"].InnerMap
	s.slots = newSlots(int(objs.Spaces.MaxEntries()))
	for range updaters {
		s.working.Go(s.work)
	}
	return nil
}

// Changed marks a process whose code mappings have changed.
func (s *Spaces) Changed(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.dirty[pid] = true
	s.mu.Unlock()
	s.wakeUp()
}

// Renew gives the state of a process a new number, and thereby its stacks new ids.
func (s *Spaces) Renew(pid int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if p := s.byPID[pid]; p != nil {
		p.renew = true
	}
	s.mu.Unlock()
	s.ChangedIfKnown(pid)
}

func (s *Spaces) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Pause suspends the reading of files until resume is called, or for maxPause, so that attaching
// to a library is quick.
func (s *Spaces) Pause() (resume func()) {
	if s == nil {
		return func() {}
	}
	return s.pause()
}

// ChangedIfKnown is Changed for a process that is known.
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

// Forget drops a program that ended. It is for the event loop, and does not wait for the kernel.
func (s *Spaces) Forget(p kernel.Program) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.ended = append(s.ended, p)
	s.mu.Unlock()
	s.wakeUp()
}

// forget drops a process if its program is the one that drops says. It is under way.
func (s *Spaces) forget(pid int, drops func(kernel.Program) bool) {
	s.mu.Lock()
	s.unexpect((*aheadProbes).ended)
	p := s.byPID[pid]
	s.mu.Unlock()
	if p != nil && drops(p.program) {
		s.drop(pid, p)
	}
}

// drop drops the record of a process that is under way. What the kernel may use is released in the
// background.
func (s *Spaces) drop(pid int, p *space) {
	s.mu.Lock()
	delete(s.byPID, pid)
	s.mu.Unlock()
	_ = s.objs.Unloading.Delete(uint32(pid))
	s.removing.Go(func() {
		s.objs.DropSpace(p.slot)
		s.removeProbes(p) // which are needed while stacks are recorded
		s.rows.tables.releaseAll(p.tables)
		s.mu.Lock()
		s.slots.giveBack(p)
		s.mu.Unlock()
		s.rows.forgetTables()
		s.files.closeSoon()
	})
}

// closePatience is how long Close waits for reads of files, which a file system may delay for
// ever.
const closePatience = 2 * time.Second

// Close ends all work and removes the probes of all processes.
func (s *Spaces) Close() {
	if s == nil {
		return
	}
	s.cancel()
	ended := make(chan struct{})
	go func() {
		s.working.Wait()
		s.rows.stop()
		for s.isPlacing() {
			time.Sleep(time.Millisecond)
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closePatience):
	}
	s.mu.Lock()
	for _, p := range s.byPID {
		s.removeProbes(p)
	}
	s.unexpect(func(*aheadProbes) bool { return true })
	s.mu.Unlock()
	s.removing.Wait()
	if s.rows.tables != nil {
		s.rows.tables.close()
	}
}

// view returns a process's view by generation. A child uses its parent's until it has its
// own.
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

// find returns the mapping that contains an address.
func (v *spaceView) find(addr uint64) (codeMapping, bool) {
	i := sort.Search(len(v.mappings), func(i int) bool { return v.mappings[i].start > addr }) - 1
	if i < 0 || v.mappings[i].end <= addr {
		return codeMapping{}, false
	}
	return v.mappings[i], true
}
