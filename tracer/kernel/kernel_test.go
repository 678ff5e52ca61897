package kernel

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
)

func TestDisablingUnknownFeature(t *testing.T) {
	t.Setenv(WithoutVariable, "direct_map, uprobe_multi ,")
	ruledOut, err := without()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(ruledOut, map[string]bool{"direct_map": true, "uprobe_multi": true}))
	t.Setenv(WithoutVariable, "direct_map,uprobes")
	_, err = without()
	qt.Check(t, qt.ErrorMatches(err, `TTMEM_WITHOUT=direct_map,uprobes: no feature "uprobes"; available: uprobe_multi, direct_map`))
}

// The error is one line that names the kernel and the program, and the verifier's log is in
// a file.
func TestVerifierRefusal(t *testing.T) {
	tracetest.NeedsRoot(t)
	t.Setenv("TMPDIR", t.TempDir())
	var objs struct {
		Wrong *ebpf.Program `ebpf:"wrong"`
	}
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"wrong": {
		Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{asm.LoadMem(asm.R0, asm.R1, 4096, asm.DWord), asm.Return()},
	}}}
	err := explainLoad(spec.LoadAndAssign(&objs, nil))
	qt.Assert(t, qt.ErrorMatches(err, "Linux .* refuses ttmem's BPF program wrong .*log is in .*please report it.*"))
	qt.Check(t, qt.Equals(strings.Count(err.Error(), "\n"), 0))
	_, path, _ := strings.Cut(err.Error(), "log is in ")
	path, _, _ = strings.Cut(path, ";")
	log, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(log), "invalid bpf_context access"))
	qt.Check(t, qt.StringContains(string(log), kernelRelease()))
}

func TestKernelRefusal(t *testing.T) {
	err := explainLoad(fmt.Errorf("map threads: map create: %w", unix.EINVAL))
	qt.Check(t, qt.ErrorMatches(err, "Linux .* does not load ttmem's BPF programs: map threads: map create: invalid argument; Linux 5.15 or later is needed: `ttmem doctor` checks this host"))
	err = explainLoad(fmt.Errorf("map threads: map create: %w", unix.EPERM))
	qt.Check(t, qt.ErrorIs(err, unix.EPERM))
	qt.Check(t, qt.ErrorMatches(err, ".*CAP_BPF.*"))
}
