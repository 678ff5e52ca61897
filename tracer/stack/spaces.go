package stack

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cilium/ebpf"

	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// Spaces mirrors the address spaces of traced processes to the kernel side. If it is nil,
// no stacks are recorded.
type Spaces struct {
	objs   *kernel.Objects
	inner  *ebpf.MapSpec
	tables *unwindTables
	warn   func(string)
	// readers read the memory and the /proc files of processes.
	readers *host.Readers

	wake chan struct{}
	due  *time.Timer // wakes when a process may be published again
	// closing is done when work in the background has to end. stopped is closed when updates
	// have ended.
	closing context.Context
	cancel  context.CancelFunc
	stopped chan struct{}

	mu    sync.Mutex
	byPID map[int]*space
	// files are those mapped by a process, or used by a stored stack
	files    map[host.FileID]weak.Pointer[codeFile]
	names    symbolize.Cache         // of files
	byRows   map[string]*kernelTable // by codeFile.sameRows
	dirty    map[int]bool            // processes to publish; true: their mappings may have changed
	ended    []kernel.Program        // that are to be dropped
	slots    []bool                  // in use; slot 0 is never used
	nextSlot int
	users    map[int]int  // slots by user
	refused  map[int]bool // users with a process that got no slot
	// generation is the number of the newest view of any process.
	generation uint32
	// prepared are tables and preread are files that were read before a process was known to
	// map them.
	prepared []tablesInUse
	preread  []*codeFile
	reading  reading
	// large is full while a large file is read, and openingLarge is full while one is opened.
	large, openingLarge chan struct{}
	// pausedUntil is when the reading of files continues after a Pause.
	pausedUntil atomic.Int64
	// updating is locked while a process's view is being built.
	updating sync.Mutex
	// placing counts the probes that are placed in the background, by user.
	placing map[int]int
	// removing counts the removals of probes in the background.
	removing sync.WaitGroup
	// collecting is true while a garbage collection is scheduled that closes unused files.
	collecting atomic.Bool
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
	key     keyRead
	// shownKey is the key that the newest view was published with.
	shownKey pythonKey
	loader   placement // on its dynamic linker
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
		readers: readers, warn: warn, wake: make(chan struct{}, 1),
		closing: closing, cancel: cancel, stopped: make(chan struct{}),
		reading: reading{progress: make(chan struct{}, 1), files: make(map[weak.Pointer[codeFile]]bool)},
		byPID:   make(map[int]*space), users: make(map[int]int), refused: make(map[int]bool), files: make(map[host.FileID]weak.Pointer[codeFile]),
		byRows: make(map[string]*kernelTable), dirty: make(map[int]bool),
		large: make(chan struct{}, 1), openingLarge: make(chan struct{}, 1),
		placing: make(map[int]int),
	}
	s.due = time.AfterFunc(updateBurst, s.wakeUp)
	return s
}

// Start begins to publish changes to the kernel side.
func (s *Spaces) Start(objs *kernel.Objects) (err error) {
	if s == nil {
		return nil
	}
	spec := objs.Support.Spec
	if s.tables, err = newUnwindTables(objs, spec.Maps["slabs"]); err != nil {
		return err
	}
	s.objs, s.inner = objs, spec.Maps["spaces"].InnerMap
	s.slots = make([]bool, objs.Spaces.MaxEntries())
	go s.work()
	return nil
}

// Started publishes all changes so far, and releases the files that were read in advance.
func (s *Spaces) Started() {
	if s == nil {
		return
	}
	s.Settle()
	s.preread = nil
}

// Read reads the files that processes map, before the kernel side is loaded.
func (s *Spaces) Read(pids []int) {
	var ahead atomic.Uint64
	for _, pid := range pids {
		code, err := s.readers.CodeMappings(pid)
		if err != nil {
			continue
		}
		mappings := s.open(pid, code)
		s.each(len(mappings), func(i int) {
			if f := mappings[i].file; f.elf != nil && ahead.Add(f.frameBytes()) < maxAhead {
				_ = s.readRows(f, s.pauseReading)
			}
		})
		for _, m := range mappings {
			s.preread = append(s.preread, m.file) // until the process is known
		}
	}
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

// forget drops a process if its program is the one that drops says; s.updating is held.
func (s *Spaces) forget(pid int, drops func(kernel.Program) bool) {
	s.mu.Lock()
	p := s.byPID[pid]
	s.mu.Unlock()
	if p != nil && drops(p.program) {
		s.drop(pid, p)
	}
}

// drop drops the record of a process; s.updating is held.
func (s *Spaces) drop(pid int, p *space) {
	s.mu.Lock()
	delete(s.byPID, pid)
	s.mu.Unlock()
	// this comes before removing its probes, which are needed while stacks are recorded
	_ = s.objs.Spaces.Delete(p.slot)
	s.removeProbes(p)
	_ = s.objs.Unloading.Delete(uint32(pid))
	s.release(p.tables)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(p)
	maps.DeleteFunc(s.files, func(_ host.FileID, f weak.Pointer[codeFile]) bool { return f.Value() == nil })
	maps.DeleteFunc(s.byRows, func(_ string, t *kernelTable) bool { return !s.tables.has(t) })
	s.closeFilesSoon()
}

// closeFilesAfter is how long files that no process maps may stay open.
const closeFilesAfter = 5 * time.Second

// closeFilesSoon schedules a garbage collection, which closes files that no process maps and no
// stack needs. In an idle service the next one might be minutes away; until then their disk space
// is not freed, and their file systems cannot be unmounted.
func (s *Spaces) closeFilesSoon() {
	if s.collecting.CompareAndSwap(false, true) {
		time.AfterFunc(closeFilesAfter, func() {
			s.collecting.Store(false)
			runtime.GC()
		})
	}
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
		if s.objs != nil {
			<-s.stopped
		}
		s.stopReading()
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
	s.mu.Unlock()
	s.removing.Wait()
	if s.tables != nil {
		s.tables.close()
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
