package tracer

// This file discovers what to trace: the libraries that processes map, now and later.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
	"ttmem/tracer/marks"
	"ttmem/tracer/stack"
)

// finder discovers the processes that map a tt-metal library, and attaches to the library.
type finder struct {
	objs   *kernel.Objects
	spaces *stack.Spaces // nil: no stacks are taken
	calls  *marks.Placer // nil: no calls are marks
	warn   func(string)
	// onlyListed restricts tracing to the processes in the kernel side's list
	onlyListed bool
	// named are the processes that the user named
	named map[int]bool

	mappings *host.MappingWatch
	breaks   chan os.Signal // of leases: a library is about to be overwritten
	working  sync.WaitGroup
	closing  context.Context // done when tracing ends
	stop     context.CancelFunc

	mu        sync.Mutex
	libraries libraries
	late      lateAttaches
	starts    map[int]event.Event // of processes that map a library
	inbox     []discovered        // for Run to take
	seenAny   bool                // a process mapped a library
}

func newFinder(objs *kernel.Objects, spaces *stack.Spaces, o *Options) *finder {
	f := &finder{
		objs: objs, spaces: spaces, warn: o.Warn, onlyListed: len(o.Processes) > 0,
		named: make(map[int]bool), starts: make(map[int]event.Event),
		libraries: libraries{
			objs: objs, spaces: spaces, warn: o.Warn,
			byFile: make(map[host.FileID]*library), seen: make(map[int]bool),
		},
		late: lateAttaches{byPID: make(map[int]*lateAttach)},
	}
	f.closing, f.stop = context.WithCancel(context.Background())
	return f
}

// begin attaches to the libraries that are already mapped, and watches for new mappings.
func (f *finder) begin(o *Options) error {
	if err := f.list(o.Processes, o.Children); err != nil {
		return err
	}
	if len(o.MarkAt) > 0 {
		f.calls = marks.New(o.MarkAt, f.objs.OnMark, f.objs.Support.Uprobes, f.warn)
	}
	f.watchOverwrites()
	if err := f.watch(); err != nil {
		return err
	}
	if err := f.scan(o.Processes); err != nil {
		return err
	}
	f.calls.Settle()
	if o.Children {
		return nil // children may map more
	}
	return errors.Join(f.calls.Unfound()...)
}

// list puts the named processes into the kernel side's list.
func (f *finder) list(pids []int, children bool) error {
	for _, pid := range pids {
		p := bpf.KernelProcess{}
		if children {
			p.Flags = bpf.ProcessFollow
		}
		f.named[pid] = true
		if err := f.objs.Processes.Put(uint32(pid), &p); err != nil {
			return fmt.Errorf("listing process %d: %w", pid, err)
		}
	}
	return nil
}

func (f *finder) watch() (err error) {
	if f.mappings, err = host.WatchMappings(); err != nil {
		return err
	}
	f.working.Add(1)
	go func() {
		defer f.working.Done()
		host.RaisePriority()
		every := func() int {
			if f.onlyListed && !f.anySeen() {
				return host.CommandPollMs
			}
			return host.MappingPollMs
		}
		err := f.mappings.Read(every, f.allMapped, f.rescan)
		if err != nil {
			f.warn(fmt.Sprintf("libraries loaded from now on are not traced: %v", err))
		}
	}()
	return nil
}

// rescan reads the mappings of processes after n new mappings were lost.
func (f *finder) rescan(n uint64) {
	var pids []int
	if f.onlyListed {
		var pid uint32
		var p bpf.KernelProcess
		for listed := f.objs.Processes.Iterate(); listed.Next(&pid, &p); {
			if host.Ended(int(pid)) {
				continue
			}
			pids = append(pids, int(pid))
			f.spaces.Changed(int(pid))
		}
	} else {
		// a process that came and went meanwhile remains unknown
		f.add(discovered{event: event.Event{Kind: event.Lost, TimeNs: host.Now(), Count: n, Cause: "mappings not seen"}})
	}
	if !f.onlyListed {
		if err := f.scan(nil); err != nil {
			f.warn(err.Error())
		}
	}
	for _, pid := range pids {
		if err := f.scan([]int{pid}); err != nil && !host.Ended(pid) {
			f.warn(err.Error())
		}
	}
}

// scan attaches to libraries that are already mapped, by the given processes or by all.
func (f *finder) scan(pids []int) error {
	named := len(pids) > 0
	if !named {
		var err error
		if pids, err = host.PIDs(); err != nil {
			return fmt.Errorf("listing processes: %w", err)
		}
	}
	for _, pid := range pids {
		maps, err := host.FileMappings(pid)
		if err != nil {
			switch {
			case !named:
			case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
				return fmt.Errorf("no process %d", pid)
			case errors.Is(err, os.ErrPermission):
				return fmt.Errorf("cannot read process %d: %w: this needs CAP_SYS_PTRACE in the process's namespace; in a container, use --privileged --pid=host", pid, host.WithoutPath(err))
			default:
				return fmt.Errorf("cannot read process %d: %w", pid, host.WithoutPath(err))
			}
			continue
		}
		at := host.Now()
		for _, m := range maps {
			if err := f.discover(host.NewMapping{TimeNs: at, PID: pid, Start: m.Start, End: m.End, Offset: m.Offset, File: m.File, Existing: true}, m.Path); err != nil && named {
				return err
			}
		}
	}
	return nil
}

// allMapped handles new mappings that the kernel reports.
func (f *finder) allMapped(list []host.NewMapping) {
	for _, m := range f.knownFirst(list) {
		f.mapped(m)
	}
}

// knownFirst puts the mappings of known libraries first: reading the files of the others
// takes a while, and a program may allocate, or end, meanwhile.
func (f *finder) knownFirst(list []host.NewMapping) []host.NewMapping {
	f.mu.Lock()
	defer f.mu.Unlock()
	other := func(m host.NewMapping) int {
		if f.libraries.byFile[m.File] == nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b host.NewMapping) int { return other(a) - other(b) })
	return list
}

// mapped handles a new mapping.
func (f *finder) mapped(m host.NewMapping) {
	if m.PID == os.Getpid() || m.File.Inode == 0 {
		return
	}
	if f.onlyListed {
		var p bpf.KernelProcess
		if f.objs.Processes.Lookup(uint32(m.PID), &p) != nil {
			return
		}
	}
	if err := f.discover(m, ""); err != nil {
		f.warn(err.Error())
	}
	switch {
	case f.named[m.PID]:
		f.spaces.Changed(m.PID) // at once, so that its code is known by its first event
	default:
		f.spaces.ChangedIfKnown(m.PID)
	}
}

// discovered is an event that came from the host and not through the ring buffer.
type discovered struct {
	event   event.Event
	library *library
}

// lateNs is how long after its mapping a library may be attached to without reading
// existing allocations. A Python program on a mock device opens it 80 ms after that.
const lateNs = 20e6

// discover reads a mapped file once, and attaches to it if it is a tt-metal library.
func (f *finder) discover(m host.NewMapping, path string) error {
	f.calls.Inspect(m)
	l, err := f.libraryOf(m, path)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l != nil && !f.libraries.seen[m.PID] {
		m.Existing = m.Existing || l.attachedNs > m.TimeNs+lateNs
		f.seenAny = true
		// the kernel reports its end even if it never hits a probe
		_ = f.objs.Processes.Update(uint32(m.PID), &bpf.KernelProcess{}, ebpf.UpdateNoExist)
		if host.Ended(m.PID) { // it may have ended before the update, so no record of its end will come
			_ = f.objs.Processes.Delete(uint32(m.PID))
			return nil
		}
		f.libraries.seen[m.PID] = true
		if m.Existing {
			f.markLate(m.PID)
		}
		f.spaces.Changed(m.PID)
		start := describeProcess(m.PID)
		start.TimeNs, start.AttachedLate = m.TimeNs, m.Existing
		f.starts[m.PID] = start
		f.inbox = append(f.inbox, discovered{start, l})
		if m.Existing {
			f.attachLate(l, m)
		}
	}
	return nil
}

// libraryOf returns the library that a mapped file is; nil if it is none.
func (f *finder) libraryOf(m host.NewMapping, path string) (*library, error) {
	f.mu.Lock()
	l, known := f.libraries.byFile[m.File]
	f.mu.Unlock()
	if l != nil || known && (m.File.Generation != 0 || !namedLikeLibrary(m.Name+path)) {
		return l, nil
	}
	// not seen before, or perhaps another file with the inode number of a file that was no
	// library
	file, err := host.OpenMapped(m.PID, m.Start, m.End)
	if err != nil {
		f.reportMissed(m, err)
		return nil, nil
	}
	// without the lock, which Run needs: most files are none, and have many symbols
	if !mayBeLibrary(file) {
		file.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.libraries.remember(m.File, nil)
		return nil, nil
	}
	if path == "" {
		path = host.MappedPath(m.PID, m.File)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l, err = f.libraries.open(file, path, host.ProcDir(m.PID)+"/root")
	if err != nil {
		// so that every process that maps it reports the loss
		f.inbox = append(f.inbox, discovered{event: event.Event{
			Kind: event.Lost, TimeNs: host.Now(), PID: m.PID, Count: 1, Cause: "library not traced",
		}})
		return nil, err
	}
	f.libraries.remember(m.File, l)
	return l, nil
}

// mayBeLibrary reports whether a file is a tt-metal library, or cannot be read.
func mayBeLibrary(file *os.File) bool {
	info, err := file.Stat()
	if err != nil {
		return true
	}
	elf, err := symbolize.New(file, info.Size())
	if err != nil {
		return !errors.Is(err, symbolize.ErrNotELF)
	}
	defer elf.Close()
	return layout.IsLibrary(elf)
}

// describeProcess describes a process by its files in /proc.
func describeProcess(pid int) event.Event {
	id := host.IdentityOf(pid)
	return event.Event{
		Kind: event.ProcessStart, PID: pid, TID: pid, Comm: host.ThreadName(pid, pid), Command: host.CommandLine(pid),
		UID: id.UID, Container: id.Container, Pod: id.Pod, ContainerPID: id.ContainerPID,
	}
}

// startOf describes a process as it was when it was discovered: a short-lived one may have
// ended by the time its first record arrives.
func (f *finder) startOf(pid int) event.Event {
	f.mu.Lock()
	start, ok := f.starts[pid]
	f.mu.Unlock()
	if !ok {
		start = describeProcess(pid)
	}
	return start
}

// namedLikeLibrary reports whether a file is named like a tt-metal library.
func namedLikeLibrary(path string) bool {
	name := filepath.Base(path)
	return strings.Contains(name, "tt_metal") || strings.Contains(name, "ttnn")
}

// reportMissed reports a library that could not be read because its process had ended. Most
// missed files are no libraries; the name decides.
func (f *finder) reportMissed(m host.NewMapping, err error) {
	if namedLikeLibrary(m.Name) {
		f.warn(fmt.Sprintf("%s in process %d could not be traced: %v", m.Name, m.PID, err))
		f.add(discovered{event: event.Event{
			Kind: event.Lost, TimeNs: m.TimeNs, Count: 1, Cause: "process ended before its library was traced",
		}})
	}
}

// prepare attaches to a library file before a process maps it, and reads the unwind tables
// of it and of the files installed with it. That takes half a second of CPU time; a program
// that is already running would allocate meanwhile, and its first stacks would end early.
func (f *finder) prepare(path string) error {
	beside, err := f.prepareLibrary(path)
	if err != nil {
		return err
	}
	f.calls.Prepare(beside)
	f.spaces.Prepare(beside)
	return nil
}

// prepareLibrary returns the files that are installed beside the library and may be mapped
// with it.
func (f *finder) prepareLibrary(path string) (beside []string, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // the path may be a FIFO by now
	if err != nil {
		return nil, err
	}
	id, err := host.FileIDOf(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.libraries.byFile[id] != nil {
		file.Close()
		return nil, nil
	}
	l, err := f.libraries.open(file, path, "/")
	if err != nil {
		return nil, err
	}
	f.libraries.byFile[id] = l
	dir := filepath.Dir(path)
	beside, _ = filepath.Glob(filepath.Join(dir, "*.so*"))
	extensions, _ := filepath.Glob(filepath.Join(dir, "..", "..", "*.so"))
	return append(beside, extensions...), nil
}

// anySeen reports whether any traced process mapped a library.
func (f *finder) anySeen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seenAny
}

// seenPIDs are the processes that are known to map a library.
func (f *finder) seenPIDs() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.libraries.seen))
}

// maps reports whether a process is known to map a tt-metal library.
func (f *finder) maps(pid int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.libraries.seen[pid]
}

// library returns the library with the index in a record. The record shows that a process
// maps it, also if the process ended before its mapping was handled.
func (f *finder) library(index uint8) *library {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.libraries.at(index)
	f.seenAny = f.seenAny || l != nil
	return l
}

// take returns the events since the last call.
func (f *finder) take() []discovered {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.inbox
	f.inbox = nil
	return list
}

// add queues an event. Any goroutine may call it.
func (f *finder) add(e discovered) {
	f.mu.Lock()
	f.inbox = append(f.inbox, e)
	f.mu.Unlock()
}

// processEnded drops the state of a process here and in the kernel: another process may get
// its id, and have other objects at the same addresses.
func (f *finder) processEnded(pid int, timeNs uint64, execed bool, stacks *stack.Process) {
	f.mu.Lock()
	delete(f.libraries.seen, pid)
	delete(f.starts, pid)
	f.late.forget(pid)
	f.mu.Unlock()
	f.spaces.Forget(pid, timeNs)
	if stacks != nil {
		stacks.Forget(f.objs)
		f.forgetObjects(pid)
	}
	if execed && (stacks != nil || f.named[pid]) {
		f.spaces.Changed(pid) // it goes on as another program with the same id
	}
}

// forgetObjects drops the kernel side's state for the objects of a process.
func (f *finder) forgetObjects(pid int) {
	for _, m := range []*ebpf.Map{f.objs.Devices, f.objs.Allocators, f.objs.Programs} {
		var key bpf.KernelObjectKey
		var keys []bpf.KernelObjectKey
		value := make([]byte, m.ValueSize())
		for objects := m.Iterate(); objects.Next(&key, &value); {
			if key.Tgid == uint32(pid) {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			_ = m.Delete(&key) // it may be gone already
		}
	}
}

// watchOverwrites removes the probes of a library before the library is written to.
func (f *finder) watchOverwrites() {
	f.breaks = make(chan os.Signal, 1)
	signal.Notify(f.breaks, unix.SIGIO)
	go func() {
		for range f.breaks {
			f.calls.Withdraw()
			f.mu.Lock()
			f.libraries.withdraw()
			f.mu.Unlock()
		}
	}()
}

// close removes all probes.
func (f *finder) close() {
	f.stop()
	if f.mappings != nil {
		f.mappings.Interrupt()
		f.working.Wait()
		f.mappings.Close()
	}
	if f.breaks != nil {
		signal.Stop(f.breaks)
		close(f.breaks)
	}
	f.calls.Close()
	f.mu.Lock() // a library may be withdrawn at this moment
	defer f.mu.Unlock()
	f.libraries.close()
}
