// Package libraries attaches to the tt-metal libraries that processes map: it inspects files, places
// the probes, and shares the kernel side's slots for libraries among users.
package libraries

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"ttmem/bpf"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/kernel"
	"ttmem/tracer/quota"
)

// A Library is a traced tt-metal library file, in any number of processes.
type Library struct {
	*heap.Library
	kernel.ProbedFile
	user int // in whose process it was discovered
	// AttachedNs and retiredNs are the times at which the probes were placed and removed, by
	// CLOCK_MONOTONIC; 0: not yet.
	AttachedNs atomic.Uint64
	retiredNs  atomic.Uint64
}

func (l *Library) placeAll(objs *kernel.Objects, index uint8) (io.Closer, error) {
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
	o, c := exceptionProbes(l.Layout.Exceptions)
	offsets, cookies = append(offsets, o...), append(cookies, c...)
	if err := objs.Layouts.Put(uint32(index), &l.Kernel); err != nil {
		return nil, fmt.Errorf("storing its layout: %w", err)
	}
	probes, err := l.Place(objs.Support.Uprobes, objs.OnProbe, offsets, cookies)
	if err != nil {
		return nil, fmt.Errorf("placing probes in it: %w", err)
	}
	return probes, nil
}

// occupies reports whether records of the library may still arrive.
func (l *Library) occupies() bool {
	at := l.retiredNs.Load()
	return at == 0 || host.Now() < at+retiredNs
}

// A Set is the traced tt-metal libraries, and a cache of files that are none.
type Set struct {
	// Seen is true once a process is known to map a library.
	Seen   atomic.Bool
	objs   *kernel.Objects
	proc   *host.Proc
	spaces *stack.Spaces
	warn   func(user int, text string)

	// changing is locked while probes are placed or removed. Files of users are not read
	// meanwhile.
	changing sync.Mutex
	closed   bool
	// searchedNs is when the mappings of all processes were last read to free a slot.
	searchedNs atomic.Uint64

	mu     sync.Mutex               // it is never held while a file is read
	list   []*Library               // by the index in records
	byFile map[host.FileID]*Library // nil: no tt-metal library
	// members are the processes that map one, by id.
	members map[int]member
	users   *quota.Quota // the number of these processes
	// beside are the other files of tt-metal and of its callers, and those with which processes name moments.
	beside kernel.ProbedFiles
}

// A member is a program that maps a library, in a process of a user.
type member struct {
	kernel.Program
	library *Library
	user    int
}

// maxFiles bounds the cache of files that are not libraries.
const maxFiles = 1 << 16

// New returns an empty Set.
func New(objs *kernel.Objects, spaces *stack.Spaces, proc *host.Proc, warn func(user int, text string)) *Set {
	s := &Set{
		objs: objs, spaces: spaces, proc: proc, warn: warn,
		byFile: make(map[host.FileID]*Library), members: make(map[int]member), users: quota.New(bpf.ProcessesAUser, math.MaxInt),
		beside: kernel.ProbedFiles{Find: besideProbes, Each: maxBeside, Warn: warn},
	}
	if objs != nil {
		s.beside.Uprobes, s.beside.Program = objs.Support.Uprobes, objs.OnProbe
	}
	return s
}

// Remember notes the library in a file; nil if the file is none.
func (s *Set) Remember(id host.FileID, l *Library) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byFile) >= maxFiles {
		maps.DeleteFunc(s.byFile, func(_ host.FileID, l *Library) bool { return l == nil })
	}
	s.byFile[id] = l
}

// same returns the traced library whose file this is under another name: in another container,
// or discovered in another way.
func (s *Set) same(file *kernel.ProbedFile) *Library {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.list {
		if l.Probes != nil && l.Same(file) {
			return l
		}
	}
	return nil
}

// ErrNoRoom means that a user's processes map more libraries than are traced for one user.
var ErrNoRoom = errors.New("its user has too many tt-metal libraries mapped at the same time")

// Open attaches to a library that a user's process maps, unless it is attached already. in
// opens directories of its path. Errors do not name the file.
func (s *Set) Open(file *os.File, user int, path string, in func(string) (*os.File, error)) (_ *Library, err error) {
	kept := false
	defer func() {
		if !kept {
			file.Close()
		}
	}()
	probed := kernel.ProbedFile{File: file}
	if probed.Info, err = file.Stat(); err != nil {
		return nil, err
	}
	probed.Identify()
	if l := s.same(&probed); l != nil {
		return l, nil
	}
	if !s.HasRoom(user) {
		return nil, ErrNoRoom
	}
	resume := func() {}
	defer func() { resume() }()
	var known *heap.Library
	read := func() (err error) {
		known, err = heap.OpenLibrary(file, probed.Info.Size(), path, in, func() { resume = s.spaces.Pause() })
		return err
	}
	if err := read(); err != nil {
		return nil, err
	}
	unprotected, err := probed.Protect(read)
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
		return nil, ErrNoRoom
	}
	l := &Library{Library: known, ProbedFile: probed, user: user}
	if unprotected != nil {
		s.warn(user, kernel.Unprotected(path, unprotected))
	}
	kept = true
	var missing []string
	for _, m := range l.Layout.Missing {
		missing = append(missing, m.Name+": "+m.Costs)
	}
	if missing != nil {
		s.warn(user, fmt.Sprintf("%s%s, of user %d: %s", path, l.InRelease(), user, strings.Join(missing, "; ")))
	}
	s.Put(slot, l) // before its first record arrives
	probes, err := l.placeAll(s.objs, uint8(slot))
	if err != nil {
		l.retire()
		return nil, err
	}
	s.mu.Lock()
	l.Probes = probes
	l.AttachedNs.Store(host.Now())
	s.mu.Unlock()
	if l.Overwritten() { // by a writer who came before the probes
		s.remove(l, true)
	}
	return l, nil
}

// Put puts a library into a free slot.
func (s *Set) Put(slot int, l *Library) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot == len(s.list) {
		s.list = append(s.list, l)
	} else {
		s.list[slot] = l
	}
}

// retiredNs is how long records of a library may still arrive after its last process.
const retiredNs = 10e9

// slot returns the index for a user's next library; -1 if there is no room.
func (s *Set) slot(user int) int {
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

// HasRoom reports whether another library of a user's processes may be traced. A user gets half
// of the slots that others leave, and root gets all. Slots of libraries that no process maps are
// reused.
func (s *Set) HasRoom(user int) bool {
	if s.slot(user) < 0 && host.Now()-s.searchedNs.Load() > searchNs {
		s.searchedNs.Store(host.Now())
		s.retire(true)
	}
	return s.slot(user) >= 0
}

// searchNs is how often the mappings of all processes are read to find libraries that no process
// maps.
const searchNs = 1e9

// retire removes the probes of libraries that no process maps: of deleted ones, which no process
// can map again, or of all.
func (s *Set) retire(all bool) {
	idle := make(map[*Library]bool)
	of := make(map[host.FileID]*Library)
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
		maps, _ := s.proc.FileMappings(pid) // remove keeps those of processes that are known to map one
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
func (s *Set) remove(l *Library, mapped bool) {
	s.mu.Lock()
	probes := l.Probes
	for _, m := range s.members {
		if m.library == l && !mapped {
			probes = nil
		}
	}
	if probes == nil {
		s.mu.Unlock()
		return
	}
	l.Probes = nil
	maps.DeleteFunc(s.byFile, func(_ host.FileID, other *Library) bool { return other == l })
	s.mu.Unlock()
	probes.Close()
	l.retire()
}

// ErrManyProcesses means that a user has too many processes that map a library.
var ErrManyProcesses = errors.New("its user has too many processes that use tt-metal")

// Join notes that a program of a user maps a library, until it leaves, and reports whether that is new.
// Each process of root counts as a user. The error is os.ErrClosed if the library is no longer traced.
func (s *Set) Join(p kernel.Program, l *Library, user int) (isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, known := s.members[p.PID]
	switch {
	case known && m.ExecID >= p.ExecID:
		return false, nil
	case l.Probes == nil:
		return false, os.ErrClosed
	case known:
		s.leave(m)
	}
	if !s.users.Take(host.Sharer(user, p.PID), 1) {
		return false, ErrManyProcesses
	}
	s.members[p.PID] = member{p, l, user}
	s.Seen.Store(true)
	return true, nil
}

// Leave removes a program that has ended.
func (s *Set) Leave(p kernel.Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, known := s.members[p.PID]; known && m.Program == p {
		s.leave(m)
	}
}

func (s *Set) leave(m member) {
	delete(s.members, m.PID)
	s.beside.Leave(m.PID)
	s.users.Take(host.Sharer(m.user, m.PID), -1)
}

// Of returns the library that a process is known to map; nil if there is none.
func (s *Set) Of(pid int) *Library {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[pid].library
}

// Processes returns the processes that are known to map a library, or only those that map l unless it
// is nil.
func (s *Set) Processes(l *Library) (pids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, m := range s.members {
		if l == nil || m.library == l {
			pids = append(pids, pid)
		}
	}
	return pids
}

// At returns the library with the index in a record; nil if there is none.
func (s *Set) At(index uint8) *Library {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(index) < len(s.list) {
		s.Seen.Store(true)
		return s.list[index]
	}
	return nil
}

// retire begins the time in which records of the library may still arrive.
func (l *Library) retire() {
	l.Remove()
	l.retiredNs.Store(host.Now())
}

// Withdraw removes the probes of libraries that a writer waits for, and lets the writer go on.
// It returns these libraries.
func (s *Set) Withdraw() (list []*Library) {
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, l := range s.list {
		if l.Overwritten() {
			s.remove(l, true)
			list = append(list, l)
			s.warn(l.user, fmt.Sprintf("%s is being overwritten: processes that run it are no longer traced", l.Path))
		}
	}
	s.beside.Withdraw()
	return list
}

// Close removes all probes.
func (s *Set) Close() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.closed = true
	for _, l := range s.list {
		if l.Probes != nil {
			s.remove(l, true)
		}
	}
	s.beside.Close()
}
