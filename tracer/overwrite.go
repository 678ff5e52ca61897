package tracer

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// A library that is overwritten in place keeps its inode, and with it the kernel's
// probes, which would then be put into the middle of other instructions and kill
// whoever runs them. A lease on the file makes the writer wait until the probes
// are gone. Files that are replaced, as pip and compilers do it, are no matter.

// watchOverwrites has the probes of a library removed before somebody writes to
// it.
func (t *Tracer) watchOverwrites() {
	t.breaks = make(chan os.Signal, 1)
	signal.Notify(t.breaks, unix.SIGIO)
	go func() {
		for range t.breaks {
			t.withdraw()
		}
	}()
}

func (t *Tracer) stopWatchingOverwrites() {
	if t.breaks != nil {
		signal.Stop(t.breaks)
		close(t.breaks)
	}
}

// guard takes a lease on a library's file.
func (t *Tracer) guard(l *library) {
	_, err := unix.FcntlInt(l.file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	l.leased = err == nil
	if err != nil {
		t.warn(fmt.Sprintf("%s: do not overwrite it while it is traced, which kills the programs that run it (no lease on it: %v)", l.path, err))
	}
}

// leaseBroken reports whether somebody wants to write to a file that there is a lease on:
// while a lease is being broken it is told as what it is to become.
func leaseBroken(file *os.File) bool {
	lease, err := unix.FcntlInt(file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && lease == unix.F_UNLCK
}

// withdraw removes the probes of the libraries that somebody wants to write to,
// and lets him.
func (t *Tracer) withdraw() {
	t.calls.withdraw()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.libraries {
		if l.probes == nil || !l.leased || !leaseBroken(l.file) {
			continue
		}
		l.probes.Close()
		l.probes, l.retiredNs = nil, now()
		_, _ = unix.FcntlInt(l.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		for id, other := range t.byFile {
			if other == l {
				delete(t.byFile, id)
			}
		}
		t.warn(fmt.Sprintf("%s is being overwritten: processes that run it are not traced any more", l.path))
	}
}
