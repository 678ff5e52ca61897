package kernel

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"ttmem/bpf"
	"ttmem/tracer/place"
)

// Objects are the loaded kernel side.
type Objects struct {
	loaded
	Support *Support // of the kernel that it was loaded for
	// Ring delivers its records.
	Ring *Ring
	// showing are the updates of address spaces that the kernel finishes, and showRoom has a value for each.
	showing  sync.WaitGroup
	showRoom chan struct{}
	// links are the scheduler's tracepoints.
	links []io.Closer
	// taken are the counts that TakeLosses has passed on, and how often it did.
	taken struct{ records, unattributed, times uint64 }
	// forgetting is locked while the programs of a process are being forgotten.
	forgetting sync.Mutex
}

// loaded are the programs and maps that ttmem uses.
type loaded struct {
	bpf.KernelMaps
	OnProbe       *ebpf.Program `ebpf:"on_probe"`
	OnFork        *ebpf.Program `ebpf:"on_fork"`
	OnExec        *ebpf.Program `ebpf:"on_exec"`
	OnExit        *ebpf.Program `ebpf:"on_exit"`
	OnCodeDealloc *ebpf.Program `ebpf:"on_code_dealloc"`
	OnDebugState  *ebpf.Program `ebpf:"on_debug_state"`
	OnEnded       *ebpf.Program `ebpf:"on_ended"`
	OnChange      *ebpf.Program `ebpf:"change_process"`
	ListPrograms  *ebpf.Program `ebpf:"list_programs"`

	LostRecords      *ebpf.Variable `ebpf:"lost_records"`
	LostUnattributed *ebpf.Variable `ebpf:"lost_unattributed"`
	LostTaken        *ebpf.Variable `ebpf:"lost_taken"`
	Forgotten        *ebpf.Variable `ebpf:"forget_programs"`
}

// LoadOptions configure the kernel side.
type LoadOptions struct {
	// OnlyListed traces the processes in the list, and no others.
	OnlyListed bool
	// Stacks records call stacks, and FreeStacks those of frees as well.
	Stacks, FreeStacks bool
	// Uses reads what programs use when they run.
	Uses bool
	// RingBytes is the size of the ring buffer; 0: the usual one.
	RingBytes uint32
}

// SetVariables sets what programs of k.Spec find set before they are loaded.
func (k *Support) SetVariables(o LoadOptions) error {
	vars := bpf.KernelVariableSpecs{}
	if err := k.Spec.Assign(&vars); err != nil {
		return fmt.Errorf("reading the BPF object: %w", err)
	}
	if err := errors.Join(
		vars.OnlyListed.Set(o.OnlyListed), vars.OwnTgid.Set(uint32(os.Getpid())),
		vars.DirectMap.Set(k.memory.Found), vars.FrameMask.Set(k.memory.Mask), vars.TableLevels.Set(k.memory.Levels),
		vars.StackSeed.Set(rand.Uint64()), vars.TakeStacks.Set(o.Stacks), vars.FreeStacks.Set(o.FreeStacks && o.Stacks),
		vars.ReadUses.Set(o.Uses),
	); err != nil {
		return fmt.Errorf("setting BPF variables: %w", err)
	}
	return nil
}

// Load loads the kernel side and attaches it to the scheduler's tracepoints.
func (k *Support) Load(o LoadOptions) (_ *Objects, err error) {
	if err := k.SetVariables(o); err != nil {
		return nil, err
	}
	if o.RingBytes > 0 {
		k.Spec.Maps[bpf.KernelMapRecords].MaxEntries = o.RingBytes
	}
	objs := &Objects{Support: k, showRoom: make(chan struct{}, maxShowing)}
	err = k.Spec.LoadAndAssign(&objs.loaded, &ebpf.CollectionOptions{Cache: k.types})
	k.types = nil
	if err != nil {
		return nil, explainLoad(err)
	}
	defer func() {
		if err != nil {
			objs.Close()
		}
	}()
	if bpf.SharesStack(objs.OnProbe) {
		return nil, fmt.Errorf("%s shares one BPF stack between the threads of a CPU, so tracing could crash it; please report this", kernelRelease())
	}
	for _, p := range []link.TracingOptions{
		{Program: objs.OnFork}, {Program: objs.OnExec}, {Program: objs.OnExit},
	} {
		l, err := link.AttachTracing(p)
		if err != nil {
			return nil, fmt.Errorf("attaching to the scheduler's tracepoints: %w", err)
		}
		objs.links = append(objs.links, l)
	}
	if objs.Ring, err = newRing(objs.Records); err != nil {
		return nil, fmt.Errorf("opening the ring buffer: %w", err)
	}
	return objs, nil
}

// Close unloads the kernel side.
func (o *Objects) Close() {
	for _, l := range o.links {
		l.Close()
	}
	if o.Ring != nil {
		o.Ring.Close()
	}
	o.showing.Wait()
	o.KernelMaps.Close()
	for _, p := range []*ebpf.Program{o.OnProbe, o.OnFork, o.OnExec, o.OnExit, o.OnCodeDealloc, o.OnDebugState, o.OnEnded, o.OnChange, o.ListPrograms} {
		p.Close()
	}
}

// explainLoad turns an error from the kernel into one line with a hint. The verifier's log
// goes to a file.
func explainLoad(err error) error {
	if NotPermitted(err) {
		return fmt.Errorf("loading the BPF programs: root lacks CAP_BPF, CAP_PERFMON or CAP_SYS_ADMIN here (give a container --privileged): %w", ShortError(err))
	}
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) {
		return fmt.Errorf("%s does not load ttmem's BPF programs: %w; Linux 5.15 or later is needed: `ttmem doctor` checks this host", kernelRelease(), ShortError(err))
	}
	program, _, _ := strings.Cut(err.Error(), ": load program")
	if i := strings.LastIndexByte(program, ' '); i >= 0 {
		program = program[i+1:]
	}
	log := "could not be saved"
	if f, err := place.Temporary("ttmem-verifier-*.log"); err == nil {
		fmt.Fprintf(f, "%s\n%+v\n", kernelRelease(), refused)
		log = "is in " + f.Name()
		f.Close()
	}
	return fmt.Errorf("%s refuses ttmem's BPF program %s (%v): its verifier's log %s; please report it with the output of `ttmem doctor`",
		kernelRelease(), program, refused.Cause, log)
}
