package tracer

// This file finds what to trace: the libraries that processes map, now and later.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
)

func (t *Tracer) watch() (err error) {
	if t.mappings, err = watchMappings(); err != nil {
		return err
	}
	t.watching.Add(1)
	go func() {
		defer t.watching.Done()
		hurry()
		every := func() int {
			if t.onlyListed && !t.MetAny() {
				return commandPoll
			}
			return mappingPoll
		}
		err := t.mappings.Read(every, t.mapped, t.rescan)
		if err != nil {
			t.warn(fmt.Sprintf("libraries that are loaded from now on are not seen: %v", err))
		}
	}()
	return nil
}

// hurry has the calling goroutine go before others on a busy host, as long as it runs:
// what programs do until their library is known, and their code, is not seen as it
// should be. It has little to do.
func hurry() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10) // or it waits its turn
}

// rescan looks at what processes map after n new mappings were not seen.
func (t *Tracer) rescan(n uint64) {
	var pids []int
	if t.onlyListed {
		var pid uint32
		var p bpf.KernelProcess
		for listed := t.objs.Processes.Iterate(); listed.Next(&pid, &p); {
			if Ended(int(pid)) {
				continue
			}
			pids = append(pids, int(pid))
			if t.spaces != nil {
				t.spaces.changed(int(pid))
			}
		}
	} else {
		// of a process that came and went meanwhile nothing is known
		t.find(found{event: event.Event{Kind: event.Lost, TimeNs: now(), Count: n, Cause: "mappings not seen"}})
	}
	if !t.onlyListed {
		if err := t.scan(nil); err != nil {
			t.warn(err.Error())
		}
	}
	for _, pid := range pids {
		if err := t.scan([]int{pid}); err != nil && !Ended(pid) {
			t.warn(err.Error())
		}
	}
}

// scan attaches to what processes map already: those given, or all.
func (t *Tracer) scan(pids []int) error {
	named := len(pids) > 0
	if !named {
		var err error
		if pids, err = processes(); err != nil {
			return fmt.Errorf("listing processes: %w", err)
		}
	}
	for _, pid := range pids {
		maps, err := executableMaps(pid)
		if err != nil {
			switch {
			case !named:
			case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
				return fmt.Errorf("no process %d", pid)
			case errors.Is(err, os.ErrPermission):
				return fmt.Errorf("process %d cannot be looked at: %w: it takes CAP_SYS_PTRACE where the process runs; a container has it with --privileged --pid=host", pid, cause(err))
			default:
				return fmt.Errorf("process %d cannot be looked at: %w", pid, cause(err))
			}
			continue
		}
		at := now()
		for _, m := range maps {
			if err := t.meet(mapping{timeNs: at, pid: pid, start: m.start, end: m.end, offset: m.offset, file: m.file, old: true}, m.path); err != nil && named {
				return err
			}
		}
	}
	return nil
}

// mapped takes what the kernel tells of a new mapping.
func (t *Tracer) mapped(m mapping) {
	if m.pid == os.Getpid() || m.file.inode == 0 {
		return
	}
	if t.onlyListed {
		var p bpf.KernelProcess
		if t.objs.Processes.Lookup(uint32(m.pid), &p) != nil {
			return
		}
	}
	if err := t.meet(m, ""); err != nil {
		t.warn(err.Error())
	}
	switch {
	case t.spaces == nil:
	case t.named[m.pid]:
		t.spaces.changed(m.pid) // at once, so that it is known by the first event
	default:
		t.spaces.changedIfKnown(m.pid)
	}
}

// found is an event that did not come through the ring buffer.
type found struct {
	event   event.Event
	library *library
}

// lateNs is how long after its mapping a library may be attached to without looking
// for what was allocated until then: no program has opened a device by then.
const lateNs = 100e6

// meet looks at a mapped file, once, and attaches to it if it is a tt-metal
// library.
func (t *Tracer) meet(m mapping, path string) error {
	t.calls.meet(m)
	t.mu.Lock()
	defer t.mu.Unlock()
	l, known := t.byFile[m.file]
	if !known || l == nil && m.file.generation == 0 && namedLikeLibrary(m.name+path) {
		// or another file has got the number of one that was no library
		file, err := openMapped(m.pid, m.start, m.end)
		if err != nil {
			t.missed(m, err)
			return nil
		}
		if path == "" {
			path = mappedPath(m.pid, m.file)
		}
		l, err = t.open(file, path, procDir(m.pid)+"/root")
		if errors.Is(err, ErrNoLibrary) || errors.Is(err, symbolize.ErrNotELF) {
			t.remember(m.file, nil)
			return nil
		}
		if err != nil {
			// the next process that maps it is to be told of, too
			t.found = append(t.found, found{event: event.Event{
				Kind: event.Lost, TimeNs: now(), PID: m.pid, Count: 1, Cause: "library not traced",
			}})
			return err
		}
		t.remember(m.file, l)
	}
	if l != nil && !t.seen[m.pid] {
		m.old = m.old || l.attachedNs > m.timeNs+lateNs
		t.met = true
		// its end is to be told, whether or not it ever hits a probe
		_ = t.objs.Processes.Update(uint32(m.pid), &bpf.KernelProcess{}, ebpf.UpdateNoExist)
		if Ended(m.pid) { // before that, perhaps: nobody would tell of it any more
			_ = t.objs.Processes.Delete(uint32(m.pid))
			return nil
		}
		t.seen[m.pid] = true
		if m.old {
			t.markLate(m.pid)
		}
		t.space(m.pid)
		start := describeProcess(m.pid)
		start.TimeNs, start.AttachedLate = m.timeNs, m.old
		t.starts[m.pid] = start
		t.found = append(t.found, found{start, l})
		if m.old {
			t.attachLate(l, m)
		}
	}
	return nil
}

// describeProcess is the start of a process, with all that its files tell.
func describeProcess(pid int) event.Event {
	id := identityOf(pid)
	return event.Event{
		Kind: event.ProcessStart, PID: pid, TID: pid, Comm: threadName(pid, pid), Command: commandLine(pid),
		UID: id.uid, Container: id.container, Pod: id.pod, ContainerPID: id.containerPID,
	}
}

// startOf is what a process was like when it was met. One that ends at once is not
// there any more when its first record comes.
func (t *Tracer) startOf(pid int) event.Event {
	t.mu.Lock()
	start, ok := t.starts[pid]
	t.mu.Unlock()
	if !ok {
		start = describeProcess(pid)
	}
	return start
}

// namedLikeLibrary reports whether a file's name is one that tt-metal libraries have.
func namedLikeLibrary(path string) bool {
	name := filepath.Base(path)
	return strings.Contains(name, "tt_metal") || strings.Contains(name, "ttnn")
}

// missed tells of a library that could not be looked at because its process was
// quicker. Most files that are missed so are none; their names tell.
func (t *Tracer) missed(m mapping, err error) {
	if namedLikeLibrary(m.name) {
		t.warn(fmt.Sprintf("%s in process %d could not be traced: %v", m.name, m.pid, err))
		t.found = append(t.found, found{event: event.Event{
			Kind: event.Lost, TimeNs: m.timeNs, Count: 1, Cause: "process ended before its library was traced",
		}})
	}
}

// maxFiles bounds how many files are remembered that are no library.
const maxFiles = 1 << 16

func (t *Tracer) remember(id fileID, l *library) {
	if len(t.byFile) >= maxFiles {
		maps.DeleteFunc(t.byFile, func(_ fileID, l *library) bool { return l == nil })
	}
	t.byFile[id] = l
}

// maxLibraries is MAX_LIBRARIES of bpf/src/layout.h.
const maxLibraries = 64

func (t *Tracer) open(file *os.File, path, root string) (*library, error) {
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	attaching := false
	defer func() {
		if attaching {
			t.spaces.attaching.Unlock()
		}
	}()
	inode := handleOf(file)
	for _, l := range t.libraries {
		// under another name, in another container, or met before in another way
		if l.probes != nil && (os.SameFile(l.info, info) || sameInode(l.inode, inode, l.info, info)) {
			file.Close()
			return l, nil
		}
	}
	l, err := openLibrary(file, info, path, root, func() {
		if t.spaces != nil {
			t.spaces.attaching.Lock()
			attaching = true
		}
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	l.inode = inode
	t.retire()
	slot := t.slot()
	if slot == maxLibraries {
		file.Close()
		return nil, fmt.Errorf("%s is not traced: %d library files are traced already", path, maxLibraries)
	}
	for _, m := range l.layout.Missing {
		t.warn(fmt.Sprintf("%s%s: %s: %s", path, inRelease(l.release), m.Name, m.Costs))
	}
	if err := l.attach(&t.objs, uint8(slot)); err != nil {
		l.close()
		return nil, err
	}
	l.attachedNs = now()
	if slot == len(t.libraries) {
		t.libraries = append(t.libraries, l)
	} else {
		t.libraries[slot] = l
	}
	t.guard(l)
	return l, nil
}

// retiredNs is how long after its last process the records of a library may still come.
const retiredNs = 10e9

// spareSlots are kept for libraries that are met while others are given up.
const spareSlots = 8

// slot is where the next library goes: maxLibraries where there is no room.
func (t *Tracer) slot() int {
	i := slices.IndexFunc(t.libraries, func(l *library) bool { return l.probes == nil && now()-l.retiredNs > retiredNs })
	if i < 0 {
		i = len(t.libraries)
	}
	return i
}

// retire gives up libraries that no process maps any more and none can: their files
// are deleted; or any, where no more can be traced otherwise. t.mu is held.
func (t *Tracer) retire() {
	full := len(t.libraries) >= maxLibraries-spareSlots
	var idle []*library
	for _, l := range t.libraries {
		if l.probes != nil && (full || l.deleted()) {
			idle = append(idle, l)
		}
	}
	if len(idle) == 0 {
		return
	}
	pids, err := processes()
	if err != nil {
		return
	}
	of := make(map[fileID][]*library)
	for id, l := range t.byFile {
		if l != nil && slices.Contains(idle, l) {
			id.generation = 0 // which the maps do not tell
			of[id] = append(of[id], l)
		}
	}
	for _, pid := range pids {
		maps, err := executableMaps(pid)
		if err != nil && t.seen[pid] && !Ended(pid) {
			return // nobody knows what it still maps
		}
		for _, m := range maps {
			for _, l := range of[m.file] {
				idle = slices.DeleteFunc(idle, func(other *library) bool { return other == l })
			}
		}
	}
	for _, l := range idle {
		l.close()
		l.probes, l.retiredNs = nil, now()
		maps.DeleteFunc(t.byFile, func(_ fileID, other *library) bool { return other == l })
	}
}

// Prepare attaches to a library file before a process maps it.
func (t *Tracer) Prepare(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a FIFO by now
	if err != nil {
		return err
	}
	id, err := identity(file)
	if err != nil {
		file.Close()
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byFile[id] != nil {
		file.Close()
		return nil
	}
	l, err := t.open(file, path, "/")
	if err != nil {
		return err
	}
	t.byFile[id] = l
	// what is installed with it
	dir := filepath.Dir(path)
	beside, _ := filepath.Glob(filepath.Join(dir, "*.so*"))
	extensions, _ := filepath.Glob(filepath.Join(dir, "..", "..", "*.so"))
	beside = append(beside, extensions...)
	t.calls.prepare(beside)
	if t.spaces != nil {
		t.watching.Go(func() { t.spaces.prepare(beside) })
	}
	return nil
}

// MetAny reports whether any traced process mapped a library.
func (t *Tracer) MetAny() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.met
}

// seenPIDs are the processes that are known to map a library.
func (t *Tracer) seenPIDs() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.seen))
}

// Maps reports whether a process is known to map a tt-metal library.
func (t *Tracer) Maps(pid int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[pid]
}

func (t *Tracer) library(index uint8) *library {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int(index) < len(t.libraries) {
		return t.libraries[index]
	}
	return nil
}

// Mark puts a mark of this name between what happened before the call and after it.
func (t *Tracer) Mark(name string, uid int) {
	t.find(found{event: event.Event{Kind: event.Mark, TimeNs: now(), Cause: name, UID: uid}})
}

// find takes an event from another goroutine.
func (t *Tracer) find(e found) {
	t.mu.Lock()
	t.found = append(t.found, e)
	t.mu.Unlock()
}

func (t *Tracer) takeFound() {
	t.mu.Lock()
	list := t.found
	t.found = nil
	t.mu.Unlock()
	for _, f := range list {
		// what happened meanwhile may be told already
		f.event.TimeNs = max(f.event.TimeNs, t.queue.released)
		switch {
		case f.event.Kind != event.ProcessStart:
			t.queue.push(f.event)
		case !Ended(f.event.PID):
			t.decoder.start(&f.event, f.library)
		}
	}
}
