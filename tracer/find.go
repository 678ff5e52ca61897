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

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
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
	rereading map[int]bool        // users of whose processes one is being read again
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
			byFile: make(map[host.FileID]*library), seen: make(map[int]*mapped),
		},
		late: lateAttaches{byPID: make(map[int]*lateAttach)}, rereading: make(map[int]bool),
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

// discovered is an event that came from the host and not through the ring buffer.
type discovered struct {
	event   event.Event
	library *library
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
	return f.libraries.seen[pid] != nil
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
	f.spaces.Forget(pid, timeNs, stacks)
	if stacks != nil {
		f.forgetObjects(pid)
	}
	if execed && (stacks != nil || f.named[pid]) {
		f.spaces.Changed(pid) // it goes on as another program with the same id
	}
}

// takeLosses passes on what the kernel side lost since the last call.
func (f *finder) takeLosses(each func(bpf.KernelLossKey, bpf.KernelLoss)) {
	if err := f.objs.TakeLosses(each); err != nil {
		f.warn(fmt.Sprintf("counting lost events: %v", err))
	}
}

// forgetObjects drops the kernel side's state for the objects of a process.
func (f *finder) forgetObjects(pid int) {
	f.forgetIn(pid, f.objs.Devices, f.objs.Allocators, f.objs.Programs)
}

func (f *finder) forgetIn(pid int, list ...*ebpf.Map) {
	for _, m := range list {
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
