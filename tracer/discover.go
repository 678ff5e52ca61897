package tracer

// This file discovers the libraries that processes map, now and later.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

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

// knownFirst puts the mappings of known libraries first, and then those of files with
// its name: reading the files of the others takes a while, and a program may allocate,
// or end, meanwhile.
func (f *finder) knownFirst(list []host.NewMapping) []host.NewMapping {
	f.mu.Lock()
	defer f.mu.Unlock()
	order := func(m host.NewMapping) int {
		switch {
		case f.libraries.byFile[m.File] != nil:
			return 0
		case namedAsLibrary(m.Name):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b host.NewMapping) int { return order(a) - order(b) })
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
	if l != nil && f.libraries.seen[m.PID] == nil {
		m.Existing = m.Existing || l.attachedNs > m.TimeNs+lateNs
		f.seenAny = true
		// the kernel reports its end even if it never hits a probe
		_ = f.objs.Processes.Update(uint32(m.PID), &bpf.KernelProcess{}, ebpf.UpdateNoExist)
		if host.Ended(m.PID) { // it may have ended before the update, so no record of its end will come
			_ = f.objs.Processes.Delete(uint32(m.PID))
			return nil
		}
		f.libraries.seen[m.PID] = &mapped{l, l.Bias(m.Start, m.Offset)}
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
	if !namedAsLibrary(m.Name+path) && !mayBeLibrary(file) {
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
	if errors.Is(err, layout.ErrNoLibrary) || errors.Is(err, symbolize.ErrNotELF) {
		f.libraries.remember(m.File, nil)
		return nil, nil
	}
	if err != nil {
		// so that every process that maps it reports the loss
		f.inbox = append(f.inbox, discovered{event: event.Event{
			Kind: event.Lost, TimeNs: host.Now(), PID: m.PID, Count: 1, Cause: libraryNotTraced,
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

// namedAsLibrary reports whether a file has the name that the library has in most releases.
func namedAsLibrary(path string) bool { return filepath.Base(path) == "libtt_metal.so" }

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
