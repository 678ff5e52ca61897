package tracer

// This file discovers libraries in the files that processes map, and attaches to them.

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
	"ttmem/tracer/libraries"
)

// lateNs is a grace period: an attach within this time of a library's mapping is assumed to precede
// its first allocation. A Python program on a mock device opens the device 80 ms after the mapping.
const lateNs = 20e6

// discoverSoon discovers a mapping in the background, unless its file is known to be no library.
func (f *finder) discoverSoon(m host.NewMapping) {
	l, known := f.libraries.Known(&m)
	beside := l == nil && f.maps(m.PID) && !f.libraries.KnownBeside(m.File, m.PID)
	if known && l == nil && !beside && f.calls == nil {
		return
	}
	user := host.RealUser(m.PID)
	queued := f.queues.Do(host.Lane{User: user, Known: l != nil}, func() {
		if f.closing.Err() != nil {
			return
		}
		if err := f.discover(m, user); err != nil {
			f.Warn(user, err.Error())
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
	if l != nil && !f.attached(l, m, user, false) { // its probes have just been removed
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
	known := f.libraries.KnownBeside(m.File, m.PID)
	if known {
		return false
	}
	file, err := f.readers.OpenMapped(m.PID, m.Start, m.End)
	if err == nil {
		err = sameFile(file, m.File)
	}
	if err == nil {
		err = f.libraries.OpenBeside(file, m.File, m.Name, m.PID, user)
		if err != nil && !host.TryLater(err) {
			f.Warn(user, err.Error())
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
		l, _ := f.libraries.Known(&m)
		if l == nil && f.beside(m, user) {
			f.waiting.Add(m, user)
		}
	}
}

// attached handles a process of a user that maps a library; false if the library is no longer traced.
// forked is true if its parent mapped the library.
func (f *finder) attached(l *libraries.Library, m host.NewMapping, user int, forked bool) bool {
	late := l.AttachedNs.Load() > m.TimeNs+lateNs
	m.Existing = !forked && (m.Existing || late)
	program := f.program(m.PID)
	isNew, err := f.libraries.Join(program, l, user)
	switch {
	case errors.Is(err, libraries.ErrManyProcesses):
		f.lost(m.PID, tooManyProcesses)
		return true
	case err != nil || !isNew:
		return err == nil
	}
	f.seenAny.Store(true)
	flags := uint32(0)
	if m.Existing {
		flags = bpf.ProcessLate // it may have compiled programs before
	}
	listed, err := f.kernel.AddProcess(m.PID, flags) // its end is reported even if it never hits a probe
	if err != nil || listed != program || !f.isMapped(m) {
		f.libraries.Leave(program)
		switch {
		case err != nil && !errors.Is(err, unix.ESRCH):
			f.lost(m.PID, lostCauses[bpf.KernelLostCauseLOST_MAP_FULL])
		case late:
			f.lost(m.PID, endedBefore)
		}
		return true
	}
	f.spaces.Changed(m.PID)
	found := &discovery{Program: program, library: l, mapping: m, atNs: host.Now(), start: describeProcess(m.PID), parent: host.Parent(m.PID), forked: forked}
	found.start.TimeNs, found.start.AttachedLate = m.TimeNs, m.Existing
	if m.Existing {
		f.inbox.late.Add(1)
	}
	f.inbox.add(result{report: func(d *decoder) bool { return d.discovered(found) }})
	f.besidesSoon(m.PID, user)
	return true
}

// program returns the program that a process runs; without an ExecID if it has ended.
func (f *finder) program(pid int) kernel.Program {
	execID, _ := f.kernel.ExecID(pid)
	return kernel.Program{PID: pid, ExecID: execID}
}

// isMapped reports whether a process still has a mapping: it may have executed another program since.
func (f *finder) isMapped(m host.NewMapping) bool {
	list, err := f.readers.FileMappings(m.PID)
	m.File.Generation = 0 // /proc/PID/maps does not have it
	return errors.Is(err, host.ErrNoAnswer) || slices.ContainsFunc(list, func(o host.Mapping) bool {
		return o.Start == m.Start && o.File == m.File
	})
}

// locate looks for the library that a process has from its parent, in the background.
func (f *finder) locate(pid, user int) {
	f.queues.Do(host.Lane{User: user}, func() {
		list, _ := f.existing(pid)
		for _, m := range list {
			if l, _ := f.libraries.Known(&m); l != nil {
				f.attached(l, m, user, true)
				return
			}
		}
	})
}

// libraryOf returns the library in a mapped file; nil if the file is none. host.TryLater is true
// for the error if the file cannot be opened now.
func (f *finder) libraryOf(m host.NewMapping, user int) (*libraries.Library, error) {
	l, known := f.libraries.Known(&m)
	if known {
		return l, nil
	}
	file, err := f.readers.OpenMapped(m.PID, m.Start, m.End)
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
		path = f.readers.MappedPath(m.PID, m.File)
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
		f.seenAny.Store(true) // by its name
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
	program, nowNs := f.program(pid), host.Now()
	f.inbox.add(result{report: func(d *decoder) bool { return d.lostLibrary(program, cause, nowNs) }})
}

// reportMissed reports a library that could not be read. Most files that are missed are not libraries, so
// the name decides. A process has one library, with other files of tt beside it. That a process has
// ended is a loss, and no warning.
func (f *finder) reportMissed(m host.NewMapping, user int, err error) {
	if !host.NamedLikeLibrary(m.Name) {
		return
	}
	cause, silent := notTraced, false
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		cause, silent = endedBefore, true
	}
	silent = silent || f.names(m.PID) && f.readers.HasNoMemory(m.PID) // the end of the process is reported
	program, nowNs := f.program(m.PID), host.Now()
	f.inbox.add(result{atNs: nowNs, report: func(d *decoder) bool {
		if !libraries.HasUsualName(m.Name) && d.mappedLibrary(m.PID) {
			return true
		}
		if !silent {
			f.Warn(user, fmt.Sprintf("%s in process %d could not be traced: %v", m.Name, m.PID, err))
		}
		return d.lostLibrary(program, cause, nowNs)
	}})
}
