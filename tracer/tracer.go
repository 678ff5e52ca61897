// Package tracer goes from a running host to a stream of events: it finds the
// processes that map a tt-metal library, works out the library's layout, places
// the probes and decodes what they send.
//
// Nothing is written into a traced process, and nothing stops it.
package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/stack"
)

// Options say what to trace. The zero value traces every process of the host.
type Options struct {
	// Processes are the ids of the processes to trace.
	Processes []int
	// Children has the future children of Processes traced as well.
	Children bool
	// NoStacks takes no call stacks.
	NoStacks bool
	// FreeStacks takes the stacks of frees as well.
	FreeStacks bool
	// FullNames has functions named with their parameters and template arguments.
	FullNames bool
	// AllFrames keeps the Python interpreter's own calls in stacks.
	AllFrames bool
	// MarkAt are the names of native functions: each call of one is a Mark. Where there
	// are no Children each is to be in a file that is mapped.
	MarkAt []string
	// Warn gets what could not be seen, a line each; nil: it is dropped.
	Warn func(string)
}

// Tracer traces processes from New until Close.
type Tracer struct {
	objs    *kernel.Objects
	spaces  *stack.Spaces // nil: no stacks are taken
	finder  *finder
	decoder *decoder
	warn    func(string)
	lost    [len(lostCauses)]uint64 // by the kernel side, as it was last asked
}

// New loads the kernel side and attaches to all libraries that the processes map
// already. Processes that map one later are discovered during Run.
func New(o Options) (_ *Tracer, err error) {
	if err := kernel.Check(); err != nil {
		return nil, err
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	t := &Tracer{warn: o.Warn}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	var reading sync.WaitGroup
	if !o.NoStacks {
		t.spaces = stack.NewSpaces(t.warn)
		reading.Go(func() { t.spaces.Read(o.Processes) })
	}
	err = t.load(&o)
	reading.Wait()
	if err != nil {
		return nil, err
	}
	t.finder = newFinder(t.objs, t.spaces, &o)
	t.decoder = newDecoder(t.finder, t.spaces, stack.Options{FullNames: o.FullNames, AllFrames: o.AllFrames})
	t.decoder.markAt = o.MarkAt
	if err := t.finder.begin(&o); err != nil {
		return nil, err
	}
	t.spaces.Started()
	// what was read of the kernel's types and of the libraries is not needed again
	debug.FreeOSMemory()
	return t, nil
}

func (t *Tracer) load(o *Options) error {
	k, err := kernel.Detect()
	if err != nil {
		return err
	}
	t.objs, err = k.Load(kernel.LoadOptions{OnlyListed: len(o.Processes) > 0, Stacks: !o.NoStacks, FreeStacks: o.FreeStacks})
	if err != nil {
		return err
	}
	return t.spaces.Start(t.objs)
}

// pollInterval is how often the ring buffer is read when the kernel side does not wake the
// reader.
const pollInterval = 10 * time.Millisecond

// countNs is how often the kernel side is asked what it has lost: that costs as much as
// to look at the ring buffer.
const countNs = 100e6

// sweepNs is how often it is made sure that processes are still there.
const sweepNs = 10e9

// Run gives events to handle in the order of their times until the context is
// done, then what had come in by then, and returns. After each batch, and at
// least every pollInterval, it calls pause, where what handle gathered can be
// written or shown.
func (t *Tracer) Run(ctx context.Context, handle func(*event.Event), pause func()) error {
	var record ringbuf.Record
	var end uint64 // when the context was done
	swept, counted := host.Now(), uint64(0)
	for {
		wait := pollInterval
		if ctx.Err() != nil {
			wait = 0
			if end == 0 {
				end = host.Now()
			}
		}
		before, drained := host.Now(), false
		t.objs.Ring.SetDeadline(time.Now().Add(wait))
		for {
			err := t.objs.Ring.ReadInto(&record)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				drained = true
				break
			}
			if err != nil {
				return fmt.Errorf("reading the ring buffer: %w", err)
			}
			t.decoder.decode(record.RawSample)
			if len(t.decoder.queue.events) >= 1<<13 {
				break // a busy target must not keep what it did from being shown
			}
		}
		t.takeFound()
		if before-counted > countNs || end != 0 {
			counted = before
			t.countLost()
		}
		t.reportLost()
		if drained {
			t.takeLate(before - min(before, holdBackNs))
			if before-swept > sweepNs {
				swept = before
				t.decoder.sweep(max(before, t.decoder.queue.released), t.finder.seenPIDs())
			}
		}
		// what a target that goes on does after the end is not waited for
		last := end != 0 && (drained || t.decoder.queue.newest() > end+holdBackNs)
		if last {
			t.endLate()
			before = ^uint64(0)
		} else {
			before -= min(before, holdBackNs)
		}
		t.decoder.queue.release(before, handle)
		pause()
		if last {
			return nil
		}
	}
}

// countLost asks the kernel side what was lost since it was last called.
func (t *Tracer) countLost() {
	for i := range t.lost {
		var n uint64
		if t.objs.Lost.Lookup(uint32(i), &n) == nil && n > t.lost[i] {
			t.decoder.lost[lostCauses[i]] += n - t.lost[i]
			t.lost[i] = n
		}
	}
}

// reportLost reports what was lost.
func (t *Tracer) reportLost() {
	for cause, n := range t.decoder.lost {
		t.decoder.emit(event.Event{Kind: event.Lost, TimeNs: host.Now(), Count: n, Cause: cause})
	}
	clear(t.decoder.lost)
}

// takeFound decodes what was found on the host.
func (t *Tracer) takeFound() {
	for _, f := range t.finder.take() {
		// what happened meanwhile may be reported already
		f.event.TimeNs = max(f.event.TimeNs, t.decoder.queue.released)
		switch {
		case f.event.Kind != event.ProcessStart:
			t.decoder.emit(f.event)
		case !host.Ended(f.event.PID):
			t.decoder.start(&f.event, f.library)
		}
	}
}

// Mark puts a mark of this name between what happened before the call and after it.
func (t *Tracer) Mark(name string, uid int) {
	t.finder.add(discovered{event: event.Event{Kind: event.Mark, TimeNs: host.Now(), Cause: name, UID: uid}})
}

// Prepare attaches to a library file before a process maps it.
func (t *Tracer) Prepare(path string) error { return t.finder.prepare(path) }

// Discovered reports whether any traced process mapped a library.
func (t *Tracer) Discovered() bool { return t.finder.anySeen() }

// Maps reports whether a process is known to map a tt-metal library.
func (t *Tracer) Maps(pid int) bool { return t.finder.maps(pid) }

// Reading reports whether what processes held before they were attached is still
// read; where it is not, handle was given all of it, or is when Run ends.
func (t *Tracer) Reading() bool { return t.finder.late.reading() }

// StackEnds counts the stacks that were taken by how their native part and their
// Python part ended.
func (t *Tracer) StackEnds() (native, python map[string]uint64) { return stack.CountEnds(t.objs) }

// Unfound are errors that name the functions of MarkAt which are in no file that a traced
// process has mapped: to be asked after Run.
func (t *Tracer) Unfound() []error { return t.finder.calls.Unfound() }

// Close removes all probes. The traced processes go on as they are.
func (t *Tracer) Close() {
	if t.finder != nil {
		t.finder.close()
	}
	t.spaces.Close()
	if t.objs != nil {
		t.objs.Close()
	}
}
