// Package find discovers the processes that map a tt-metal library, and attaches to the library: it
// places the probes, and reports the process.
package find

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/kernel"
)

// Options are what to look for, and what a Finder works with.
type Options struct {
	// Processes are the ids of the processes to trace; none: all. Children traces their future children
	// as well.
	Processes []int
	Children  bool
	// Warn gets a line for everything that cannot be traced, as in tracer.Options.
	Warn func(user int, text string)

	Kernel    Kernel
	Libraries *libraries.Set
	Spaces    *stack.Spaces // nil: no stacks are taken
	Readers   *host.Readers
	Boards    *host.Boards // are read for each discovery
	Inbox     Inbox
}

// Kernel is the list of processes in the kernel side: see kernel.Objects.
type Kernel interface {
	ExecID(pid int) (uint64, error)
	AddProcess(pid int, flags uint32) (kernel.Program, error)
	Lists(pid int) bool
	Listed() []int
}

// An Inbox gets what is found, from any goroutine.
type Inbox interface {
	// Discovered gets a program that maps a library, with the probes of the library in place.
	Discovered(*Discovery)
	// Lost gets a library that is not traced.
	Lost(*Loss)
}

// A Discovery is a program that maps a library.
type Discovery struct {
	kernel.Program
	Library *libraries.Library
	Mapping host.NewMapping // Existing: its memory is to be read
	Description
	AtNs   uint64 // when it was found
	Parent int
	Forked bool // its parent mapped the library
	Missed bool // it mapped the library while it was traced, and its probes came later
}

// A Description says who a process is.
type Description struct {
	Start event.Event
	User  int // host.RealUser; -1: it had ended
}

// A Loss is a library that a program maps, or has mapped, and that is not traced.
type Loss struct {
	kernel.Program // without an ExecID if the process has ended
	Cause          string
	AtNs           uint64
	// Beside is true if the file may be another one of tt-metal. It is none of its losses then if the
	// process maps a library.
	Beside bool
	// Warning is for the user whose process it is; "" if there is none.
	Warning string
	User    int
}

// Causes of losses of processes whose libraries are not traced, or not with all that the figures of buffers need.
const (
	NotTraced    = "library not traced"
	TracedInPart = "library traced in part"
	EndedBefore  = "process ended before its library was traced"
	EndedUnread  = "process ended before its code was read" // which may be a library
)

// A Finder discovers processes from Begin until Close.
type Finder struct {
	Options
	mappings   *host.MappingWatch
	breaks     chan os.Signal // of leases: a library is about to be overwritten
	working    sync.WaitGroup
	queues     host.Queues
	waiting    host.WaitingMappings // for a lease of another process, or for room
	unread     host.WaitingMappings // to be read, with Processes only: see Finish
	dropped    chan struct{}        // gets something when mappings may be unknown
	closing    context.Context      // done when tracing ends
	scanned    chan struct{}        // closed when the libraries that were mapped at the start are read
	listed     map[int]uint64       // when a process was last known to be in the kernel side's list; only for follows
	mostListed int                  // when those that have ended are removed from it
}

// The mappings of a user that wait, and that are to be read: a program may map anything.
const maxWaitingOfUser, maxUnreadOfUser = 64, 4096

// New returns a Finder. Close waits for its work once closing is done.
func New(closing context.Context, o Options) *Finder {
	return &Finder{
		Options: o, waiting: host.WaitingMappings{MostOfUser: maxWaitingOfUser}, unread: host.WaitingMappings{MostOfUser: maxUnreadOfUser},
		dropped: make(chan struct{}, 1), scanned: make(chan struct{}), listed: make(map[int]uint64), closing: closing,
	}
}

// warn warns about no user's process or file.
func (f *Finder) warn(text string) { f.Warn(host.NoUser, text) }

// Begin attaches to the libraries that are already mapped, and watches for new mappings.
func (f *Finder) Begin() error {
	if err := f.list(); err != nil {
		return err
	}
	f.watchOverwrites()
	if err := f.watch(); err != nil {
		return err
	}
	return f.scan(f.Processes)
}

// list puts the processes that the user named into the kernel side's list.
func (f *Finder) list() error {
	flags := uint32(0)
	if f.Children {
		flags = bpf.ProcessFollow
	}
	for _, pid := range f.Processes {
		switch _, err := f.Kernel.AddProcess(pid, flags); {
		case errors.Is(err, unix.ESRCH):
			return fmt.Errorf("no process %d", pid)
		case err != nil:
			return fmt.Errorf("listing process %d: %w", pid, err)
		}
		f.listed[pid] = host.Now()
	}
	return nil
}

// names reports whether the user named a process.
func (f *Finder) names(pid int) bool { return slices.Contains(f.Processes, pid) }

// PrepareCommand prepares for the programs that a process will execute, which another one of its user has started.
// If fd is not negative, they will map a CPython that the other one has open by that descriptor. It returns when that is
// done, or the context.
func (f *Finder) PrepareCommand(ctx context.Context, pid, parent, fd int) error {
	user := host.RealUser(pid)
	if host.Parent(pid) != parent || host.RealUser(parent) != user {
		return fmt.Errorf("process %d is none that you started: %w", pid, fs.ErrPermission)
	}
	var python *stack.Python
	if fd >= 0 {
		err := f.inTurn(ctx, user, func() error {
			file, path, err := f.Readers.OpenDescriptor(parent, fd)
			if err == nil {
				python = f.Spaces.PythonIn(file, path, user)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return f.expect(pid, user, python)
}

// expect prepares for a process of a user, which has as many of these as stack.Spaces.Expect allows.
func (f *Finder) expect(pid, user int, python *stack.Python) error {
	if err := f.Spaces.Expect(pid, user, python); err != nil {
		return fmt.Errorf("preparing for process %d: %w", pid, err)
	}
	if f.names(pid) {
		return nil // it is listed
	}
	_, err := f.Kernel.AddProcess(pid, 0)
	return err
}

// Prepare attaches to a library file before a process maps it, and reads its unwind tables and
// those of the files installed with it. This takes half a second of CPU time, in which a running
// program would allocate, and its first stacks would be incomplete.
func (f *Finder) Prepare(path string) error {
	file, id, err := f.openNew(path)
	if err != nil || file == nil {
		return err
	}
	l, err := f.Libraries.Open(file, 0, path, host.Open)
	if err != nil {
		return err
	}
	f.Libraries.Remember(id, l)
	beside := host.Beside(path)
	for _, path := range beside {
		if file, id, _ := f.openNew(path); file != nil {
			if err := f.Libraries.OpenBeside(file, id, path, 0, 0); err != nil {
				f.warn(err.Error())
			}
		}
	}
	f.Spaces.Prepare(beside)
	return nil
}

// openNew opens a file by its name, unless it is known; nil then.
func (f *Finder) openNew(path string) (*os.File, host.FileID, error) {
	file, err := host.Open(path)
	if err != nil {
		return nil, host.FileID{}, err
	}
	id, err := host.FileIDOf(file)
	l, _ := f.Libraries.Known(&host.Mapping{File: id})
	if err != nil || l != nil || f.Libraries.KnownBeside(id, 0) {
		file.Close()
		file = nil
	}
	return file, id, err
}

// maps reports whether a process is known to map a tt-metal library.
func (f *Finder) maps(pid int) bool { return f.Libraries.Of(pid) != nil }

// watchOverwrites removes the probes of a library before the library is written to.
func (f *Finder) watchOverwrites() {
	f.breaks = make(chan os.Signal, 1)
	signal.Notify(f.breaks, unix.SIGIO)
	go func() {
		for range f.breaks {
			for _, l := range f.Libraries.Withdraw() {
				for _, pid := range f.Libraries.Processes(l) { // they are no longer traced
					f.lost(host.NewMapping{PID: pid, TimeNs: host.Now()}, Loss{Cause: "library overwritten"})
				}
			}
		}
	}()
}

// endPatience is how long the end of tracing waits for a read of a user's file.
const endPatience = time.Second

// Close removes all probes. The context of New is done.
func (f *Finder) Close() {
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
	f.Libraries.Close()
}
