package bpf

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
)

// TestLoad checks that the kernel accepts the committed programs.
func TestLoad(t *testing.T) {
	spec, err := LoadKernel()
	qt.Assert(t, qt.IsNil(err))
	// else the verifier would remove the unwinder
	var vars KernelVariableSpecs
	qt.Assert(t, qt.IsNil(spec.Assign(&vars)))
	qt.Assert(t, qt.IsNil(vars.TakeStacks.Set(true)))
	qt.Assert(t, qt.IsNil(vars.FreeStacks.Set(true)))
	qt.Assert(t, qt.IsNil(vars.ReadUses.Set(true)))
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%+v", refused)
	}
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	for name, p := range c.Programs {
		t.Logf("%s: %s", name, p.VerifierLog)
	}
}

// The committed bindings and object match the C source. It needs the pinned clang; `make
// test` installs it.
func TestGenerated(t *testing.T) {
	gen, err := os.ReadFile("gen.go")
	qt.Assert(t, qt.IsNil(err))
	_, line, _ := strings.Cut(string(gen), "//go:generate ")
	line, _, _ = strings.Cut(line, "\n")
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", strings.Replace(line, "bpf2go", "bpf2go -output-dir "+dir, 1))
	cmd.Env = append(os.Environ(), "GOPACKAGE=bpf")
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	committed, err := filepath.Glob("kernel_*")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(committed, 2))
	for _, name := range committed {
		want, err := os.ReadFile(name)
		qt.Assert(t, qt.IsNil(err))
		got, err := os.ReadFile(filepath.Join(dir, name))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(bytes.Equal(got, want)), qt.Commentf("%s is stale: run `make generate` and commit", name))
	}
}
