package tracer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/heap/owner"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/libraries"
	"ttmem/tracer/marks"
	"ttmem/tracer/stack"
)

// finder discovers the processes that map a tt-metal library, and attaches to the library.
type finder struct {
	objs   *kernel.Objects
	spaces *stack.Spaces // nil: no stacks are taken
	calls  *marks.Placer // nil: no calls are marks
	warn   func(string)
	warnOf func(user int, text string)
	// onlyListed restricts tracing to the processes in the kernel side's list
	onlyListed bool
	// owners is true if owners of buffers from before the attach are looked for. unreadable
	// reports once that a process may not be searched
	owners     bool
	searcher   owner.Searcher
	unreadable sync.Once
	// named are the processes that the user named
	named map[int]bool

	mappings *host.MappingWatch
	breaks   chan os.Signal // of leases: a library is about to be overwritten
	working  sync.WaitGroup
	ended    chan struct{} // gets something when a process ends that may have objects in the kernel side
	queues   host.Queues
	waiting  host.WaitingMappings
	dropped  chan struct{}   // gets something when mappings may be unknown
	closing  context.Context // done when tracing ends
	stop     context.CancelFunc
	inbox    *inbox
	reads    *reads

	mu        sync.Mutex
	libraries *libraries.Set
	late      lateAttaches
	rereading map[int]bool        // by user: one of their processes is being read again
	starts    map[int]event.Event // of processes that map a library
	seenAny   bool                // a process mapped a library
	// past are the newest processes that mapped one and have ended, oldest first.
	past []pastProcess
}

func newFinder(objs *kernel.Objects, spaces *stack.Spaces, readers *host.Readers, o *Options) *finder {
	f := &finder{
		objs: objs, spaces: spaces, warn: o.warn, warnOf: o.Warn, onlyListed: len(o.Processes) > 0, owners: o.Owners,
		named: make(map[int]bool), starts: make(map[int]event.Event), ended: make(chan struct{}, 1),
		late: lateAttaches{byPID: make(map[int]*lateAttach)}, rereading: make(map[int]bool),
		dropped: make(chan struct{}, 1),
		inbox:   new(inbox),
	}
	f.libraries = libraries.New(objs, spaces, &readers.Proc, o.Warn, &f.mu)
	f.closing, f.stop = context.WithCancel(context.Background())
	f.reads = newReads(f.closing, readers, f.inbox)
	return f
}

// begin attaches to the libraries that are already mapped, and watches for new mappings.
func (f *finder) begin(o *Options) error {
	if err := f.list(o.Processes, o.Children); err != nil {
		return err
	}
	if len(o.MarkAt) > 0 {
		f.calls = marks.New(o.MarkAt, f.objs.OnMark, f.objs.Support.Uprobes, &f.reads.readers.Proc, f.warn)
	}
	f.watchOverwrites()
	if err := f.watch(); err != nil {
		return err
	}
	f.working.Go(f.forgetObjects)
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
		flags := uint32(0)
		if children {
			flags = bpf.ProcessFollow
		}
		f.named[pid] = true
		switch _, err := f.objs.AddProcess(pid, flags); {
		case errors.Is(err, unix.ESRCH):
			return fmt.Errorf("no process %d", pid)
		case err != nil:
			return fmt.Errorf("listing process %d: %w", pid, err)
		}
	}
	return nil
}

// describeProcess describes a process by its files in /proc, but without the command line, which
// is in the memory of the process.
func describeProcess(pid int) event.Event {
	id := host.IdentityOf(pid)
	return event.Event{
		Kind: event.ProcessStart, PID: pid, TID: pid, Comm: host.ThreadName(pid, pid),
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
	f.mu.Lock()
	l, _ := f.libraries.Known(&host.NewMapping{File: id})
	f.mu.Unlock()
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
	f.mu.Lock()
	l, _ := f.libraries.Known(&host.NewMapping{File: id})
	known := f.libraries.KnownBeside(id, 0)
	f.mu.Unlock()
	if err != nil || l != nil || known {
		file.Close()
		return
	}
	if err := f.libraries.OpenBeside(file, id, path, 0, 0); err != nil {
		f.warn(err.Error())
	}
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
	return slices.Collect(maps.Keys(f.libraries.Seen))
}

// maps reports whether a process is known to map a tt-metal library.
func (f *finder) maps(pid int) bool { return f.libraries.IsMappedBy(pid) }

// library returns the library with the index in a record. The record proves that a process
// mapped it, even one that ended before its mapping was handled.
func (f *finder) library(index uint8) *libraries.Library {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.libraries.At(index)
	f.seenAny = f.seenAny || l != nil
	return l
}

// add queues an event that comes from the host and not through the ring buffer. Any goroutine may
// call it. l is the library of a process that starts.
func (f *finder) add(e event.Event, l *libraries.Library) {
	f.inbox.add(found{0, func(d *decoder) bool {
		d.discovered(e, l)
		return true
	}})
}

// processEnded drops the state of a process here and in the kernel, because another process may
// get its id. traced is true if it sent a record.
func (f *finder) processEnded(pid int, execID, timeNs uint64, execed, traced bool) {
	f.mu.Lock()
	p := f.libraries.Seen[pid]
	if p != nil && p.First.TimeNs > timeNs { // the next program with this id was already discovered
		if start, ok := f.starts[pid]; ok {
			f.add(start, p.Library)
		}
	} else {
		if p != nil {
			f.past = append(f.past[max(0, len(f.past)+1-maxPast):], pastProcess{pid, timeNs})
		}
		f.libraries.Forget(pid)
		delete(f.starts, pid)
		f.late.forget(pid)
	}
	f.mu.Unlock()
	if p != nil && p.First.TimeNs <= timeNs && p.Last.TimeNs > timeNs {
		f.discoverSoon(p.Last)
	}
	f.spaces.Forget(pid, execID)
	if traced {
		select {
		case f.ended <- struct{}{}:
		default:
		}
	}
	if execed && (traced || f.named[pid]) {
		f.spaces.Changed(pid) // it goes on as another program with the same id
	}
}

// A pastProcess is a process that mapped a library, and when it ended.
type pastProcess struct {
	pid     int
	endedNs uint64
}

// maxPast is how many are known. Files that they mapped are read within seconds, also on a busy host.
const maxPast = 256

// hasLibrary reports whether the process that mapped something at a time is known to map a library, or
// to have done so until its end.
func (f *finder) hasLibrary(pid int, timeNs uint64) bool {
	if f.maps(pid) {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.past, func(p pastProcess) bool { return p.pid == pid && p.endedNs >= timeNs })
}

// takeLosses passes on the losses of the kernel side since the last call.
func (f *finder) takeLosses(each func(bpf.KernelLossKey, bpf.KernelLoss)) {
	if err := f.objs.TakeLosses(each); err != nil {
		f.warn(fmt.Sprintf("counting lost events: %v", err))
	}
}

// forgetInterval is the time between passes through the kernel side's table of objects.
const forgetInterval = time.Second

// forgetObjects removes the objects of processes that have ended from the kernel side, until
// tracing ends. A pass through a full table takes tens of milliseconds.
func (f *finder) forgetObjects() {
	for f.closing.Err() == nil {
		select {
		case <-f.closing.Done():
		case <-f.ended:
			if _, err := f.objs.OnEnded.Run(&ebpf.RunOptions{}); err != nil {
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

// forgetPrograms removes the programs of a process from the kernel side, which reports them
// again when they run.
func (f *finder) forgetPrograms(pid int) {
	err := f.objs.ForgetPrograms.Set(uint32(pid))
	if err == nil {
		_, err = f.objs.OnEnded.Run(&ebpf.RunOptions{})
	}
	if err = errors.Join(err, f.objs.ForgetPrograms.Set(uint32(0))); err != nil {
		f.warn(fmt.Sprintf("reading the programs of process %d again: %v", pid, err))
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
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, p := range f.libraries.Seen {
		if p.Library == l {
			f.lost(pid, "library overwritten")
		}
	}
}

// endPatience is how long the end of tracing waits for a read of a user's file.
const endPatience = time.Second

// close removes all probes.
func (f *finder) close() {
	f.stop()
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
