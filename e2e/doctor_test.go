package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/e2e/tracetest"
)

// The doctor shows a library with its release, build ID and fields, and nothing is missing.
func TestDoctor(t *testing.T) {
	for version, size := range map[string]string{"0.81.1": "0x10+0x8", "0.76.0": "0x18"} {
		if !tracetest.Tests(version) {
			continue
		}
		stdout, stderr, status := runTtmem(t, nil, "doctor", "--json", setup(t, version, "3.10").Library)
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
		var d struct {
			V         int
			Libraries []struct {
				Path    string
				Release string
				BuildID string `json:"build_id"`
				Fields  map[string]string
				Probes  map[string]string
				Missing []any
			}
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(stdout), &d)))
		pagetest.CheckSchema(t, "doctor", stdout)
		qt.Check(t, qt.Equals(d.V, 1))
		qt.Assert(t, qt.HasLen(d.Libraries, 1))
		l := d.Libraries[0]
		qt.Check(t, qt.Equals(l.Release, version))
		qt.Check(t, qt.HasLen(l.BuildID, 40))
		qt.Check(t, qt.Equals(l.Fields["size_"], size))
		qt.Check(t, qt.HasLen(l.Missing, 0))
		qt.Check(t, qt.IsTrue(len(l.Probes) > 20))
	}
}

// Tracing works on this host, also with features disabled; their replacements are named
// with their cost.
func TestDoctorHost(t *testing.T) {
	stdout, stderr, status := runTtmem(t, nil, "doctor")
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s%s", stdout, stderr))
	qt.Check(t, qt.StringContains(stdout, "2 of 2 stacks of 8 frames right"))
	qt.Check(t, qt.StringContains(stdout, "Tracing works here."))

	t.Setenv("TTMEM_WITHOUT", "uprobe_multi,direct_map")
	stdout, _, status = runTtmem(t, nil, "doctor")
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.StringContains(stdout, "slower   uprobe_multi            TTMEM_WITHOUT disables it"))
	qt.Check(t, qt.StringContains(stdout, "2 of 2 stacks of 8 frames right"))

	t.Setenv("TTMEM_WITHOUT", "uprobes")
	stdout, _, status = runTtmem(t, nil, "doctor")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(stdout, "Tracing does not work here: BPF programs"))
	_, stderr, status = runTtmem(t, nil, "run", "--", "true")
	qt.Check(t, qt.Equals(status, 125))
	qt.Check(t, qt.HasLen(lines(stderr), 1))
	qt.Check(t, qt.StringContains(stderr, "available: uprobe_multi, direct_map"))
}

// ttmem builds for arm64, where it prints one line that it cannot trace, and shows
// recordings. `make arm64` runs it: everything is compiled for another processor.
func TestOtherProcessors(t *testing.T) {
	if !*tracetest.Long {
		t.Skip("takes minutes to compile: make arm64")
	}
	t.Parallel()
	dir := t.TempDir()
	exe, file := filepath.Join(dir, "ttmem"), filepath.Join(dir, "one.ttmem")
	// without optimization, which takes half of the time of compiling everything for another processor
	build := exec.Command("go", "build", "-trimpath", "-gcflags=all=-N -l", "-o", exe, "ttmem/cmd/ttmem")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=arm64")
	out, err := build.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	const says = "ttmem: arm64: ttmem traces on x86-64 only; it can show recordings here\n"
	for _, args := range [][]string{{"run", "true"}, {"attach", "-p", "1"}, {"top", "--once"}, {"serve"}} {
		cmd := exec.Command("qemu-aarch64", append([]string{exe}, args...)...)
		out, err := cmd.CombinedOutput()
		qt.Check(t, qt.ErrorMatches(err, "exit status (1|125)"), qt.Commentf("%v", args))
		qt.Check(t, qt.Equals(string(out), says), qt.Commentf("%v", args))
	}
	out, _ = exec.Command("qemu-aarch64", exe, "doctor").CombinedOutput()
	qt.Check(t, qt.StringContains(string(out), "Tracing does not work here: processor."))

	under := setup(t, "0.81.1", "3.10").Command(t.Context(), "n150", program(t, "one.py"))
	record := exec.Command(ttmem, append([]string{"run", "-o", file, "--", under.Path}, under.Args[1:]...)...)
	record.Env, record.Dir = testEnviron(under.Env, "n150", dir), dir
	out, err = record.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	here, err := exec.Command(ttmem, "report", file).Output()
	qt.Assert(t, qt.IsNil(err))
	there, err := exec.Command("qemu-aarch64", exe, "report", file).Output()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(there), string(here)))
}
