package tracer

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/heap"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/stack"
)

// library is a traced tt-metal library file, in any number of processes.
type library struct {
	*heap.Library
	kernel.ProbedFile
	user int // in whose process it was discovered
	// CLOCK_MONOTONIC times at which the probes were placed and removed; 0: not yet
	attachedNs uint64
	retiredNs  atomic.Uint64
}

// placeAll places all probes of the library.
func (l *library) placeAll(objs *kernel.Objects, index uint8) (io.Closer, error) {
	var offsets, cookies []uint64
	for id, name := range probeNames {
		p, ok := l.Layout.Probes[name]
		if name == "" || !ok {
			continue
		}
		l.Kernel.ProbeAddress[id] = p.ProbeAddr
		offsets = append(offsets, p.FileOffset)
		cookies = append(cookies, uint64(index)<<8|uint64(id))
	}
	if err := objs.Layouts.Put(uint32(index), &l.Kernel); err != nil {
		return nil, fmt.Errorf("storing the layout of %s: %w", l.Path, err)
	}
	probes, err := l.Place(objs.Support.Uprobes, objs.OnProbe, offsets, cookies)
	if err != nil {
		return nil, fmt.Errorf("placing probes in %s: %w", l.Path, err)
	}
	return probes, nil
}

// occupies reports whether records of the library may still arrive.
func (l *library) occupies() bool {
	at := l.retiredNs.Load()
	return at == 0 || host.Now() < at+retiredNs
}

// libraries are the traced tt-metal libraries, and a cache of files that are none.
type libraries struct {
	objs   *kernel.Objects
	proc   *host.Proc
	spaces *stack.Spaces
	warn   func(string)

	// changing is locked while probes are placed or removed. Files of users are not read
	// meanwhile.
	changing sync.Mutex
	closed   bool
	// searchedNs is when the mappings of all processes were last read to free a slot.
	searchedNs atomic.Uint64

	mu     *sync.Mutex              // the finder's; it is never held while a file is read
	list   []*library               // by the index in records
	byFile map[host.FileID]*library // nil: no tt-metal library
	seen   map[int]*mapped          // processes that map one
	users  map[int]int              // the number of these processes by user
	// refused are the users whose libraries were not all traced
	refused map[int]bool
}

// mapped is a library in a process.
type mapped struct {
	*library
	by          int // the user of the process
	bias        uint64
	first, last host.NewMapping // of a library
}

// maxFiles bounds the cache of files that are no library.
const maxFiles = 1 << 16

func newLibraries(objs *kernel.Objects, spaces *stack.Spaces, proc *host.Proc, warn func(string), mu *sync.Mutex) *libraries {
	return &libraries{
		objs: objs, spaces: spaces, proc: proc, warn: warn, mu: mu,
		byFile: make(map[host.FileID]*library), seen: make(map[int]*mapped), users: make(map[int]int), refused: make(map[int]bool),
	}
}

func (s *libraries) remember(id host.FileID, l *library) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byFile) >= maxFiles {
		maps.DeleteFunc(s.byFile, func(_ host.FileID, l *library) bool { return l == nil })
	}
	s.byFile[id] = l
}

// same returns the traced library whose file this is under another name: in another container,
// or discovered in another way.
func (s *libraries) same(file *kernel.ProbedFile) *library {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.list {
		if l.Probes != nil && l.Same(file) {
			return l
		}
	}
	return nil
}

// errNoRoom means that a user's processes map more libraries than are traced for one user.
var errNoRoom = errors.New("its user has too many tt-metal libraries mapped at the same time")

// open attaches to a library that a user's process maps, unless it is attached already. in
// opens directories of its path.
func (s *libraries) open(file *os.File, user int, path string, in func(string) (*os.File, error)) (_ *library, err error) {
	kept := false
	defer func() {
		if !kept {
			file.Close()
		}
	}()
	probed, err := kernel.NewProbedFile(file)
	if err != nil {
		return nil, err
	}
	probed.Identify()
	if l := s.same(&probed); l != nil {
		return l, nil
	}
	if !s.hasRoom(user) {
		return nil, errNoRoom
	}
	resume := func() {}
	defer func() { resume() }()
	known, err := heap.OpenLibrary(file, probed.Info.Size(), path, in, func() { resume = s.spaces.Pause() })
	if err != nil {
		return nil, err
	}
	s.retire(false)
	s.changing.Lock()
	defer s.changing.Unlock()
	if l := s.same(&probed); l != nil { // attached to meanwhile, for another user
		return l, nil
	}
	if s.closed {
		return nil, os.ErrClosed
	}
	slot := s.slot(user)
	if slot < 0 {
		return nil, errNoRoom
	}
	l := &library{Library: known, ProbedFile: probed, user: user}
	if err := s.protect(l); err != nil {
		return nil, err
	}
	kept = true
	for _, m := range l.Layout.Missing {
		s.warn(fmt.Sprintf("%s%s: %s: %s", path, l.InRelease(), m.Name, m.Costs))
	}
	s.mu.Lock() // before its first record arrives
	if slot == len(s.list) {
		s.list = append(s.list, l)
	} else {
		s.list[slot] = l
	}
	s.mu.Unlock()
	probes, err := l.placeAll(s.objs, uint8(slot))
	if err != nil {
		l.retire()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.Probes, l.attachedNs = probes, host.Now()
	return l, nil
}

// retiredNs is how long records of a library may still arrive after its last process.
const retiredNs = 10e9

// slot returns the index for a user's next library; -1 if there is no room.
func (s *libraries) slot(user int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, others := 0, 0
	free := -1
	for i, l := range s.list {
		switch {
		case !l.occupies():
			free = i
		case l.user == user:
			own++
		default:
			others++
		}
	}
	if user != 0 && own >= (bpf.MaxLibraries-others)/2 || own+others == bpf.MaxLibraries {
		return -1
	}
	if free < 0 {
		free = len(s.list)
	}
	return free
}

// hasRoom reports whether another library of a user's processes may be traced. A user gets half
// of the slots that others leave, and root gets all. Slots of libraries that no process maps are
// reused.
func (s *libraries) hasRoom(user int) bool {
	if s.slot(user) < 0 && host.Now()-s.searchedNs.Load() > searchNs {
		s.searchedNs.Store(host.Now())
		s.retire(true)
	}
	return s.slot(user) >= 0
}

// refuses notes that a user's library is not traced, and reports whether it is the first one.
func (s *libraries) refuses(user int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.refused[user]
	s.refused[user] = true
	return first
}

// searchNs is how often the mappings of all processes are read to find libraries that no process
// maps.
const searchNs = 1e9

// retire removes the probes of libraries that no process maps: of deleted ones, which no process
// can map again, or of all.
func (s *libraries) retire(all bool) {
	idle := make(map[*library]bool)
	of := make(map[host.FileID]*library)
	s.mu.Lock()
	for _, l := range s.list {
		if l.Probes != nil && (all || l.IsDeleted()) {
			idle[l] = true
		}
	}
	for id, l := range s.byFile {
		if idle[l] {
			id.Generation = 0 // /proc/PID/maps does not have it
			of[id] = l
		}
	}
	s.mu.Unlock()
	if len(idle) == 0 {
		return
	}
	pids, err := host.PIDs()
	if err != nil {
		return
	}
	for _, pid := range pids {
		maps, err := s.proc.FileMappings(pid)
		if errors.Is(err, host.ErrNoAnswer) {
			delete(idle, s.libraryOf(pid)) // another library that it maps is lost to it
		} else if err != nil && s.mapped(pid) && !host.Ended(pid) {
			return // its mappings are unknown, so nothing can be retired
		}
		for _, m := range maps {
			delete(idle, of[m.File])
		}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	for l := range idle {
		s.remove(l, false)
	}
}

// remove removes the probes of a library. Its file is opened again when a process maps it. With
// mapped, it does so even if a process is known to map the library.
func (s *libraries) remove(l *library, mapped bool) {
	s.mu.Lock()
	probes := l.Probes
	for _, p := range s.seen {
		if p.library == l && !mapped {
			probes = nil
		}
	}
	if probes == nil {
		s.mu.Unlock()
		return
	}
	l.Probes = nil
	maps.DeleteFunc(s.byFile, func(_ host.FileID, other *library) bool { return other == l })
	s.mu.Unlock()
	probes.Close()
	l.retire()
}

// add adds a process that maps a library; false if its user has too many. Each process of root
// counts as a user.
func (s *libraries) add(p *mapped) bool {
	if p.by != 0 && s.users[p.by] >= bpf.ProcessesAUser {
		return false
	}
	s.users[p.by]++
	s.seen[p.first.PID] = p
	return true
}

// forget removes a process that has ended.
func (s *libraries) forget(pid int) {
	if p := s.seen[pid]; p != nil {
		delete(s.seen, pid)
		if s.users[p.by]--; s.users[p.by] == 0 {
			delete(s.users, p.by)
		}
	}
}

// mapped reports whether a process is known to map a library.
func (s *libraries) mapped(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[pid] != nil
}

// libraryOf returns a library that a process is known to map; nil if there is none.
func (s *libraries) libraryOf(pid int) *library {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.seen[pid]; p != nil {
		return p.library
	}
	return nil
}

// at returns the library with an index; nil if there is none.
func (s *libraries) at(index uint8) *library {
	if int(index) < len(s.list) {
		return s.list[index]
	}
	return nil
}

// retire begins the time in which records of the library may still arrive.
func (l *library) retire() {
	l.Remove()
	l.retiredNs.Store(host.Now())
}

// protect makes writers of a library's file wait. It refuses a file that was written to since it was
// read, until it is read again: the probes would lie in the middle of other instructions.
func (s *libraries) protect(l *library) error {
	now, err := l.Protect()
	if err == nil && !kernel.Unchanged(l.Info, now) {
		return fmt.Errorf("%s was written to while it was read: %w", l.Path, unix.EWOULDBLOCK)
	}
	if err != nil {
		s.warn(fmt.Sprintf("%s: do not overwrite this file while it is traced: the programs that run it would crash (no lease: %v)", l.Path, err))
	}
	return nil
}

// withdraw removes the probes of libraries that a writer waits for, and lets the writer go on.
// It returns these libraries.
func (s *libraries) withdraw() (list []*library) {
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, l := range s.list {
		if l.Overwritten() {
			s.remove(l, true)
			list = append(list, l)
			s.warn(fmt.Sprintf("%s is being overwritten: processes that run it are no longer traced", l.Path))
		}
	}
	return list
}

func (s *libraries) close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.closed = true
	for _, l := range s.list {
		if l.Probes != nil {
			s.remove(l, true)
		}
	}
}
