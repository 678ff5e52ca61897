package tracer

// This file discovers the libraries that processes map, now and later.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	f.working.Go(func() {
		host.RaisePriority()
		every := func() int {
			if f.onlyListed && !f.anySeen() {
				return host.CommandPollMs
			}
			return host.MappingPollMs
		}
		err := f.mappings.Read(every, f.allMapped, f.rescanSoon)
		if err != nil {
			f.warn(fmt.Sprintf("libraries loaded from now on are not traced: %v", err))
		}
	})
	f.working.Go(f.again)
	return nil
}

// againAfter is how often what could not be handled is tried again.
const againAfter = time.Second

// again handles what could not be handled before: mappings whose records the kernel dropped, and
// libraries that could not be opened or had no room. It takes a tenth of the time at most.
func (f *finder) again() {
	for wait := time.Duration(0); ; {
		select {
		case <-f.closing.Done():
			return
		case <-time.After(wait):
		}
		dropped := false
		select {
		case <-f.closing.Done():
			return
		case <-f.dropped:
			dropped = true
		case <-time.After(againAfter):
		}
		began := time.Now()
		if dropped {
			f.rescan()
		}
		for _, m := range f.waiting.all() {
			switch {
			case host.Ended(m.PID):
				f.reportMissed(m.NewMapping, os.ErrNotExist)
				f.waiting.remove(m.NewMapping)
			case f.libraries.hasRoom(m.user):
				f.discoverSoon(m.NewMapping)
			}
		}
		wait = max(againAfter, 10*time.Since(began))
	}
}

// rescanSoon has the mappings of all processes read: some may be unknown.
func (f *finder) rescanSoon() {
	select {
	case f.dropped <- struct{}{}:
	default:
	}
}

// rescan reads the mappings of processes after records of new ones were dropped. Whose they
// were is not known, and nothing is missing afterwards: a process that ended meanwhile is known
// by its records if its library was traced.
func (f *finder) rescan() {
	var pids []int
	if f.onlyListed {
		var pid uint32
		var p bpf.KernelProcess
		for listed := f.objs.Processes.Iterate(); listed.Next(&pid, &p); {
			pids = append(pids, int(pid))
			f.spaces.Changed(int(pid))
		}
	} else {
		var err error
		if pids, err = host.PIDs(); err != nil {
			f.warn(fmt.Sprintf("listing processes: %v", err))
		}
	}
	for _, pid := range pids {
		f.spaces.ChangedIfKnown(pid)
		list, _ := existing(pid) // it may have ended
		for _, m := range list {
			f.discoverSoon(m)
		}
	}
}

// existing returns the files that a process maps as code.
func existing(pid int) (list []host.NewMapping, err error) {
	at := host.Now() // a program that the process executes from now on is another one
	maps, err := host.FileMappings(pid)
	for _, m := range maps {
		list = append(list, host.NewMapping{TimeNs: at, PID: pid, Start: m.Start, End: m.End, Offset: m.Offset, File: m.File, Name: m.Path, Existing: true})
	}
	return list, err
}

// scanPatience is how long the libraries that are mapped already are waited for.
const scanPatience = 5 * time.Second

// scan attaches to libraries that are already mapped, by the given processes or by all.
func (f *finder) scan(pids []int) error {
	if len(pids) == 0 {
		f.rescan()
		f.queues.wait(scanPatience)
		return nil
	}
	for _, pid := range pids {
		list, err := existing(pid)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
			return fmt.Errorf("no process %d", pid)
		case errors.Is(err, os.ErrPermission):
			return fmt.Errorf("cannot read process %d: %w: this needs CAP_SYS_PTRACE in the process's namespace; in a container, use --privileged --pid=host", pid, host.WithoutPath(err))
		default:
			return fmt.Errorf("cannot read process %d: %w", pid, host.WithoutPath(err))
		}
		for _, m := range list {
			if err := f.discover(m, host.RealUser(pid)); err != nil {
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
	f.discoverSoon(m)
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

// discoverSoon discovers a mapping in the background, unless its file is known to be no library.
func (f *finder) discoverSoon(m host.NewMapping) {
	f.mu.Lock()
	l, known := f.libraries.known(&m)
	p := f.libraries.seen[m.PID]
	if l != nil && p != nil {
		p.last = m
	}
	f.mu.Unlock()
	if known && (l == nil || p != nil) && f.calls == nil {
		return
	}
	user := host.RealUser(m.PID)
	queued := f.queues.do(lane{user, l != nil}, func() {
		if f.closing.Err() != nil {
			return
		}
		if err := f.discover(m, user); err != nil {
			f.warn(err.Error())
		}
	})
	if !queued {
		f.rescanSoon()
	}
}

// discover reads a mapped file once, and attaches to it if it is a tt-metal library. A library
// that cannot be attached to yet is tried again.
func (f *finder) discover(m host.NewMapping, user int) error {
	leased := f.calls.Inspect(m)
	l, err := f.libraryOf(m, user)
	if l != nil && !f.attached(l, m) { // its probes have just been removed
		leased = true
	}
	full := errors.Is(err, errNoRoom)
	if !full && !leased && !errors.Is(err, unix.EWOULDBLOCK) {
		f.waiting.remove(m)
		if err != nil {
			f.lost(m, notTraced)
		}
		return err
	}
	isNew, waits := f.waiting.add(m, user)
	switch {
	case isNew && full:
		f.lost(m, notTraced)
		if f.libraries.refuses(user) {
			return fmt.Errorf("%s in process %d is not traced: %w", m.Name, m.PID, err)
		}
	case isNew && !waits && err != nil:
		f.reportMissed(m, err)
	}
	return nil
}

// attached handles a process that maps a library; false if the library is no longer traced.
func (f *finder) attached(l *library, m host.NewMapping) bool {
	f.mu.Lock()
	late := l.attachedNs > m.TimeNs+lateNs
	m.Existing = m.Existing || late
	if p := f.libraries.seen[m.PID]; p != nil || l.probes == nil {
		if p != nil {
			p.last = m
		}
		f.mu.Unlock()
		return p != nil
	}
	p := &mapper{library: l, first: m, last: m}
	f.libraries.seen[m.PID] = p
	f.seenAny = true
	f.mu.Unlock()
	// the kernel reports its end even if it never hits a probe
	_ = f.objs.Processes.Update(uint32(m.PID), &bpf.KernelProcess{}, ebpf.UpdateNoExist)
	if host.Ended(m.PID) { // it may have ended before the update, so no record of its end will come
		_ = f.objs.Processes.Delete(uint32(m.PID))
		f.mu.Lock()
		if f.libraries.seen[m.PID] == p {
			delete(f.libraries.seen, m.PID)
		}
		f.mu.Unlock()
		if late {
			f.lost(m, endedBefore)
		}
		return true
	}
	if m.Existing {
		f.markLate(m.PID)
	}
	f.spaces.Changed(m.PID)
	start := describeProcess(m.PID)
	start.TimeNs, start.AttachedLate = m.TimeNs, m.Existing
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.libraries.seen[m.PID] != p || f.closing.Err() != nil { // it has ended meanwhile
		return true
	}
	f.starts[m.PID] = start
	f.inbox = append(f.inbox, discovered{start, l})
	if m.Existing {
		f.attachLate(l, m)
	}
	return true
}

// known returns the library that a mapped file is, nil if it is none; false if that is not known.
func (s *libraries) known(m *host.NewMapping) (l *library, known bool) {
	l, known = s.byFile[m.File]
	if l != nil && l.probes == nil {
		return nil, false
	}
	// perhaps another file with the inode number of a file that was no library
	return l, known && (l != nil || m.File.Generation != 0 || !namedLikeLibrary(m.Name))
}

// libraryOf returns the library that a mapped file is; nil if it is none. It returns an error of
// unix.EWOULDBLOCK if the file cannot be opened now.
func (f *finder) libraryOf(m host.NewMapping, user int) (*library, error) {
	f.mu.Lock()
	l, known := f.libraries.known(&m)
	f.mu.Unlock()
	if known {
		return l, nil
	}
	file, err := host.OpenMapped(m.PID, m.Start, m.End)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, err
	}
	if err == nil {
		err = sameFile(file, m.File)
	}
	if err != nil {
		f.reportMissed(m, err)
		return nil, nil
	}
	// most files are none, and have many symbols
	if !namedAsLibrary(m.Name) && !mayBeLibrary(file) {
		file.Close()
		f.libraries.remember(m.File, nil)
		return nil, nil
	}
	path := m.Name
	if !m.Existing {
		path = host.MappedPath(m.PID, m.File)
	}
	var in func(string) (*os.File, error)
	if !isDeleted(file) { // else its directory may be another one by now
		in = func(path string) (*os.File, error) { return host.OpenInRoot(m.PID, path) }
	}
	l, err = f.libraries.open(file, user, path, in)
	if errors.Is(err, layout.ErrNoLibrary) || errors.Is(err, symbolize.ErrNotELF) {
		f.libraries.remember(m.File, nil)
		return nil, nil
	}
	if err == nil {
		f.libraries.remember(m.File, l)
	}
	return l, err
}

// sameFile checks that a file is the one that was mapped: the process may have mapped another
// one at the same address.
func sameFile(file *os.File, want host.FileID) error {
	id, err := host.FileIDOf(file)
	want.Generation = 0 // /proc/PID/maps does not have it
	if err == nil && id != want {
		err = os.ErrNotExist
	}
	if err != nil {
		file.Close()
	}
	return err
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

// Causes of losses of processes whose libraries are not traced.
const (
	notTraced   = "library not traced"
	endedBefore = "process ended before its library was traced"
)

// lost reports to a process that a library that it maps is not traced.
func (f *finder) lost(m host.NewMapping, cause string) {
	f.add(discovered{event: event.Event{Kind: event.Lost, TimeNs: host.Now(), PID: m.PID, Count: 1, Cause: cause}})
}

// reportMissed reports a library that could not be read, usually because its process had ended.
// Most missed files are no libraries; the name decides.
func (f *finder) reportMissed(m host.NewMapping, err error) {
	if !namedLikeLibrary(m.Name) {
		return
	}
	f.warn(fmt.Sprintf("%s in process %d could not be traced: %v", m.Name, m.PID, err))
	cause := notTraced
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		cause = endedBefore
	}
	f.lost(m, cause)
}
