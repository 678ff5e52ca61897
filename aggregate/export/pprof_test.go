package export

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"ttmem/aggregate/memory"
	"ttmem/e2e/golden"
	"ttmem/tracer/event"
)

func pprofOf(t *testing.T, p *memory.Profile) ([]byte, *profile.Profile) {
	t.Helper()
	var b bytes.Buffer
	_, err := Pprof(&b, p, Options{Begun: begun})
	qt.Assert(t, qt.IsNil(err))
	parsed, err := profile.ParseData(b.Bytes())
	qt.Assert(t, qt.IsNil(err))
	return b.Bytes(), parsed
}

func TestPprofMatchesTheGoldenFile(t *testing.T) {
	_, p := pprofOf(t, smallRun().state.Profile())
	golden.Check(t, "small.pprof.txt", p.String())
}

func TestInlinedFunctionsShareALocation(t *testing.T) {
	r := newRun()
	r.alloc(1, event.DRAM, 100, stackOf(allocator(), main), 0)
	_, p := pprofOf(t, r.state.Profile())
	qt.Assert(t, qt.HasLen(p.Sample, 1))
	locations := p.Sample[0].Location
	qt.Assert(t, qt.HasLen(locations, 4))
	qt.Check(t, qt.Equals(locations[0].Line[0].Function.Name, "demo.py:212 · tt::tt_metal::distributed::MeshBuffer::create")) // the call site
	locations = locations[1:]
	qt.Assert(t, qt.HasLen(locations[0].Line, 2))
	qt.Check(t, qt.Equals(locations[0].Line[0].Function.Name, "tt::tt_metal::GraphTracker::instance"))
	qt.Check(t, qt.Equals(locations[0].Line[1].Function.Name, "tt::tt_metal::BufferImpl::allocate_impl"))
	qt.Check(t, qt.Equals(locations[0].Line[1].Function.SystemName, "_ZN2tt8tt_metal10BufferImpl13allocate_implEv"))
	qt.Check(t, qt.Equals(locations[0].Line[1].Line, 428))
	qt.Check(t, qt.Equals(locations[0].Address, 0x41f2a3))
	qt.Check(t, qt.Equals(locations[0].Mapping.BuildID, metalID))
	qt.Check(t, qt.Equals(locations[2].Mapping.File, "python"))
	qt.Check(t, qt.Equals(locations[2].Address, 0))
}

func TestAFunctionThatIsInlinedAtTheEndOfAStackIsShown(t *testing.T) {
	cut := metal("f", "", 0x10)
	cut.Inlined = true
	r := newRun()
	r.alloc(1, event.DRAM, 100, stackOf(cut), 0)
	_, p := pprofOf(t, r.state.Profile())
	qt.Check(t, qt.Equals(p.Sample[0].Location[0].Line[0].Function.Name, "f"))
}

// TestGoToolPprofReadsIt opens the profile with the real `go tool pprof`.
func TestGoToolPprofReadsIt(t *testing.T) {
	raw, _ := pprofOf(t, smallRun().state.Profile())
	file := filepath.Join(t.TempDir(), "x.pprof")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, raw, 0o644)))
	for _, test := range []struct {
		args []string
		says []string
	}{
		{[]string{"-top"}, []string{"Type: dram_peak_space", "132MB", "File: python3", "tt::tt_metal::GraphTracker::instance (inline)", "[no stack]", "<module>"}},
		{[]string{"-top", "-sample_index=peak_space"}, []string{"Type: peak_space"}},
		{[]string{"-top", "-sample_index=inuse_objects", "-tagfocus=device:1$"}, []string{"Showing nodes accounting for 1, "}},
		{[]string{"-traces", "-tagroot=process,device,region"}, []string{"forward", "L1", "python3"}},
		{[]string{"-raw"}, []string{"libtt_metal.so " + metalID, "alloc_space/bytes", "dram_peak_space/bytes[dflt]"}},
		{[]string{"-peek", "forward", "-sample_index=alloc_space"}, []string{"<module>"}},
	} {
		args := append([]string{"tool", "pprof"}, append(test.args, file)...)
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("go", args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%v: %s", args, &stderr))
		for _, want := range test.says {
			qt.Check(t, qt.IsTrue(strings.Contains(stdout.String(), want)), qt.Commentf("%v: no %q in\n%s", test.args, want, &stdout))
		}
	}
}
