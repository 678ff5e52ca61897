package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/libraries"
	"ttmem/tracer/marks"
	"ttmem/tracer/stack"
)

// finder discovers the processes that map a tt-metal library, and attaches to the library. What it finds
// goes to the inbox.
type finder struct {
	objs      *kernel.Objects
	kernel    kernelSide
	libraries *libraries.Set
	spaces    *stack.Spaces // nil: no stacks are taken
	readers   *host.Readers
	calls     *marks.Placer // nil: no calls are marks
	inbox     *inbox
	seenAny   *atomic.Bool // a process mapped a library
	Options

	mappings     *host.MappingWatch
	breaks       chan os.Signal // of leases: a library is about to be overwritten
	working      sync.WaitGroup
	objectsEnded chan struct{} // gets something when a process ends that may have objects in the kernel side
	queues       host.Queues
	waiting      host.WaitingMappings
	dropped      chan struct{}   // gets something when mappings may be unknown
	closing      context.Context // done when tracing ends
}

// newFinder returns a finder for an event loop.
func newFinder(objs *kernel.Objects, d *decoder) *finder {
	return &finder{
		objs: objs, kernel: d.kernel, libraries: d.libraries, spaces: d.spaces, readers: d.reads.readers, inbox: d.inbox, seenAny: &d.seenAny,
		Options: d.Options, objectsEnded: d.objectsEnded, dropped: make(chan struct{}, 1), closing: d.closing,
	}
}

// begin attaches to the libraries that are already mapped, and watches for new mappings.
func (f *finder) begin() error {
	if err := f.list(); err != nil {
		return err
	}
	if len(f.MarkAt) > 0 {
		f.calls = marks.New(f.MarkAt, f.objs.OnMark, f.objs.Support.Uprobes, &f.readers.Proc, f.warn)
	}
	f.watchOverwrites()
	if err := f.watch(); err != nil {
		return err
	}
	f.working.Go(f.forgetObjects)
	if err := f.scan(f.Processes); err != nil {
		return err
	}
	f.calls.Settle()
	if f.Children {
		return nil // children may map more
	}
	return errors.Join(f.calls.Unfound()...)
}

// list puts the processes that the user named into the kernel side's list.
func (f *finder) list() error {
	flags := uint32(0)
	if f.Children {
		flags = bpf.ProcessFollow
	}
	for _, pid := range f.Processes {
		switch _, err := f.objs.AddProcess(pid, flags); {
		case errors.Is(err, unix.ESRCH):
			return fmt.Errorf("no process %d", pid)
		case err != nil:
			return fmt.Errorf("listing process %d: %w", pid, err)
		}
	}
	return nil
}

// names reports whether the user named a process.
func (f *finder) names(pid int) bool { return slices.Contains(f.Processes, pid) }

// prepare attaches to a library file before a process maps it, and reads its unwind tables and
// those of the files installed with it. This takes half a second of CPU time, in which a running
// program would allocate, and its first stacks would be incomplete.
func (f *finder) prepare(path string) error {
	beside, err := f.prepareLibrary(path)
	if err != nil {
		return err
	}
	f.calls.Prepare(beside)
	for _, path := range beside {
		f.prepareBeside(path)
	}
	f.spaces.Prepare(beside)
	return nil
}

// prepareLibrary returns the files that are installed beside the library and may be mapped
// with it.
func (f *finder) prepareLibrary(path string) (beside []string, err error) {
	file, err := host.Open(path)
	if err != nil {
		return nil, err
	}
	id, err := host.FileIDOf(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	l, _ := f.libraries.Known(&host.NewMapping{File: id})
	if l != nil {
		file.Close()
		return nil, nil
	}
	l, err = f.libraries.Open(file, 0, path, host.Open)
	if err != nil {
		return nil, err
	}
	f.libraries.Remember(id, l)
	dir := filepath.Dir(path)
	beside, _ = filepath.Glob(filepath.Join(dir, "*.so*"))
	extensions, _ := filepath.Glob(filepath.Join(dir, "..", "..", "*.so"))
	return append(beside, extensions...), nil
}

// prepareBeside places the probes for exceptions in a file before a process maps it.
func (f *finder) prepareBeside(path string) {
	file, err := host.Open(path)
	if err != nil {
		return
	}
	id, err := host.FileIDOf(file)
	l, _ := f.libraries.Known(&host.NewMapping{File: id})
	known := f.libraries.KnownBeside(id, 0)
	if err != nil || l != nil || known {
		file.Close()
		return
	}
	if err := f.libraries.OpenBeside(file, id, path, 0, 0); err != nil {
		f.warn(err.Error())
	}
}

// maps reports whether a process is known to map a tt-metal library.
func (f *finder) maps(pid int) bool { return f.libraries.Of(pid) != nil }

// forgetInterval is the time between passes through the kernel side's table of objects.
const forgetInterval = time.Second

// forgetObjects removes the objects of processes that have ended from the kernel side, until
// tracing ends. A pass through a full table takes tens of milliseconds.
func (f *finder) forgetObjects() {
	for f.closing.Err() == nil {
		select {
		case <-f.closing.Done():
		case <-f.objectsEnded:
			if err := f.objs.ForgetObjects(); err != nil {
				f.warn(fmt.Sprintf("removing the objects of processes that ended: %v", err))
				return
			}
			select {
			case <-f.closing.Done():
			case <-time.After(forgetInterval):
			}
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
			for _, l := range f.libraries.Withdraw() {
				f.withdrawn(l)
			}
		}
	}()
}

// withdrawn adds a loss to the processes that map a library: they are no longer traced.
func (f *finder) withdrawn(l *libraries.Library) {
	for _, pid := range f.libraries.Processes(l) {
		f.lost(pid, "library overwritten")
	}
}

// endPatience is how long the end of tracing waits for a read of a user's file.
const endPatience = time.Second

// close removes all probes, when f.closing is done.
func (f *finder) close() {
	if f.mappings != nil {
		f.mappings.Interrupt()
		f.queues.Wait(endPatience)
		f.working.Wait()
		f.mappings.Close()
	}
	if f.breaks != nil {
		signal.Stop(f.breaks)
		close(f.breaks)
	}
	f.calls.Close()
	f.libraries.Close()
}
