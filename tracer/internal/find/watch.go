package find

// This file watches the mappings of processes, and reads existing ones.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/stack"
)

func (f *Finder) watch() (err error) {
	if f.mappings, err = host.WatchMappings(); err != nil {
		return err
	}
	f.working.Go(func() {
		every := func() int {
			if len(f.Processes) > 0 && !f.Libraries.Seen.Load() {
				return host.CommandPollMs
			}
			return host.MappingPollMs
		}
		err := f.mappings.Read(every, f.mapped, f.rescanSoon)
		if err != nil {
			f.warn(fmt.Sprintf("libraries loaded from now on are not traced: %v", err))
		}
	})
	f.working.Go(f.again)
	return nil
}

// againAfter is how often unhandled mappings are tried again.
const againAfter = time.Second

// again tries again to handle mappings whose records the kernel dropped, and libraries that could
// not be opened or had no room. It takes at most a tenth of the time.
func (f *Finder) again() {
	select {
	case <-f.closing.Done():
	case <-f.scanned: // which does the same
	}
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
		for _, m := range f.waiting.All() {
			switch {
			case host.Ended(m.PID) || host.BeganAfter(m.PID, m.TimeNs):
				report := func() { f.reportMissed(m.NewMapping, m.User, os.ErrNotExist) }
				if f.queues.Do(host.Lane{User: m.User}, report) { // else the next time
					f.waiting.Remove(m.NewMapping)
				}
			case f.Libraries.HasRoom(m.User):
				f.discoverSoon(m.NewMapping)
			}
		}
		wait = max(againAfter, 10*time.Since(began))
	}
}

// rescanSoon schedules a reading of the mappings of all processes, as some may be unknown.
func (f *Finder) rescanSoon() {
	select {
	case f.dropped <- struct{}{}:
	default:
	}
}

// rescan reads the mappings of processes after records of new ones were dropped. Nothing is missing
// afterwards, except for a process that has ended meanwhile and was the first to map its library:
// others are known by their records.
func (f *Finder) rescan() {
	var pids []int
	changed := f.Spaces.ChangedIfKnown
	if len(f.Processes) > 0 {
		changed = f.Spaces.Changed
		pids = f.Kernel.Listed()
	} else {
		var err error
		if pids, err = host.PIDs(); err != nil {
			f.warn(fmt.Sprintf("listing processes: %v", err))
		}
	}
	for _, pid := range pids {
		changed(pid)
		list, err := f.existing(pid) // it may have ended
		if errors.Is(err, host.ErrNoAnswer) {
			f.rescanSoon()
		}
		for _, m := range f.knownFirst(list) {
			f.discoverSoon(m)
		}
	}
}

// existing returns the files that a process maps as code.
func (f *Finder) existing(pid int) (list []host.NewMapping, err error) {
	at := host.Now() // a program that the process executes from now on is another one
	maps, err := f.Readers.FileMappings(pid)
	for _, m := range maps {
		list = append(list, host.NewMapping{Mapping: m, TimeNs: at, PID: pid, Existing: true})
	}
	return list, err
}

// scanPatience is how long the start waits for libraries that are already mapped, and scanLimit how long those wait who
// want existing buffers: on a busy host it takes longer, and files of a tenant may not answer.
const scanPatience, scanLimit = 5 * time.Second, 20 * time.Second

// maxScans bounds how often the start reads the mappings again for which there was no room, or that could not be read: a
// process may never answer.
const maxScans = 8

// scan attaches to libraries that are already mapped, by the given processes or by all.
func (f *Finder) scan(pids []int) error {
	if len(pids) == 0 {
		f.rescan()
		f.awaitScan()
		return nil
	}
	for _, pid := range pids {
		list, err := f.existing(pid)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
			return fmt.Errorf("no process %d", pid)
		case errors.Is(err, os.ErrPermission):
			return fmt.Errorf("cannot read process %d: %w: this needs CAP_SYS_PTRACE in the process's namespace; in a container, use --privileged --pid=host", pid, host.WithoutPath(err))
		default:
			return fmt.Errorf("cannot read process %d: %w", pid, host.WithoutPath(err))
		}
		user := host.RealUser(pid)
		for _, m := range list {
			if err := f.discover(m, user); err != nil {
				return err
			}
		}
	}
	f.awaitScan()
	return nil
}

// awaitScan waits for the start's part of a scan. Scanning tells of the rest.
func (f *Finder) awaitScan() {
	go func() {
		defer close(f.scanned)
		f.finishScan()
	}()
	select {
	case <-f.scanned:
	case <-time.After(scanPatience):
	}
}

// finishScan waits until the libraries that were mapped at the start are read.
func (f *Finder) finishScan() {
	until := time.Now().Add(scanLimit)
	for n := 0; n < maxScans && f.closing.Err() == nil; n++ {
		read := f.queues.Wait(time.Until(until)) // of the libraries, and then of the files beside them: see besides
		if read = read && f.queues.Wait(time.Until(until)); !read {
			f.warn(fmt.Sprintf("the libraries of some processes were not read in %.0f s: the host is busy, or their files do not answer; "+
				"existing buffers of these may be missing", scanLimit.Seconds()))
			return
		}
		select {
		case <-f.dropped:
			f.rescan()
		default:
			return
		}
	}
}

// Scanning reports whether libraries that were mapped at the start are still being read.
func (f *Finder) Scanning() bool {
	select {
	case <-f.scanned:
		return false
	default:
		return true
	}
}

// mapped handles new mappings that the kernel reports.
func (f *Finder) mapped(list []host.NewMapping) {
	for _, m := range f.knownFirst(list) {
		if m.PID == os.Getpid() {
			continue
		}
		follows, ended := f.follows(m)
		if !follows {
			continue
		}
		if !ended { // else there is no stack to unwind
			f.Spaces.Mapped(m)
		}
		if m.File.Inode == 0 {
			continue
		}
		f.discoverSoon(m)
		if ended {
			continue
		}
		if f.names(m.PID) || f.Spaces.Expects(m.PID) {
			f.Spaces.Changed(m.PID) // at once, so that its code is known by its first event
		} else if python := f.Spaces.PythonAt(m.Mapping); python != nil {
			f.worker(m.PID, python)
		} else {
			f.Spaces.ChangedIfKnown(m.PID)
		}
	}
}

// follows reports whether a mapping matters. Without named processes all do. Else its process is in the kernel side's list, or
// was there until it ended: its last mappings may be read after its end.
func (f *Finder) follows(m host.NewMapping) (follows, ended bool) {
	switch {
	case len(f.Processes) == 0:
		return true, false
	case !f.Kernel.Lists(m.PID):
		listedNs, was := f.listed[m.PID]
		isAnother := host.BeganAfter(m.PID, listedNs) && !host.BeganAfter(m.PID, m.TimeNs)
		return was && !isAnother, true
	}
	if len(f.listed) >= f.mostListed { // each looks at as many as were added since the last time
		maps.DeleteFunc(f.listed, func(pid int, _ uint64) bool { return !f.Kernel.Lists(pid) })
		f.mostListed = max(4096, 2*len(f.listed))
	}
	f.listed[m.PID] = host.Now()
	return true, false
}

// worker prepares for a process that runs Python, like others before it, if a traced process has started it: it is
// likely to import what its parent has.
func (f *Finder) worker(pid int, python *stack.Python) {
	if len(f.Processes) > 0 { // it is in the kernel side's list
		f.Spaces.Changed(pid)
		return
	}
	user := host.RealUser(pid)
	f.soon(host.Lane{User: user}, func() {
		parent := host.Parent(pid)
		if (f.maps(parent) || f.Spaces.Expects(parent)) && f.expect(pid, user, python) == nil {
			f.Spaces.Changed(pid)
		} else {
			f.Spaces.ChangedIfKnown(pid)
		}
	})
}

// knownFirst puts the mappings of known libraries first, and then those of files with
// its name: reading the files of the others takes a while, and a program may allocate,
// or end, meanwhile.
func (f *Finder) knownFirst(list []host.NewMapping) []host.NewMapping {
	order := func(m host.NewMapping) int {
		switch l, _ := f.Libraries.Known(&m.Mapping); {
		case l != nil:
			return 0
		case libraries.HasUsualName(m.Path):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b host.NewMapping) int { return order(a) - order(b) })
	return list
}
