package bpf

// What the object needs of a kernel, derived without one: a change that an older kernel
// would refuse fails here, not on a user's machine.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

const (
	// stackLimit bounds the stack of a chain of calls. The kernel allows 512 bytes; the
	// rest is a margin for other compilers.
	stackLimit = 480
	// callLimit bounds the functions in a chain of calls (MAX_CALL_FRAMES).
	callLimit = 8
	// storageLimit bounds a value in task storage: Linux 6.19 and later allocate it with a
	// header in at most 8 KiB, and return NULL beyond.
	storageLimit = 8000
)

// A function is one of the functions of a program.
type function struct {
	name  string
	depth int // bytes of stack
	calls []string
}

// functionsOf splits a program into its functions, in the kernel's order.
func functionsOf(p *ebpf.ProgramSpec) (list []*function) {
	var offset [11]int // of a register from the frame pointer, where known
	var isFrame [11]bool
	var f *function
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if ins.Symbol() != "" {
			f = &function{name: ins.Symbol()}
			list = append(list, f)
			isFrame = [11]bool{asm.R10: true}
			offset = [11]int{}
		}
		class := ins.OpCode.Class()
		switch {
		case ins.IsFunctionReference():
			f.calls = append(f.calls, ins.Reference())
		case class == asm.LdXClass && isFrame[ins.Src]:
			f.depth = max(f.depth, -offset[ins.Src]-int(ins.Offset))
		case (class == asm.StXClass || class == asm.StClass) && isFrame[ins.Dst]:
			f.depth = max(f.depth, -offset[ins.Dst]-int(ins.Offset))
		}
		switch {
		case class == asm.ALU64Class && ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.RegSource:
			isFrame[ins.Dst], offset[ins.Dst] = isFrame[ins.Src], offset[ins.Src]
		case class == asm.ALU64Class && ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource:
			offset[ins.Dst] += int(ins.Constant)
			if isFrame[ins.Dst] {
				f.depth = max(f.depth, -offset[ins.Dst])
			}
		case class == asm.LdXClass, class == asm.LdClass, class == asm.ALUClass, class == asm.ALU64Class:
			isFrame[ins.Dst] = false
		case ins.OpCode.JumpOp() == asm.Call:
			for r := asm.R0; r <= asm.R5; r++ {
				isFrame[r] = false
			}
		}
	}
	return list
}

// chain is a chain of calls, and the stack that it takes.
type chain struct {
	names []string
	bytes int
}

// deepest returns the chain from a function on that takes most stack, with each frame
// rounded up.
func deepest(functions map[string]*function, name string, round int) chain {
	f := functions[name]
	var best chain
	for _, callee := range f.calls {
		if c := deepest(functions, callee, round); c.bytes > best.bytes {
			best = c
		}
	}
	frame := (max(f.depth, 1) + round - 1) / round * round
	return chain{append([]string{fmt.Sprintf("%s %d", name, f.depth)}, best.names...), frame + best.bytes}
}

// longest returns the number of functions in the longest chain from a function on.
func longest(functions map[string]*function, name string) int {
	n := 0
	for _, callee := range functions[name].calls {
		n = max(n, longest(functions, callee))
	}
	return n + 1
}

func loadSpec(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := LoadKernel()
	qt.Assert(t, qt.IsNil(err))
	return spec
}

func programNames(spec *ebpf.CollectionSpec) []string {
	return slices.Sorted(maps.Keys(spec.Programs))
}

// No chain of calls takes more stack than any kernel allows. Linux up to 6.8 rounds each
// frame up to 32 bytes, later ones to 16.
func TestStackBudget(t *testing.T) {
	spec := loadSpec(t)
	for _, name := range programNames(spec) {
		functions := make(map[string]*function)
		for _, f := range functionsOf(spec.Programs[name]) {
			functions[f.name] = f
		}
		for _, round := range []int{16, 32} {
			c := deepest(functions, name, round)
			t.Logf("rounded to %d: %d bytes of stack: %s", round, c.bytes, strings.Join(c.names, " > "))
			qt.Check(t, qt.IsTrue(c.bytes <= stackLimit), qt.Commentf("%s takes %d bytes of stack, of %d", name, c.bytes, stackLimit))
		}
		n := longest(functions, name)
		qt.Check(t, qt.IsTrue(n <= callLimit), qt.Commentf("%s calls through %d functions, of %d", name, n, callLimit))
	}
}

// An entry of a map without preallocation fits in 32 KiB. For a larger one the kernel needs 64 KiB in one piece, which a
// host that has run for long may not have.
func TestSizesOfEntries(t *testing.T) {
	const most, header = 32 << 10, 64
	specs := loadSpec(t).Maps
	qt.Check(t, qt.Equals(specs["unwinders"].Flags&unix.BPF_F_NO_PREALLOC, unix.BPF_F_NO_PREALLOC))
	for name, m := range specs {
		if size := header + m.KeySize + m.ValueSize; m.Flags&unix.BPF_F_NO_PREALLOC != 0 {
			t.Logf("%s: %d bytes", name, size)
			qt.Check(t, qt.IsTrue(size <= most), qt.Commentf("%s: %d bytes", name, size))
		}
	}
}

// TestStackBudget's result equals that of the running kernel's verifier.
func TestStackDepthEqualsVerifier(t *testing.T) {
	spec := loadSpec(t)
	var vars KernelVariableSpecs
	qt.Assert(t, qt.IsNil(spec.Assign(&vars)))
	// so that no code is dead, which the verifier would remove, but for that of kernels without the direct map
	dead := []string{"copy_block", "same_copies"}
	qt.Assert(t, qt.IsNil(vars.TakeStacks.Set(true)))
	qt.Assert(t, qt.IsNil(vars.FreeStacks.Set(true)))
	qt.Assert(t, qt.IsNil(vars.ReadUses.Set(true)))
	qt.Assert(t, qt.IsNil(vars.DirectMap.Set(uint64(1)<<63)))
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	reported := regexp.MustCompile(`stack depth ([0-9+]+)`)
	for _, name := range programNames(spec) {
		t.Logf("%s: %s", name, c.Programs[name].VerifierLog)
		found := reported.FindStringSubmatch(c.Programs[name].VerifierLog)
		qt.Assert(t, qt.HasLen(found, 2), qt.Commentf("%s", name))
		var computed []string
		for _, f := range functionsOf(spec.Programs[name]) {
			if slices.Contains(dead, f.name) {
				continue
			}
			computed = append(computed, strconv.Itoa((f.depth+7)/8*8))
		}
		qt.Check(t, qt.Equals(strings.Join(computed, "+"), found[1]), qt.Commentf("%s", name))
	}
}

// No program keeps variables on a stack that another thread's hit on the same CPU could
// overwrite.
func TestStackBelongsToThread(t *testing.T) {
	spec := loadSpec(t)
	var vars KernelVariableSpecs
	qt.Assert(t, qt.IsNil(spec.Assign(&vars)))
	qt.Assert(t, qt.IsNil(vars.TakeStacks.Set(true)))
	c, err := ebpf.NewCollection(spec)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	for name, p := range c.Programs {
		info, err := p.Info()
		qt.Assert(t, qt.IsNil(err))
		_, shown := info.JitedInsns()
		qt.Assert(t, qt.IsTrue(shown))
		qt.Check(t, qt.IsFalse(SharesStack(p)), qt.Commentf("%s", name))
	}
	// and would see the other kind
	delete(spec.Maps, "after_probe")
	p := spec.Programs["on_probe"].Copy()
	p.Instructions = slices.Clone(p.Instructions)
	for i := range p.Instructions {
		if ins := &p.Instructions[i]; ins.Reference() == "after_probe" {
			*ins = asm.LoadImm(ins.Dst, 0, asm.DWord).WithMetadata(ins.Metadata).WithReference("")
		} else if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnTailCall {
			*ins = asm.Mov.Imm(asm.R0, 0)
		}
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{"on_probe": p}
	without, err := ebpf.NewCollection(spec)
	qt.Assert(t, qt.IsNil(err))
	defer without.Close()
	if !SharesStack(without.Programs["on_probe"]) {
		t.Log("this kernel has no stacks of CPUs: before 6.13")
	}
}

// Task storage accepts the values on every kernel.
func TestThreadStateFits(t *testing.T) {
	for name, m := range loadSpec(t).Maps {
		if m.Type == ebpf.TaskStorage {
			t.Logf("%s: %d bytes", name, m.ValueSize)
			qt.Check(t, qt.IsTrue(m.ValueSize <= storageLimit), qt.Commentf("%s: %d bytes", name, m.ValueSize))
		}
	}
}

// No thread that the kernel preempts delays the events of others: a program reserves no room in the
// ring buffer that it fills later, and forbids preemption while a record is copied.
func TestRecordsAreWrittenAtOnce(t *testing.T) {
	spec := loadSpec(t)
	copies := 0
	for _, name := range programNames(spec) {
		instructions := spec.Programs[name].Instructions
		for i := range instructions {
			ins := &instructions[i]
			if !ins.IsBuiltinCall() {
				continue
			}
			switch fn := asm.BuiltinFunc(ins.Constant); fn {
			case asm.FnRingbufReserve, asm.FnRingbufReserveDynptr:
				t.Errorf("%s reserves room in the ring buffer: fill the record, and send() it", name)
			case asm.FnRingbufOutput:
				copies++
				forbids := -1
				for k := i - 1; k >= 0 && instructions[k].Symbol() == "" && forbids < 0; k-- {
					if before := &instructions[k]; before.IsKfuncCall() {
						forbids = k
						qt.Check(t, qt.Equals(before.Reference(), "bpf_preempt_disable"), qt.Commentf("%s, before record %d", name, copies))
					}
				}
				qt.Check(t, qt.IsTrue(forbids >= 0), qt.Commentf("%s, record %d", name, copies))
			}
		}
	}
	qt.Check(t, qt.IsTrue(copies > 10))
}

// helperSince is the first Linux with a helper for uprobe programs, or for tracepoints if
// only those use it.
var helperSince = map[asm.BuiltinFunc]string{
	asm.FnTailCall:          "4.2",
	asm.FnSeqWrite:          "5.7",
	asm.FnMapLookupElem:     "3.19",
	asm.FnMapUpdateElem:     "3.19",
	asm.FnMapDeleteElem:     "3.19",
	asm.FnKtimeGetNs:        "4.1",
	asm.FnGetCurrentPidTgid: "4.2",
	asm.FnGetCurrentUidGid:  "4.2",
	asm.FnProbeReadKernel:   "5.5",
	asm.FnProbeReadUser:     "5.5",
	asm.FnProbeReadUserStr:  "5.5",
	asm.FnRingbufOutput:     "5.8",
	asm.FnRingbufQuery:      "5.8",
	asm.FnForEachMapElem:    "5.13",
	asm.FnTaskStorageGet:    "5.12",
	asm.FnGetCurrentTaskBtf: "5.11",
	asm.FnGetAttachCookie:   "5.15",
}

// mapSince is the first Linux with a map type.
var mapSince = map[ebpf.MapType]string{
	ebpf.Hash: "3.19", ebpf.Array: "3.19", ebpf.PerCPUArray: "4.6", ebpf.ArrayOfMaps: "4.12",
	ebpf.LRUHash: "4.10", ebpf.ProgramArray: "4.2", ebpf.RingBuf: "5.8", ebpf.TaskStorage: "5.11",
}

// weakFunctions are optional kernel functions, with the first Linux that has them.
var weakFunctions = map[string]string{"bpf_rdonly_cast": "6.2", "bpf_preempt_disable": "6.10", "bpf_preempt_enable": "6.10"}

// oldest is the oldest supported Linux.
const oldest = "5.15"

// older compares two versions of Linux.
func older(a, b string) bool {
	number := func(v string) (n int) {
		major, minor, _ := strings.Cut(v, ".")
		x, _ := strconv.Atoi(major)
		y, _ := strconv.Atoi(minor)
		return x<<16 | y
	}
	return number(a) < number(b)
}

// The object uses nothing that the oldest kernel lacks, except for optional functions.
func TestHelpersAreInEveryKernel(t *testing.T) {
	spec := loadSpec(t)
	used := make(map[string]string)
	for _, name := range programNames(spec) {
		for i := range spec.Programs[name].Instructions {
			ins := &spec.Programs[name].Instructions[i]
			switch {
			case ins.IsBuiltinCall():
				fn := asm.BuiltinFunc(ins.Constant)
				since, known := helperSince[fn]
				qt.Check(t, qt.IsTrue(known), qt.Commentf("%s uses %v: add the Linux that brought it to helperSince", name, fn))
				qt.Check(t, qt.IsFalse(older(oldest, since)), qt.Commentf("%s uses %v, which came with Linux %s", name, fn, since))
				used[fn.String()] = since
			case ins.IsKfuncCall():
				since, known := weakFunctions[ins.Reference()]
				qt.Check(t, qt.IsTrue(known), qt.Commentf("%s uses the kernel's %s", name, ins.Reference()))
				used[ins.Reference()] = since + ", optional"
			}
		}
	}
	for name, m := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue // global variables
		}
		since, known := mapSince[m.Type]
		qt.Check(t, qt.IsTrue(known), qt.Commentf("%s is a %v: add the Linux that brought it to mapSince", name, m.Type))
		qt.Check(t, qt.IsFalse(older(oldest, since)), qt.Commentf("%s is a %v, which came with Linux %s", name, m.Type, since))
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		t.Logf("%-24s Linux %s", name, used[name])
	}
}
