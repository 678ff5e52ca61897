package doctor

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/kernel"
)

// The test program's calls and stacks are seen with each fallback.
func TestSelfTestWithEachFallback(t *testing.T) {
	tracetest.NeedsRoot(t)
	for _, names := range append([]string{"", strings.Join(kernel.Optional, ",")}, kernel.Optional...) {
		t.Run("without "+names, func(t *testing.T) {
			t.Setenv(kernel.WithoutVariable, names)
			for _, f := range Features() {
				t.Logf("%s: %s %s", f.Name, f.Detail, f.Instead)
				qt.Check(t, qt.IsTrue(f.OK), qt.Commentf("%s: %s", f.Name, f.Detail))
				if strings.Contains(","+names+",", ","+f.Name+",") {
					qt.Check(t, qt.Not(qt.Equals(f.Instead, "")))
				}
			}
		})
	}
}

// A feature that does not work is not reported as "ok".
func TestSelfTestDetectsFailures(t *testing.T) {
	tracetest.NeedsRoot(t)
	state := func(stack []string) map[string]bool {
		ok := make(map[string]bool)
		for _, f := range selfTest(stack, time.Second) {
			ok[f.Name] = f.OK
		}
		return ok
	}
	t.Run("the programs do not load", func(t *testing.T) {
		t.Setenv(kernel.WithoutVariable, "no such feature")
		qt.Check(t, qt.DeepEquals(state(selftestStack), map[string]bool{"BPF programs": false, "probes": false, "call stacks": false}))
	})
	t.Run("another stack", func(t *testing.T) {
		other := append([]string{"probed", "middle"}, selftestStack[2:]...)
		qt.Check(t, qt.DeepEquals(state(other), map[string]bool{"BPF programs": true, "probes": true, "call stacks": false}))
	})
	t.Run("the probe is not hit", func(t *testing.T) {
		qt.Check(t, qt.DeepEquals(state([]string{"_start"}), map[string]bool{"BPF programs": true, "probes": false, "call stacks": false}))
	})
}

// The committed binary matches the C source.
func TestSelfTestTarget(t *testing.T) {
	source, err := os.ReadFile("selftest.go")
	qt.Assert(t, qt.IsNil(err))
	_, line, _ := strings.Cut(string(source), "//go:generate ")
	line, _, _ = strings.Cut(line, "\n")
	file := filepath.Join(t.TempDir(), "target")
	out, err := exec.Command("sh", "-c", strings.Replace(line, "-o selftest/target", "-o "+file, 1)).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	// linkers differ in other sections
	for _, section := range []string{".text", ".eh_frame"} {
		qt.Check(t, qt.DeepEquals(sectionOf(t, "selftest/target", section), sectionOf(t, file, section)),
			qt.Commentf("%s is stale: run `make generate` and commit", section))
	}
}

func sectionOf(t *testing.T, file, name string) []byte {
	t.Helper()
	f, err := elf.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	data, err := f.Section(name).Data()
	qt.Assert(t, qt.IsNil(err))
	return data
}
