package tracer

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

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
	file   *os.File // kept open, so that it can be attached to under any name, also after it was deleted
	info   os.FileInfo
	inode  host.InodeHandle
	leased bool
	probes io.Closer // nil: removed
	// CLOCK_MONOTONIC times at which the probes were placed and removed
	attachedNs, retiredNs uint64
}

// attach places all probes of the library.
func (l *library) attach(objs *kernel.Objects, index uint8) error {
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
		return fmt.Errorf("storing the layout of %s: %w", l.Path, err)
	}
	// by descriptor: the path may lie in another mount namespace, or be gone
	path, err := fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()), error(nil)
	if l.probes, err = objs.Support.Uprobes.Place(path, objs.OnProbe, offsets, cookies, 0); err != nil {
		return fmt.Errorf("placing probes in %s: %w", l.Path, err)
	}
	return nil
}

// deleted reports whether the file has no name left.
func (l *library) deleted() bool {
	var stat unix.Stat_t
	return unix.Fstat(int(l.file.Fd()), &stat) == nil && stat.Nlink == 0
}

func (l *library) close() {
	if l.probes != nil {
		l.probes.Close()
	}
	l.file.Close()
}

// libraries are the traced tt-metal libraries, and a cache of files that are none. Its
// methods need the finder's lock.
type libraries struct {
	objs   *kernel.Objects
	spaces *stack.Spaces
	warn   func(string)
	list   []*library               // by the index in records
	byFile map[host.FileID]*library // nil: no tt-metal library
	seen   map[int]*mapped          // processes that map one
}

// mapped is a library in a process.
type mapped struct {
	*library
	bias uint64
}

// maxFiles bounds the cache of files that are no library.
const maxFiles = 1 << 16

func (s *libraries) remember(id host.FileID, l *library) {
	if len(s.byFile) >= maxFiles {
		maps.DeleteFunc(s.byFile, func(_ host.FileID, l *library) bool { return l == nil })
	}
	s.byFile[id] = l
}

// open attaches to a library, unless it is attached already.
func (s *libraries) open(file *os.File, path, root string) (*library, error) {
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	inode := host.HandleOf(file)
	for _, l := range s.list {
		// under another name, in another container, or discovered in another way
		if l.probes != nil && (os.SameFile(l.info, info) || host.SameInode(l.inode, inode, l.info, info)) {
			file.Close()
			return l, nil
		}
	}
	resume := func() {}
	defer func() { resume() }()
	known, err := heap.OpenLibrary(file, info.Size(), path, root, func() { resume = s.spaces.Pause() })
	if err != nil {
		file.Close()
		return nil, err
	}
	l := &library{Library: known, file: file, info: info, inode: inode}
	s.retire()
	slot := s.slot()
	if slot == bpf.MaxLibraries {
		file.Close()
		return nil, fmt.Errorf("%s is not traced: %d library files are traced already", path, bpf.MaxLibraries)
	}
	for _, m := range l.Layout.Missing {
		s.warn(fmt.Sprintf("%s%s: %s: %s", path, l.InRelease(), m.Name, m.Costs))
	}
	if err := l.attach(s.objs, uint8(slot)); err != nil {
		l.close()
		return nil, err
	}
	l.attachedNs = host.Now()
	if slot == len(s.list) {
		s.list = append(s.list, l)
	} else {
		s.list[slot] = l
	}
	s.guard(l)
	return l, nil
}

// retiredNs is how long records of a library may still arrive after its last process.
const retiredNs = 10e9

// spareSlots stay free for libraries that are discovered while others are retired.
const spareSlots = 8

// slot returns the index for the next library; bpf.MaxLibraries if there is no room.
func (s *libraries) slot() int {
	i := slices.IndexFunc(s.list, func(l *library) bool { return l.probes == nil && host.Now()-l.retiredNs > retiredNs })
	if i < 0 {
		i = len(s.list)
	}
	return i
}

// retire removes the probes of libraries that no process maps and that are deleted, so that
// none can map them. If the table is almost full, it retires all that no process maps.
func (s *libraries) retire() {
	full := len(s.list) >= bpf.MaxLibraries-spareSlots
	var idle []*library
	for _, l := range s.list {
		if l.probes != nil && (full || l.deleted()) {
			idle = append(idle, l)
		}
	}
	if len(idle) == 0 {
		return
	}
	pids, err := host.PIDs()
	if err != nil {
		return
	}
	of := make(map[host.FileID][]*library)
	for id, l := range s.byFile {
		if l != nil && slices.Contains(idle, l) {
			id.Generation = 0 // /proc/PID/maps does not have it
			of[id] = append(of[id], l)
		}
	}
	for _, pid := range pids {
		maps, err := host.FileMappings(pid)
		if err != nil && s.seen[pid] != nil && !host.Ended(pid) {
			return // its mappings are unknown, so nothing can be retired
		}
		for _, m := range maps {
			for _, l := range of[m.File] {
				idle = slices.DeleteFunc(idle, func(other *library) bool { return other == l })
			}
		}
	}
	for _, l := range idle {
		l.close()
		l.probes, l.retiredNs = nil, host.Now()
		s.forget(l)
	}
}

// forget makes discover open the files of a library again.
func (s *libraries) forget(l *library) {
	maps.DeleteFunc(s.byFile, func(_ host.FileID, other *library) bool { return other == l })
}

// at returns the library with an index; nil if there is none.
func (s *libraries) at(index uint8) *library {
	if int(index) < len(s.list) {
		return s.list[index]
	}
	return nil
}

// guard takes a lease on a library's file.
func (s *libraries) guard(l *library) {
	err := host.TakeLease(l.file)
	l.leased = err == nil
	if err != nil {
		s.warn(fmt.Sprintf("%s: do not overwrite this file while it is traced: the programs that run it would crash (no lease: %v)", l.Path, err))
	}
}

// withdraw removes the probes of libraries that a writer waits for, and lets the writer go
// on.
func (s *libraries) withdraw() {
	for _, l := range s.list {
		if l.probes == nil || !l.leased || !host.LeaseBroken(l.file) {
			continue
		}
		l.probes.Close()
		l.probes, l.retiredNs = nil, host.Now()
		host.EndLease(l.file)
		s.forget(l)
		s.warn(fmt.Sprintf("%s is being overwritten: processes that run it are no longer traced", l.Path))
	}
}

func (s *libraries) close() {
	for _, l := range s.list {
		l.close()
	}
}
