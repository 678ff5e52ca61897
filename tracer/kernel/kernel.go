// Package kernel loads the kernel side: it detects the features of the running kernel,
// replaces missing ones, and places probes.
// It is not part of ttmem's Go library: it changes without notice.
package kernel

// This file detects optional kernel features and selects their replacements. Each feature
// is tried, never derived from the kernel's version: distributions bring features to older
// versions.

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
)

// The names of optional features in WithoutVariable and in the doctor's report.
const (
	featureUprobeMulti = "uprobe_multi"
	featureDirectMap   = "direct_map"
)

// Optional are the names of the optional features.
var Optional = []string{featureUprobeMulti, featureDirectMap}

// WithoutVariable is the environment variable that disables features, separated by commas,
// so that each fallback can be tried on any kernel.
const WithoutVariable = "TTMEM_WITHOUT"

var errRuledOut = errors.New(WithoutVariable + " disables it")

// without parses the features that the environment disables.
func without() (map[string]bool, error) {
	ruledOut := make(map[string]bool)
	for name := range strings.SplitSeq(os.Getenv(WithoutVariable), ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !slices.Contains(Optional, name):
			return nil, fmt.Errorf("%s=%s: no feature %q; available: %s", WithoutVariable, os.Getenv(WithoutVariable), name, strings.Join(Optional, ", "))
		default:
			ruledOut[name] = true
		}
	}
	return ruledOut, nil
}

// Support is the set of features that the running kernel has and ttmem uses.
type Support struct {
	Uprobes Uprobes
	// memory has the kernel's map of physical memory, if that is used.
	memory bpf.KernelFindDirectMap
	// Spec is the kernel side, adapted to this kernel.
	Spec *ebpf.CollectionSpec
	// types are the kernel's, until Load: reading them takes 20 ms.
	types *btf.Cache
	// why has the reason for each feature that is not used.
	why map[string]string
}

// Detect tries all features concurrently, as each trial waits for the kernel.
func Detect() (*Support, error) {
	ruledOut, err := without()
	if err != nil {
		return nil, err
	}
	spec, err := bpf.LoadKernel()
	if err != nil {
		return nil, fmt.Errorf("reading the BPF object: %w", err)
	}
	k := &Support{Spec: spec, types: btf.NewCache(), why: make(map[string]string)}
	var multi, thread, memory error
	var trying sync.WaitGroup
	try := func(name string, why *error, trial func() error) {
		if ruledOut[name] {
			*why = errRuledOut
			return
		}
		trying.Go(func() { *why = trial() })
	}
	try(featureUprobeMulti, &multi, features.HaveBPFLinkUprobeMulti)
	try(featureUprobeMulti, &thread, tryOtherThread)
	ofSearch := spec.Copy()
	try(featureDirectMap, &memory, func() (err error) {
		k.memory, err = findDirectMap(ofSearch, k.types)
		return err
	})
	trying.Wait()
	k.Uprobes = Uprobes{
		multi: multi == nil, multiOfProcess: multi == nil && thread == nil,
		placed: &placements{list: make(map[*placement]bool)},
	}
	for name, err := range map[string]error{
		featureUprobeMulti: cmp.Or(multi, thread), featureDirectMap: memory,
	} {
		if err != nil {
			k.why[name] = ShortError(err).Error()
		}
	}
	k.Uprobes.prepare(spec)
	for _, m := range spec.Maps {
		if m.InnerMap != nil {
			// Inner maps are created without types. Linux up to 6.1 does not accept them if
			// the pattern for inner maps has types.
			m.InnerMap.Key, m.InnerMap.Value = nil, nil
		}
	}
	return k, nil
}

// tryOtherThread tries whether a uprobe_multi link that is limited to a process sees all of its threads. In
// Linux 6.6 to 6.9 it sees only one, and the kernel looks for any process; since then it refuses one that
// cannot be as invalid. libbpf relies on that, too.
var tryOtherThread = sync.OnceValue(func() error {
	program, err := programOfNothing(ebpf.AttachTraceUprobeMulti)
	if err != nil {
		return err
	}
	defer program.Close()
	exe, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	_, err = exe.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{1}, PID: math.MaxUint32})
	if !errors.Is(err, unix.EINVAL) {
		return errors.New("it sees one thread of a process")
	}
	return nil
})

// programOfNothing loads a program for probes that does nothing.
func programOfNothing(attach ebpf.AttachType) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, AttachType: attach, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
}
