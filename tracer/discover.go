package tracer

// This file discovers libraries in the files that processes map, and attaches to them.

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
	"ttmem/tracer/libraries"
)

// lateNs is a grace period: an attach within this time of a library's mapping is assumed to precede
// its first allocation. A Python program on a mock device opens the device 80 ms after the mapping.
const lateNs = 20e6

// discoverSoon discovers a mapping in the background, unless its file is known to be no library.
func (f *finder) discoverSoon(m host.NewMapping) {
	f.mu.Lock()
	l, known := f.libraries.Known(&m)
	p := f.libraries.Seen[m.PID]
	if l != nil && p != nil {
		p.Last = m
	}
	beside := l == nil && p != nil && !f.libraries.KnownBeside(m.File, m.PID)
	if known && !beside && (l == nil || p != nil) && f.calls == nil {
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	user := host.RealUser(m.PID)
	queued := f.queues.Do(host.Lane{User: user, Known: l != nil}, func() {
		if f.closing.Err() != nil {
			return
		}
		if err := f.discover(m, user); err != nil {
			f.warnOf(user, err.Error())
		}
	})
	if !queued {
		f.rescanSoon()
	}
}

// discover reads a mapped file once, and attaches to it if it is a tt-metal library. A library
// that cannot be attached to yet is tried again.
func (f *finder) discover(m host.NewMapping, user int) error {
	later := f.calls.Inspect(m)
	l, err := f.libraryOf(m, user)
	if l != nil && !f.attached(l, m, user) { // its probes have just been removed
		later = true
	}
	if l == nil && err == nil && f.maps(m.PID) {
		later = f.beside(m, user) || later
	}
	full := errors.Is(err, libraries.ErrNoRoom)
	if !full && !later && !host.TryLater(err) {
		f.waiting.Remove(m)
		if err != nil {
			f.lost(m.PID, notTraced)
		}
		return err
	}
	isNew, waits := f.waiting.Add(m, user)
	switch {
	case isNew && full:
		f.lost(m.PID, notTraced)
		if f.libraries.Refuses(user) {
			return fmt.Errorf("%s in process %d is not traced: %w", m.Name, m.PID, err)
		}
	case isNew && !waits && err != nil:
		f.reportMissed(m, user, err)
	}
	return nil
}

// beside places probes for exceptions in a file that a process with a library maps. It reports whether
// this has to be tried later.
func (f *finder) beside(m host.NewMapping, user int) (later bool) {
	f.mu.Lock()
	known := f.libraries.KnownBeside(m.File, m.PID)
	f.mu.Unlock()
	if known {
		return false
	}
	file, err := f.reads.readers.OpenMapped(m.PID, m.Start, m.End)
	if err == nil {
		err = sameFile(file, m.File)
	}
	if err == nil {
		err = f.libraries.OpenBeside(file, m.File, m.Name, m.PID, user)
		if err != nil && !host.TryLater(err) {
			f.warnOf(user, err.Error())
		}
	}
	return host.TryLater(err)
}

// besidesSoon calls besides in the background.
func (f *finder) besidesSoon(pid, user int) {
	queued := f.queues.Do(host.Lane{User: user}, func() {
		if f.closing.Err() == nil && f.maps(pid) {
			f.besides(pid, user)
		}
	})
	if !queued {
		f.rescanSoon()
	}
}

// besides places them in the files that a process has mapped already.
func (f *finder) besides(pid, user int) {
	list, err := f.existing(pid)
	if errors.Is(err, host.ErrNoAnswer) {
		f.rescanSoon()
	}
	for _, m := range list {
		f.mu.Lock()
		l, _ := f.libraries.Known(&m)
		f.mu.Unlock()
		if l == nil && f.beside(m, user) {
			f.waiting.Add(m, user)
		}
	}
}

// attached handles a process that maps a library; false if the library is no longer traced.
func (f *finder) attached(l *libraries.Library, m host.NewMapping, user int) bool {
	f.mu.Lock()
	late := l.AttachedNs > m.TimeNs+lateNs
	m.Existing = m.Existing || late
	if p := f.libraries.Seen[m.PID]; p != nil || l.Probes == nil {
		if p != nil {
			p.Last = m
		}
		f.mu.Unlock()
		return p != nil
	}
	p := &libraries.Mapped{Library: l, By: user, First: m, Last: m}
	if !f.libraries.Add(p) {
		f.mu.Unlock()
		f.lost(m.PID, tooManyProcesses)
		return true
	}
	f.seenAny = true
	f.mu.Unlock()
	// the kernel reports its end even if it never hits a probe
	flags := uint32(0)
	if m.Existing {
		flags = bpf.ProcessLate // it may have compiled programs before
	}
	_, err := f.objs.AddProcess(m.PID, flags)
	if errors.Is(err, unix.ESRCH) {
		f.mu.Lock()
		if f.libraries.Seen[m.PID] == p {
			f.libraries.Forget(m.PID)
		}
		f.mu.Unlock()
		if late {
			f.lost(m.PID, endedBefore)
		}
		return true
	}
	if err != nil {
		f.lost(m.PID, lostCauses[bpf.KernelLostCauseLOST_MAP_FULL])
	}
	f.spaces.Changed(m.PID)
	start := describeProcess(m.PID)
	start.TimeNs, start.AttachedLate = m.TimeNs, m.Existing
	defer f.besidesSoon(m.PID, user)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.libraries.Seen[m.PID] != p || f.closing.Err() != nil { // it has ended meanwhile
		return true
	}
	f.starts[m.PID] = start
	f.reads.readCommand(m.PID, math.MaxUint64, func(command string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if start, ok := f.starts[m.PID]; ok {
			start.Command = command
			f.starts[m.PID] = start
		}
	})
	f.add(start, l)
	if m.Existing {
		f.attachLate(l, m)
	}
	return true
}

// libraryOf returns the library in a mapped file; nil if the file is none. host.TryLater is true
// for the error if the file cannot be opened now.
func (f *finder) libraryOf(m host.NewMapping, user int) (*libraries.Library, error) {
	f.mu.Lock()
	l, known := f.libraries.Known(&m)
	f.mu.Unlock()
	if known {
		return l, nil
	}
	file, err := f.reads.readers.OpenMapped(m.PID, m.Start, m.End)
	if host.TryLater(err) {
		return nil, err
	}
	if err == nil {
		err = sameFile(file, m.File)
	}
	if err != nil {
		f.reportMissed(m, user, err)
		return nil, nil
	}
	// most files are none, and have many symbols
	if !libraries.HasUsualName(m.Name) && !libraries.MayBeLibrary(file) {
		file.Close()
		f.libraries.Remember(m.File, nil)
		return nil, nil
	}
	path := m.Name
	if !m.Existing {
		path = f.reads.readers.MappedPath(m.PID, m.File)
	}
	in := func(path string) (*os.File, error) { return host.OpenInRoot(m.PID, path) }
	l, err = f.libraries.Open(file, user, path, in)
	if errors.Is(err, layout.ErrNoLibrary) || errors.Is(err, symbolize.ErrNotELF) {
		f.libraries.Remember(m.File, nil)
		return nil, nil
	}
	switch {
	case err == nil:
		f.libraries.Remember(m.File, l)
	case errors.Is(err, layout.ErrNoSections):
		err = fmt.Errorf("%s in process %d could not be traced: %w", m.Name, m.PID, err)
		f.mu.Lock()
		f.seenAny = true // by its name
		f.mu.Unlock()
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

// Causes of losses of processes whose libraries are not traced.
const (
	notTraced        = "library not traced"
	endedBefore      = "process ended before its library was traced"
	tooManyProcesses = "its user has too many processes that use tt-metal"
)

// lost adds a loss to a process: a library that it maps is not traced.
func (f *finder) lost(pid int, cause string) {
	f.add(event.Event{Kind: event.Lost, TimeNs: host.Now(), PID: pid, Count: 1, Cause: cause}, nil)
}

// reportMissed reports a library that could not be read. Most files that are missed are not libraries, so
// the name decides. A process has one library, with other files of tt beside it. That a process has
// ended is a loss, and no warning.
func (f *finder) reportMissed(m host.NewMapping, user int, err error) {
	if !host.NamedLikeLibrary(m.Name) || !libraries.HasUsualName(m.Name) && f.hasLibrary(m.PID, m.TimeNs) {
		return
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		f.lost(m.PID, endedBefore)
		return
	}
	if !f.named[m.PID] || !f.reads.readers.HasNoMemory(m.PID) { // else the end of the process is reported
		f.warnOf(user, fmt.Sprintf("%s in process %d could not be traced: %v", m.Name, m.PID, err))
	}
	f.lost(m.PID, notTraced)
}
