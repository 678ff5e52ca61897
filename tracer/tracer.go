// Package tracer turns a running host into a stream of events. It discovers the processes
// that map a tt-metal library, derives the library's layout, places the probes and decodes
// their records.
//
// Nothing is written into a traced process, and nothing stops it.
//
// The kernel gives each program of a process an identity, which is in every record: kernel.Program.
// The event loop (decoder) has one process for each of them, with all that is known of it; package books has
// what is known of its devices, buffers and programs, and turns records of them into events. A record of
// another program ends the one before it. Package find, which discovers processes, and goroutines that
// read a process's memory know only its identity. They put their results into the inbox, which drops
// those of programs that have ended.
// It is not part of ttmem's Go library: it changes without notice.
package tracer

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/find"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/kernel"
)

// Options select what to trace. The zero value traces every process of the host.
type Options struct {
	// Processes are the ids of the processes to trace.
	Processes []int
	// Children traces future children of Processes as well.
	Children bool
	// NoStacks disables call stacks.
	NoStacks bool
	// FreeStacks records the call stacks of frees as well.
	FreeStacks bool
	// NoUses leaves out which buffers programs use.
	NoUses bool
	// FullNames shows functions with their parameters and template arguments.
	FullNames bool
	// AllFrames keeps the Python interpreter's own calls in stacks.
	AllFrames bool
	// Owners looks for who holds the buffers of each process after a late attach, OwnersAtPeaks at new
	// peaks, and OwnersAtMarks at each mark. After a failed allocation that is always done.
	Owners, OwnersAtPeaks, OwnersAtMarks bool
	// Warn gets a line for everything that could not be traced, with the user whose process or file it is
	// about, host.NoUser if there is none; nil drops them.
	Warn func(user int, text string)
	// RingBytes is the size of the ring buffer; 0: the usual one. Tests lose events with a small one.
	RingBytes uint32
}

// Tracer traces processes from New until Close.
type Tracer struct {
	objs    *kernel.Objects
	readers *host.Readers
	spaces  *stack.Spaces // nil: no stacks are taken
	*decoder
	finder *find.Finder
	stop   context.CancelFunc
	// HandledNs is the time before which Run has passed on all events.
	HandledNs atomic.Uint64
	// restorePriority ends the raised priority of the whole process.
	restorePriority func()
	// forgetting are the goroutines that remove objects of processes that ended.
	forgetting sync.WaitGroup
}

// New loads the kernel side and attaches to all libraries that the processes map
// already. Processes that map one later are discovered during Run.
func New(o Options) (_ *Tracer, err error) {
	if err := kernel.Check(); err != nil {
		return nil, err
	}
	if o.Warn == nil {
		o.Warn = func(int, string) {}
	}
	addProcessors()
	defer fewCollections()()
	t := &Tracer{restorePriority: host.RaisePriority(), readers: host.NewReaders()}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	var reading sync.WaitGroup
	if !o.NoStacks {
		t.spaces = stack.NewSpaces(t.readers, o.warn)
		reading.Go(func() { t.spaces.Read(o.Processes) })
	}
	err = t.load(&o)
	reading.Wait()
	if err != nil {
		return nil, err
	}
	closing, stop := context.WithCancel(context.Background())
	t.stop = stop
	set := libraries.New(t.objs, t.spaces, &t.readers.Proc, o.Warn)
	t.decoder = newDecoder(closing, t.objs, set, t.spaces, t.readers, &o)
	t.finder = find.New(closing, find.Options{
		Processes: o.Processes, Children: o.Children, Warn: o.Warn,
		Kernel: t.objs, Libraries: set, Spaces: t.spaces, Readers: t.readers, Inbox: t.inbox, Boards: &t.boards,
	})
	t.locate, t.resident = t.finder.Locate, host.ResidentMemory
	t.forgetting.Go(t.forgetObjects)
	if err := t.finder.Begin(); err != nil {
		return nil, err
	}
	t.spaces.Started()
	// the kernel's types and the libraries' symbols are not needed again
	debug.FreeOSMemory()
	return t, nil
}

// warn warns about no user's process or file.
func (o *Options) warn(text string) { o.Warn(host.NoUser, text) }

// addProcessors lets urgent goroutines run while others occupy all of Go's processors: one for each
// goroutine that reads files (Spaces), one for Run, one for marks, and a quarter for the garbage
// collector. Each is held by a thread that a busy host may not run for a while: one that waits for the
// kernel, or that answers a client at normal priority.
func addProcessors() {
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()*4/3+4))
}

// fewCollections lets the heap grow to a few times its size between collections until the function that it
// returns is called: starting reads types and symbols, which are used until its end.
func fewCollections() (usual func()) {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}

func (t *Tracer) load(o *Options) error {
	k, err := kernel.Detect()
	if err != nil {
		return err
	}
	t.objs, err = k.Load(kernel.LoadOptions{OnlyListed: len(o.Processes) > 0, Stacks: !o.NoStacks, FreeStacks: o.FreeStacks, Uses: !o.NoUses, RingBytes: o.RingBytes})
	if err != nil {
		return err
	}
	return t.spaces.Start(t.objs)
}

// pollInterval is how often the ring buffer is read while the kernel side does not wake the reader.
const pollInterval = 10 * time.Millisecond

// maxBatch bounds the records between two calls of pause.
const maxBatch = 1 << 13

// Run passes events to handle in order of time until the context is done, and then the rest that had arrived. After each
// batch, and at least every pollInterval, it calls pause, so that the caller can write or show the events.
func (t *Tracer) Run(ctx context.Context, handle func(*event.Event), pause func()) error {
	defer func() { t.backlog.Is(0, nil) }()
	var endNs uint64 // when the context was done
	for {
		wait := pollInterval
		switch {
		case ctx.Err() == nil:
		case endNs == 0:
			wait, endNs = 0, host.Now()
		default:
			wait = time.Millisecond // for results of reads
		}
		nowNs, drained := host.Now(), false
		until := time.Now().Add(wait)
		for range maxBatch {
			record, none, err := t.objs.Ring.Next(until)
			if err != nil {
				return fmt.Errorf("reading the ring buffer: %w", err)
			}
			if record == nil {
				drained = none
				break
			}
			t.decode(record)
		}
		untilNs := t.tick(nowNs, drained, endNs)
		t.release(untilNs, handle)
		pause()
		t.HandledNs.Store(untilNs)
		if untilNs == finished {
			return nil
		}
	}
}

// Mark adds a mark of a user at the present time, which counts to a sharer.
func (t *Tracer) Mark(name string, uid, sharer int) {
	nowNs := host.Now()
	mark := event.Event{Kind: event.Mark, TimeNs: nowNs, Cause: name, UID: uid}
	if sharer != uid {
		mark.Count = uint64(sharer)
	}
	t.inbox.add(result{report: func(d *decoder) bool { // events after its time may have been reported already
		d.emit(mark)
		return true
	}})
	t.inbox.add(result{atNs: nowNs, report: func(d *decoder) bool {
		d.wantAtMark(nil, uid)
		return true
	}})
}

// forgetInterval is the time between passes through the kernel side's table of objects.
const forgetInterval = time.Second

// forgetObjects removes the objects of processes that have ended from the kernel side, until
// tracing ends. A pass through a full table takes tens of milliseconds.
func (t *Tracer) forgetObjects() {
	for {
		select {
		case <-t.closing.Done():
			return
		case <-t.objectsEnded:
		}
		if err := t.objs.ForgetObjects(); err != nil {
			t.warn(fmt.Sprintf("removing the objects of processes that ended: %v", err))
			return
		}
		select {
		case <-t.closing.Done():
			return
		case <-time.After(forgetInterval):
		}
	}
}

// PrepareCommand prepares for the programs that a process, a child of another of the same user, will execute: their code is
// known from the first instruction on. Unless fd is negative, they map the CPython that the other one has open by it.
func (t *Tracer) PrepareCommand(ctx context.Context, pid, parent, fd int) error {
	return t.finder.PrepareCommand(ctx, pid, parent, fd)
}

// Prepare attaches to a library file before a process maps it.
func (t *Tracer) Prepare(path string) error {
	defer fewCollections()()
	return t.finder.Prepare(path)
}

// PrepareOpened prepares for a file that a process has opened, before another of its user maps it. It returns when that
// is done, or the context.
func (t *Tracer) PrepareOpened(ctx context.Context, pid, fd int) error {
	return t.finder.PrepareOpened(ctx, pid, fd)
}

// Discovered reports whether any traced process mapped a library.
func (t *Tracer) Discovered() bool { return t.libraries.Seen.Load() }

// Maps reports whether a process is known to map a tt-metal library.
func (t *Tracer) Maps(pid int) bool { return t.libraries.Of(pid) != nil }

// Finish reports whether all is read that a command has mapped: see find.Finder.Finish.
func (t *Tracer) Finish(waited bool) bool { return t.finder.Finish(waited) }

// Reading reports whether existing buffers are still being read after an attach. Once it returns false, handle has
// got all of them, or will by the end of Run.
func (t *Tracer) Reading() bool { return t.finder.Scanning() || t.inbox.late.Load() > 0 }

// The names by which StackEnds counts stacks that are complete, or have no Python part.
const CompleteStack, CompletePython, NoPython = stack.CompleteStack, stack.CompletePython, stack.NoPython

// StackEnds counts stacks by how their native part and their Python part ended.
func (t *Tracer) StackEnds() (native, python map[string]uint64) { return stack.CountEnds(t.objs) }

// Close removes all probes. The traced processes continue.
func (t *Tracer) Close() {
	if t.finder != nil {
		t.libraries.HoldForDebuggers()
		t.stop()
		t.finder.Close()
		t.forgetting.Wait()
	}
	t.spaces.Close()
	t.readers.Close()
	if t.objs != nil {
		t.objs.Close()
	}
	t.restorePriority()
}
