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
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"ttmem/bpf"
	"ttmem/tracer/event"
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
	// Warn is told what could not be seen, a line each; nil: nobody is.
	Warn func(string)
}

// Tracer traces processes from New until Close.
type Tracer struct {
	objs     objects
	links    []io.Closer // of what is no library's
	ring     *ringbuf.Reader
	mappings *mappingWatch
	watching sync.WaitGroup
	closing  context.Context // done when the tracer is closed
	close    context.CancelFunc
	spaces   *spaces    // nil: no stacks are taken
	calls    *callMarks // nil: no calls are marks
	warn     func(string)
	breaks   chan os.Signal
	// onlyListed: what the kernel side has listed is traced, and nothing else
	onlyListed bool
	// named are the processes that are traced by name
	named map[int]bool

	mu          sync.Mutex
	libraries   []*library
	byFile      map[fileID]*library // nil: no tt-metal library
	found       []found             // from other goroutines, for Run
	late        map[int]*lateAttach // processes whose memory is read
	latePending atomic.Int32        // how many those are
	// lateResults are of those that were read, for Run
	lateResults []lateResult
	seen        map[int]bool        // processes that map a library
	starts      map[int]event.Event // of those
	met         bool                // there was one

	decoder decoder
	queue   ordered
	lost    [len(lostCauses)]uint64
	unknown map[string]uint64
}

// objects are the kernel side.
type objects struct {
	loaded
	kernel *kernel // what it was loaded for
}

// loaded is what of the kernel side is loaded.
type loaded struct {
	bpf.KernelMaps
	OnProbe       *ebpf.Program `ebpf:"on_probe"`
	OnFork        *ebpf.Program `ebpf:"on_fork"`
	OnExec        *ebpf.Program `ebpf:"on_exec"`
	OnExit        *ebpf.Program `ebpf:"on_exit"`
	OnCodeDealloc *ebpf.Program `ebpf:"on_code_dealloc"`
	OnDebugState  *ebpf.Program `ebpf:"on_debug_state"`
	OnMark        *ebpf.Program `ebpf:"on_mark"`
}

func (o *loaded) close() {
	o.KernelMaps.Close()
	for _, p := range []*ebpf.Program{o.OnProbe, o.OnFork, o.OnExec, o.OnExit, o.OnCodeDealloc, o.OnDebugState, o.OnMark} {
		p.Close()
	}
}

// Check finds out whether this host and user can trace at all; its error says
// what is missing.
func Check() error {
	if f := processor(); !f.OK {
		return errors.New(f.Detail)
	}
	if os.Geteuid() != 0 {
		return errors.New("tracing needs root: run it with sudo")
	}
	if f := typeInformation(); !f.OK {
		return errors.New(f.Detail)
	}
	if f := pidNamespace(); !f.OK {
		return fmt.Errorf("the PID namespace is %s", f.Detail)
	}
	return nil
}

// New loads the kernel side and attaches to all libraries that the processes map
// already. Processes that map one later are met during Run.
func New(o Options) (_ *Tracer, err error) {
	if err := Check(); err != nil {
		return nil, err
	}
	t := &Tracer{
		warn:       o.Warn,
		byFile:     make(map[fileID]*library),
		seen:       make(map[int]bool),
		starts:     make(map[int]event.Event),
		onlyListed: len(o.Processes) > 0,
		unknown:    make(map[string]uint64),
		named:      make(map[int]bool),
		late:       make(map[int]*lateAttach),
	}
	if t.warn == nil {
		t.warn = func(string) {}
	}
	t.closing, t.close = context.WithCancel(context.Background())
	t.decoder = decoder{
		processes: make(map[int]*traced),
		libraries: t.library,
		emit:      t.queue.push,
		forget:    t.forget,
		unknown:   func(cause string) { t.unknown[cause]++ },
		view:      t.view,
		met:       t.space,
		named:     func(pid int) bool { return t.named[pid] },
		late:      t.lateOf,
		startOf:   t.startOf,
		show:      stackOptions{fullNames: o.FullNames, allFrames: o.AllFrames},
	}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	var reading sync.WaitGroup
	if !o.NoStacks {
		t.spaces = newSpaces(t.warn)
		reading.Go(func() { t.spaces.read(o.Processes) })
	}
	err = t.load(o)
	reading.Wait()
	if err != nil {
		return nil, err
	}
	for _, pid := range o.Processes {
		p := bpf.KernelProcess{}
		if o.Children {
			p.Flags = processFollow
		}
		t.named[pid] = true
		if err := t.objs.Processes.Put(uint32(pid), &p); err != nil {
			return nil, fmt.Errorf("listing process %d: %w", pid, err)
		}
	}
	if len(o.MarkAt) > 0 {
		t.decoder.markAt, t.calls = o.MarkAt, newCallMarks(o.MarkAt, t.objs.OnMark, t.objs.kernel.uprobes, t.warn)
	}
	t.watchOverwrites()
	if err := t.watch(); err != nil {
		return nil, err
	}
	if err := t.scan(o.Processes); err != nil {
		return nil, err
	}
	t.calls.settle()
	if !o.Children { // which may map more
		if err := errors.Join(t.calls.unfound()...); err != nil {
			return nil, err
		}
	}
	if t.spaces != nil {
		t.spaces.settle()
		t.spaces.kept = nil
	}
	// what was read of the kernel's types and of the libraries is not needed again
	debug.FreeOSMemory()
	return t, nil
}

// processFollow and processLate are PROCESS_FOLLOW and PROCESS_LATE of
// bpf/src/process.h.
const (
	processFollow = 1
	processLate   = 2
)

func (t *Tracer) load(o Options) error {
	k, err := findKernel()
	if err != nil {
		return err
	}
	t.objs.kernel = k
	spec := k.spec
	vars := bpf.KernelVariableSpecs{}
	if err := spec.Assign(&vars); err != nil {
		return fmt.Errorf("reading the BPF object: %w", err)
	}
	if err := errors.Join(
		vars.OnlyListed.Set(t.onlyListed), vars.OwnTgid.Set(uint32(os.Getpid())),
		vars.DirectMap.Set(k.memory.start), vars.FrameMask.Set(k.memory.frameMask), vars.TableLevels.Set(k.memory.tableLevels),
		vars.TakeStacks.Set(!o.NoStacks), vars.FreeStacks.Set(o.FreeStacks && !o.NoStacks),
	); err != nil {
		return fmt.Errorf("setting BPF variables: %w", err)
	}
	if err := spec.LoadAndAssign(&t.objs.loaded, nil); err != nil {
		return explainLoad(err)
	}
	if bpf.SharesStack(t.objs.OnProbe) {
		return fmt.Errorf("%s has the threads of a CPU share a stack in BPF programs, which could crash it: nothing is traced; please report it", kernelRelease())
	}
	for _, p := range []link.TracingOptions{
		{Program: t.objs.OnFork}, {Program: t.objs.OnExec}, {Program: t.objs.OnExit},
	} {
		l, err := link.AttachTracing(p)
		if err != nil {
			return fmt.Errorf("attaching to the scheduler's tracepoints: %w", err)
		}
		t.links = append(t.links, l)
	}
	if t.spaces != nil {
		if err := t.spaces.begin(&t.objs, spec); err != nil {
			return err
		}
	}
	if t.ring, err = ringbuf.NewReader(t.objs.Records); err != nil {
		return fmt.Errorf("opening the ring buffer: %w", err)
	}
	return nil
}

// explainLoad turns the kernel's refusal into a line that says what to do about it. What
// the verifier had to say goes to a file.
func explainLoad(err error) error {
	if notPermitted(err) {
		return fmt.Errorf("loading the BPF programs: root lacks CAP_BPF, CAP_PERFMON or CAP_SYS_ADMIN here (give a container --privileged): %w", short(err))
	}
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) {
		return fmt.Errorf("%s does not load ttmem's BPF programs: %w; Linux 5.15 or later is needed: `ttmem doctor` checks this host", kernelRelease(), short(err))
	}
	program, _, _ := strings.Cut(err.Error(), ": load program")
	if i := strings.LastIndexByte(program, ' '); i >= 0 {
		program = program[i+1:]
	}
	log := "could not be saved"
	if f, err := os.CreateTemp("", "ttmem-verifier-*.log"); err == nil {
		fmt.Fprintf(f, "%s\n%+v\n", kernelRelease(), refused)
		log = "is in " + f.Name()
		f.Close()
	}
	return fmt.Errorf("%s refuses ttmem's BPF program %s (%v): its verifier's log %s; please report it with the output of `ttmem doctor`",
		kernelRelease(), program, refused.Cause, log)
}

// pollInterval is how often the ring buffer is looked at when nobody wakes the
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
	swept, counted := now(), uint64(0)
	for {
		wait := pollInterval
		if ctx.Err() != nil {
			wait = 0
			if end == 0 {
				end = now()
			}
		}
		before, drained := now(), false
		t.ring.SetDeadline(time.Now().Add(wait))
		for {
			err := t.ring.ReadInto(&record)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				drained = true
				break
			}
			if err != nil {
				return fmt.Errorf("reading the ring buffer: %w", err)
			}
			t.decoder.decode(record.RawSample)
			if len(t.queue.events) >= 1<<13 {
				break // a busy target must not keep what it did from being shown
			}
		}
		t.takeFound()
		if before-counted > countNs || end != 0 {
			counted = before
			t.countLost()
		}
		t.tellUnknown()
		if drained {
			t.takeLate(before - min(before, holdBackNs))
			if before-swept > sweepNs {
				swept = before
				t.decoder.sweep(max(before, t.queue.released), t.seenPIDs())
			}
		}
		// what a target that goes on does after the end is not waited for
		last := end != 0 && (drained || t.queue.newest() > end+holdBackNs)
		if last {
			t.endLate()
			before = ^uint64(0)
		} else {
			before -= min(before, holdBackNs)
		}
		t.queue.release(before, handle)
		pause()
		if last {
			return nil
		}
	}
}

// forget drops what the kernel side knows of the objects of a process: another
// one may get its id, and have other objects there.
func (t *Tracer) forget(pid int, timeNs uint64, p *traced) {
	t.mu.Lock()
	delete(t.seen, pid)
	delete(t.starts, pid)
	t.forgetLate(pid)
	t.mu.Unlock()
	if t.spaces != nil {
		t.spaces.forget(pid, timeNs)
	}
	if p == nil {
		return // nothing ever came from it
	}
	t.forgetStacks(p.stacks)
	for _, m := range []*ebpf.Map{t.objs.Devices, t.objs.Allocators, t.objs.Programs} {
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

// space has a process's stacks taken, if any are.
func (t *Tracer) space(pid int) {
	if t.spaces != nil {
		t.spaces.changed(pid)
	}
}

func (t *Tracer) view(pid int, generation uint32) *spaceView {
	if t.spaces == nil {
		return nil
	}
	return t.spaces.view(pid, generation)
}

// countLost asks the kernel side what was lost since it was last called.
func (t *Tracer) countLost() {
	for i := range t.lost {
		var n uint64
		if t.objs.Lost.Lookup(uint32(i), &n) == nil && n > t.lost[i] {
			t.unknown[lostCauses[i]] += n - t.lost[i]
			t.lost[i] = n
		}
	}
}

// tellUnknown tells of what was lost.
func (t *Tracer) tellUnknown() {
	for cause, n := range t.unknown {
		t.queue.push(event.Event{Kind: event.Lost, TimeNs: now(), Count: n, Cause: cause})
	}
	clear(t.unknown)
}

// Unfound are errors that name the functions of MarkAt which are in no file that a traced
// process has mapped: to be asked after Run.
func (t *Tracer) Unfound() []error { return t.calls.unfound() }

// Close removes all probes. The traced processes go on as they are.
func (t *Tracer) Close() {
	t.close()
	if t.mappings != nil {
		t.mappings.Interrupt()
		t.watching.Wait()
		t.mappings.Close()
	}
	t.stopWatchingOverwrites()
	t.calls.close()
	if t.spaces != nil {
		t.spaces.close()
	}
	t.mu.Lock() // a library may be withdrawn just now
	for _, l := range t.libraries {
		l.close()
	}
	t.mu.Unlock()
	for _, l := range t.links {
		l.Close()
	}
	if t.ring != nil {
		t.ring.Close()
	}
	t.objs.close()
}
