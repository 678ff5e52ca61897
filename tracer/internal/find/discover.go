package find

// This file discovers libraries in the files that processes map, and attaches to them.

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
)

// Describe describes the process that had an id at a time by its files in /proc, but without the command line, which is in
// the memory of the process.
func Describe(pid int, atNs uint64) Description {
	id := host.IdentityOf(pid)
	read := Description{event.Event{
		Kind: event.ProcessStart, PID: pid, TID: pid, Comm: host.ThreadName(pid, pid),
		UID: id.UID, Start: &event.Start{Container: id.Container, Pod: id.Pod, ContainerPID: id.ContainerPID},
	}, host.RealUser(pid)}
	if host.BeganAfter(pid, atNs) { // this is another one
		read = Description{event.Event{Kind: event.ProcessStart, PID: pid, TID: pid, Start: new(event.Start)}, -1}
	}
	return read
}

// lateNs is a grace period: an attach within this time of a library's mapping is assumed to precede
// its first allocation. A Python program on a mock device opens the device 80 ms after the mapping.
const lateNs = 20e6

// discoverSoon discovers a mapping in the background, unless its file is known to be no library.
func (f *Finder) discoverSoon(m host.NewMapping) {
	l, known := f.Libraries.Known(&m.Mapping)
	beside := l == nil && f.maps(m.PID) && !f.Libraries.KnownBeside(m.File, m.PID)
	if known && l == nil && !beside {
		return
	}
	user := host.RealUser(m.PID)
	if len(f.Processes) > 0 {
		f.unread.Add(m, user)
	}
	f.soon(host.Lane{User: user, Known: l != nil}, func() {
		_ = f.discover(m, user) // it reports the loss
	})
}

// soon does something in the background, before the end of tracing. Without room for it, all is looked for
// again.
func (f *Finder) soon(l host.Lane, do func()) {
	queued := f.queues.Do(l, func() {
		if f.closing.Err() == nil {
			do()
		}
	})
	if !queued {
		f.rescanSoon()
	}
}

// discover reads a mapped file once, and attaches to it if it is a tt-metal library. A library
// that cannot be attached to yet is tried again.
func (f *Finder) discover(m host.NewMapping, user int) error {
	l, err := f.libraryOf(m, user)
	later := l != nil && !f.attached(l, m, user, false) // its probes have just been removed
	if l == nil && err == nil && f.maps(m.PID) {
		later = f.beside(m, user)
	}
	full := errors.Is(err, libraries.ErrNoRoom)
	if !full && !later && !host.TryLater(err) {
		f.waiting.Remove(m)
		f.notTraced(m, user, err)
		return err
	}
	isNew, waits := f.waiting.Add(m, user)
	switch {
	case isNew && full:
		err = fmt.Errorf("%s in process %d is not traced: %w", m.Path, m.PID, err)
		f.notTraced(m, user, err)
		return err
	case isNew && !waits && err != nil:
		f.reportMissed(m, user, err)
	}
	return nil
}

// beside places probes for exceptions in a file that a process with a library maps. It reports whether
// this has to be tried later.
func (f *Finder) beside(m host.NewMapping, user int) (later bool) {
	if f.Libraries.KnownBeside(m.File, m.PID) {
		return false
	}
	file, err := f.open(m)
	if err == nil {
		err = f.Libraries.OpenBeside(file, m.File, m.Path, m.PID, user)
		if err != nil && !host.TryLater(err) {
			f.Warn(user, err.Error())
		}
	}
	return host.TryLater(err)
}

// besides places them in the files that a process with a library has mapped already.
func (f *Finder) besides(pid, user int) {
	if !f.maps(pid) {
		return
	}
	list, err := f.existing(pid)
	if errors.Is(err, host.ErrNoAnswer) {
		f.rescanSoon()
	}
	for _, m := range list {
		l, _ := f.Libraries.Known(&m.Mapping)
		if l == nil && f.beside(m, user) {
			f.waiting.Add(m, user)
		}
	}
}

// attached handles a process of a user that maps a library; false if the library is no longer traced.
// forked is true if its parent mapped the library.
func (f *Finder) attached(l *libraries.Library, m host.NewMapping, user int, forked bool) bool {
	late := l.AttachedNs.Load() > m.TimeNs+lateNs
	missed := late && !m.Existing && !forked
	m.Existing = !forked && (m.Existing || late)
	program := f.program(m.PID)
	if host.BeganAfter(m.PID, m.TimeNs) {
		return true // its process has ended
	}
	isNew, err := f.Libraries.Join(program, l, user)
	switch {
	case errors.Is(err, libraries.ErrManyProcesses):
		f.lost(m, Loss{Cause: kernel.Causes[bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES]})
		return true
	case err != nil || !isNew:
		return err == nil
	}
	f.Boards.Read() // before its devices open
	flags := uint32(0)
	if m.Existing {
		flags = bpf.ProcessLate // it may have compiled programs before
	}
	listed, err := f.Kernel.AddProcess(m.PID, flags) // its end is reported even if it never hits a probe
	if err != nil || listed != program || !f.isMapped(m) {
		f.Libraries.Leave(program)
		switch {
		case err != nil && !errors.Is(err, unix.ESRCH):
			f.lost(m, Loss{Cause: kernel.Causes[bpf.KernelLostCauseLOST_MAP_FULL]})
		case late:
			f.lost(m, Loss{Cause: EndedBefore})
		}
		return true
	}
	f.Spaces.Changed(m.PID)
	found := &Discovery{
		Program: program, Library: l, Mapping: m, AtNs: host.Now(), Description: Describe(m.PID, m.TimeNs),
		Parent: host.Parent(m.PID), Forked: forked, Missed: missed,
	}
	found.Start.TimeNs, found.Start.Start.AttachedLate = m.TimeNs, m.Existing
	f.Inbox.Discovered(found)
	f.soon(host.Lane{User: user}, func() { f.besides(m.PID, user) })
	return true
}

// program returns the program that a process runs; without an ExecID if it has ended.
func (f *Finder) program(pid int) kernel.Program {
	execID, _ := f.Kernel.ExecID(pid)
	return kernel.Program{PID: pid, ExecID: execID}
}

// isMapped reports whether a process still has a mapping: it may have executed another program since.
func (f *Finder) isMapped(m host.NewMapping) bool {
	now, err := f.stillMapped(m)
	return now != nil || errors.Is(err, host.ErrNoAnswer)
}

// stillMapped returns a mapping as the process has it now, when it may be shorter; nil if it has none.
func (f *Finder) stillMapped(m host.NewMapping) (now *host.Mapping, err error) {
	list, err := f.Readers.FileMappings(m.PID)
	m.File.Generation = 0 // /proc/PID/maps does not have it
	for i, o := range list {
		if o.Start == m.Start && o.File == m.File {
			now = &list[i]
		}
	}
	return now, err
}

// Locate looks for the library that a process has from its parent, in the background. It may be known under
// its generation only, which /proc/PID/maps does not have: then its file says that it is the same.
func (f *Finder) Locate(pid, user int) {
	f.queues.Do(host.Lane{User: user}, func() {
		list, _ := f.existing(pid)
		for _, m := range f.knownFirst(list) {
			if l, _ := f.libraryOf(m, user); l != nil {
				f.attached(l, m, user, true)
				return
			}
		}
	})
}

// libraryOf returns the library in a mapped file; nil if the file is none. host.TryLater is true
// for the error if the file cannot be opened now.
func (f *Finder) libraryOf(m host.NewMapping, user int) (*libraries.Library, error) {
	l, known := f.Libraries.Known(&m.Mapping)
	if known {
		return l, nil
	}
	file, err := f.open(m)
	if host.TryLater(err) {
		return nil, err
	}
	if err != nil {
		f.reportMissed(m, user, err)
		return nil, nil
	}
	l, err = f.libraryIn(file, m, user)
	if err != nil && !errors.Is(err, libraries.ErrNoRoom) && !host.TryLater(err) {
		err = fmt.Errorf("%s in process %d could not be traced: %w; `ttmem doctor %d` shows more", m.Path, m.PID, err, m.PID)
		f.Libraries.Seen.Store(true)
	}
	return l, err
}

// libraryIn attaches to the library in an open file, which it takes over; nil if the file is none.
func (f *Finder) libraryIn(file *os.File, m host.NewMapping, user int) (*libraries.Library, error) {
	// most files are none, and have many symbols
	if !libraries.HasUsualName(m.Path) && !libraries.MayBeLibrary(file) {
		file.Close()
		f.Libraries.Remember(m.File, nil)
		return nil, nil
	}
	path := m.Path
	if !m.Existing {
		path = f.Readers.MappedPath(m.PID, m.File)
	}
	in := func(path string) (*os.File, error) { return host.OpenInRoot(m.PID, path) }
	l, err := f.Libraries.Open(file, user, path, in)
	if errors.Is(err, layout.ErrNoLibrary) || errors.Is(err, symbolize.ErrNotELF) {
		err = nil
	}
	if err == nil {
		f.Libraries.Remember(m.File, l)
	}
	return l, err
}

// PrepareOpened prepares for a file that a process has opened and another of its user will map, in the user's turn: it
// reads the unwind rows and, if it is a library, attaches to it. It returns when that is done, or the context.
func (f *Finder) PrepareOpened(ctx context.Context, pid, fd int) error {
	user := host.RealUser(pid)
	return f.inTurn(ctx, user, func() error {
		file, path, err := f.Readers.OpenDescriptor(pid, fd)
		if err == nil {
			err = f.prepareOpened(file, path, pid, user)
		}
		if err == nil {
			file, path, err = f.Readers.OpenDescriptor(pid, fd)
		}
		if err == nil {
			err = f.Spaces.ReadOpened(file, path, user)
		}
		return err
	})
}

// inTurn does something for a user in its turn, and returns when that is done, or the context.
func (f *Finder) inTurn(ctx context.Context, user int, do func() error) error {
	done := make(chan error, 1)
	f.soon(host.Lane{User: user}, func() { done <- do() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Finder) prepareOpened(file *os.File, path string, pid, user int) error {
	id, err := host.FileIDOf(file)
	m := host.NewMapping{PID: pid, Existing: true, Mapping: host.Mapping{File: id, Path: path}}
	if _, known := f.Libraries.Known(&m.Mapping); err != nil || known {
		file.Close()
		return err
	}
	_, err = f.libraryIn(file, m, user)
	return err
}

// open opens a mapped file, and checks that it is still the one that was mapped: the process may have mapped
// another one at the same address.
func (f *Finder) open(m host.NewMapping) (*os.File, error) {
	file, err := f.Readers.OpenMapped(m.PID, m.Start, m.End)
	if errors.Is(err, os.ErrNotExist) {
		// the dynamic linker maps a library as a whole, like its first segment, and then the others over it
		if now, _ := f.stillMapped(m); now != nil {
			file, err = f.Readers.OpenMapped(m.PID, now.Start, now.End)
		}
	}
	if err != nil {
		return nil, err
	}
	id, err := host.FileIDOf(file)
	m.File.Generation = 0 // /proc/PID/maps does not have it
	if err == nil && id != m.File {
		err = os.ErrNotExist
	}
	if err != nil {
		file.Close()
	}
	return file, err
}

// lost reports a loss of the process that made a mapping. Nobody has it if another process has the id by now: that may be
// another user's, and need not use tt-metal.
func (f *Finder) lost(m host.NewMapping, l Loss) {
	l.Program, l.AtNs = f.program(m.PID), host.Now()
	if !host.BeganAfter(m.PID, m.TimeNs) { // last: the program was that process's, too
		f.Inbox.Lost(&l)
	}
}

// notTraced reports that a library of a user's process is not traced, unless the error is nil. Its file has been read.
func (f *Finder) notTraced(m host.NewMapping, user int, err error) {
	if err != nil {
		f.lost(m, Loss{Cause: NotTraced, Warning: err.Error(), User: user})
	}
	f.unread.Remove(m)
}

// reportMissed reports a library that could not be read. Most files that are missed are not libraries, so the name decides. A
// process has one library, with other files of tt beside it. That a process has ended is a loss, and no warning.
func (f *Finder) reportMissed(m host.NewMapping, user int, err error) {
	l := Loss{Cause: NotTraced, Beside: !libraries.HasUsualName(m.Path), User: user}
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
		l.Cause = f.missedAtEnd(m)
	case !host.NamedLikeLibrary(m.Path):
		l.Cause = ""
	case !f.names(m.PID) || !f.Readers.HasNoMemory(m.PID): // else the end of the process is reported
		l.Warning = fmt.Sprintf("%s in process %d could not be traced: %v", m.Path, m.PID, err)
	}
	if l.Cause != "" {
		f.lost(m, l)
	}
	f.unread.Remove(m)
}

// leastCode is less than the code of any tt-metal, which has several MiB.
const leastCode = 1 << 20

// missedAtEnd returns the cause of the loss if a file that a process no longer maps is a library or may be one, else "". For
// a command, the file itself is read if it is still there. If all users' processes are traced, it is not: its path is a tenant's.
func (f *Finder) missedAtEnd(m host.NewMapping) (cause string) {
	named := host.NamedLikeLibrary(m.Path)
	if len(f.Processes) > 0 {
		file, err := host.OpenIfMapped(m.Path, m.File)
		if err == nil {
			defer file.Close()
			if !libraries.MayBeLibrary(file) {
				return ""
			}
			f.Libraries.Seen.Store(true)
			return EndedBefore
		}
		isLarge, hasEnded := m.End-m.Start >= leastCode, !f.Kernel.Lists(m.PID)
		if !named && errors.Is(err, os.ErrNotExist) && isLarge && hasEnded {
			return EndedUnread
		}
	}
	if named {
		return EndedBefore
	}
	return ""
}

// Finish reports whether all is read that the named processes and their children have mapped. Once enough has been
// waited for, what is left counts as a loss if it may be a library.
func (f *Finder) Finish(waited bool) bool {
	list := f.unread.All()
	if len(list) == 0 || !waited {
		return len(list) == 0
	}
	for _, m := range list {
		f.unread.Remove(m.NewMapping)
		l := Loss{Beside: !libraries.HasUsualName(m.Path), User: m.User}
		switch named, runs := host.NamedLikeLibrary(m.Path), f.Kernel.Lists(m.PID); {
		case named && runs:
			l.Cause = NotTraced
		case named:
			l.Cause = EndedBefore
		case !runs && m.End-m.Start >= leastCode:
			l.Cause = EndedUnread
		default:
			continue
		}
		if !l.Beside {
			f.Libraries.Seen.Store(true)
		}
		f.lost(m.NewMapping, l)
	}
	return true
}
