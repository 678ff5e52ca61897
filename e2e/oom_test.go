package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// failureSaid is a failure in `ttmem oom --json`.
type failureSaid struct {
	TimeNs                uint64 `json:"time_ns"`
	Reason                string
	TooLarge              bool `json:"too_large"`
	Region                string
	Devices               []int
	SizeBytes             uint64 `json:"size_bytes"`
	Banks                 uint64
	NeededBytesPerBank    uint64  `json:"needed_bytes_per_bank"`
	CapacityBytesPerBank  *uint64 `json:"capacity_bytes_per_bank"`
	AllocatedBytesPerBank *uint64 `json:"allocated_bytes_per_bank"`
	FreeBytesPerBank      *uint64 `json:"free_bytes_per_bank"`
	LargestFreeBlockBytes *uint64 `json:"largest_free_block_bytes"`
	ProgramID             *uint64 `json:"program_id"`
	LowestL1Address       uint64  `json:"lowest_l1_address"`
	StaticRegionEnd       uint64  `json:"static_region_end"`
	Message, Name         string
	Blocking              *struct {
		BytesPerBank uint64 `json:"bytes_per_bank"`
		Buffers      uint64
	}
	Blockers, Holders []blameSaid
	Stack             []event.Frame
}

type blameSaid struct {
	BytesPerBank uint64 `json:"bytes_per_bank"`
	Buffers      uint64
	Stack        []event.Frame
}

// passes reports whether a Python function is in the stack.
func passes(stack []event.Frame, function string) bool {
	return slices.ContainsFunc(stack, func(f event.Frame) bool { return f.Kind == event.Python && f.Name == function })
}

// oomOf runs ttmem oom on a recording.
func oomOf(t *testing.T, dir, file string) (failures []failureSaid) {
	t.Helper()
	cmd := exec.Command(ttmem, "oom", "--json", "-n", "0", file)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", &errs))
	var said struct {
		Failures []failureSaid
		Lost     map[string]uint64
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(out, &said)))
	qt.Check(t, qt.HasLen(said.Lost, 0))
	return said.Failures
}

// recordOOM records oom.py and returns the program's exit status.
func recordOOM(t *testing.T, version, python string, board rig.Board, args ...string) (dir string, status int) {
	t.Helper()
	env := setup(t, version, python)
	under := env.Command(t.Context(), board, append([]string{program(t, "oom.py")}, args...)...)
	dir = t.TempDir()
	cmd := exec.Command(ttmem, append([]string{"run", "-o", filepath.Join(dir, "oom.ttmem"), "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(under.Env, board, dir), dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNotNil(cmd.ProcessState), qt.Commentf("%v", err))
	t.Logf("%s", out)
	return dir, cmd.ProcessState.ExitCode()
}

// The library's own figures.
var (
	askedSaid = regexp.MustCompile(`allocate (\d+) B (\w+) buffer across (\d+) banks, where each bank needs to store (\d+) B`)
	bankSaid  = regexp.MustCompile(`bank size is (\d+) B`)
	freeSaid  = regexp.MustCompile(`allocated: (\d+) B, free: (\d+) B, largest free block: (\d+) B`)
	clashSaid = regexp.MustCompile(`in program (\d+) clash with L1 buffers .*L1 buffer allocated at (\d+) and static \w+ buffer region ends at (\d+)`)
)

// figures parses the numbers that the expression matches.
func figures(t *testing.T, of *regexp.Regexp, text string) (list []uint64) {
	t.Helper()
	found := of.FindStringSubmatch(text)
	for _, s := range found[min(1, len(found)):] {
		if n, err := strconv.ParseUint(s, 10, 64); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// Each kind of failure is reported with the library's own figures, and names the planted
// line that is in the way.
func TestOOM(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, python string
		board           rig.Board
		// clashes is true if the release checks programs on the mock device
		clashes bool
	}{
		{"0.81.1", "3.12", "n150", true},
		{"0.76.0", "3.10", "n150", true},
		{"0.72.0", "3.10", "n150", false},
		{"0.68.0", "3.10", "n150", false},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			t.Parallel()
			dir, status := recordOOM(t, c.version, c.python, c.board)
			qt.Assert(t, qt.Equals(status, 0))
			failures := oomOf(t, dir, "oom.ttmem")
			var reasons []string
			for i := range failures {
				f := &failures[i]
				reasons = append(reasons, f.Region+" "+f.Reason)
				qt.Check(t, qt.DeepEquals(f.Devices, []int{0}))
				checkFigures(t, f)
			}
			want := []string{"L1 out_of_memory", "L1 fragmented", "L1 out_of_memory", "L1_SMALL out_of_memory", "DRAM out_of_memory"}
			if c.clashes {
				want = append(want, "CB static_clash")
			}
			qt.Assert(t, qt.DeepEquals(reasons, want))
			qt.Check(t, qt.IsTrue(failures[0].TooLarge))
			qt.Check(t, qt.IsNil(failures[0].Blocking))
			for i, planted := range []string{1: "cache", 2: "weights", 3: "small", 4: "dram", 5: "fill"} {
				if planted == "" || i >= len(failures) {
					continue
				}
				blockers := failures[i].Blockers
				qt.Assert(t, qt.IsTrue(len(blockers) > 0), qt.Commentf("failure %d", i))
				qt.Check(t, qt.IsTrue(passes(blockers[0].Stack, planted)), qt.Commentf("failure %d: %v", i, blockers[0].Stack))
				if i != 2 {
					qt.Check(t, qt.HasLen(blockers, 1), qt.Commentf("failure %d", i))
				}
			}
			// if freeing three tiny tensors makes room, nothing else is named
			qt.Check(t, qt.Equals(failures[1].Blocking.Buffers, 3))
			qt.Check(t, qt.IsTrue(passes(failures[1].Holders[0].Stack, "weights")))
			if c.clashes {
				qt.Check(t, qt.StringContains(failures[5].Name, "ttnn.softmax"))
			}
		})
	}
}

// checkFigures compares a failure with the library's message.
func checkFigures(t *testing.T, f *failureSaid) {
	t.Helper()
	if f.Reason == "static_clash" {
		qt.Assert(t, qt.IsNotNil(f.ProgramID))
		qt.Check(t, qt.DeepEquals([]uint64{*f.ProgramID, f.LowestL1Address, f.StaticRegionEnd}, figures(t, clashSaid, f.Message)))
		return
	}
	qt.Assert(t, qt.IsNotNil(f.FreeBytesPerBank))
	asked := []uint64{f.SizeBytes, f.Banks, f.NeededBytesPerBank}
	qt.Check(t, qt.DeepEquals(asked, figures(t, askedSaid, f.Message)), qt.Commentf("%s", f.Message))
	qt.Check(t, qt.StringContains(f.Message, " B "+f.Region+" buffer"))
	qt.Check(t, qt.DeepEquals([]uint64{*f.CapacityBytesPerBank}, figures(t, bankSaid, f.Message)), qt.Commentf("%s", f.Message))
	free := []uint64{*f.AllocatedBytesPerBank, *f.FreeBytesPerBank, *f.LargestFreeBlockBytes}
	qt.Check(t, qt.DeepEquals(free, figures(t, freeSaid, f.Message)), qt.Commentf("%s", f.Message))
}

// The failure that ended a program is reported, and so is one just before it was killed.
func TestOOMOfDyingProgram(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]int{"raise": 1, "kill": 128 + 9} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir, status := recordOOM(t, "0.81.1", "3.10", "n150", how)
			qt.Check(t, qt.Equals(status, want))
			failures := oomOf(t, dir, "oom.ttmem")
			qt.Assert(t, qt.HasLen(failures, 7))
			last := &failures[6]
			qt.Check(t, qt.Equals(last.Reason, "out_of_memory"))
			checkFigures(t, last)
			qt.Check(t, qt.IsTrue(passes(last.Blockers[0].Stack, "weights") || passes(last.Blockers[0].Stack, "fill")))
			page, err := exec.Command(ttmem, "oom", "-n", "1", filepath.Join(dir, "oom.ttmem")).Output()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.StringContains(string(page), "L1: not enough free memory"))
			for line := range strings.Lines(string(page)) {
				qt.Check(t, qt.IsTrue(len([]rune(strings.TrimRight(line, "\n"))) <= 80 || strings.Contains(line, dir)), qt.Commentf("%s", line))
			}
		})
	}
}

// Circular buffers that overlapped a tensor were never placed, and are no peak.
func TestUnplacedCircularBuffersAreNoPeak(t *testing.T) {
	t.Parallel()
	dir, status := recordOOM(t, "0.81.1", "3.10", "n150")
	qt.Assert(t, qt.Equals(status, 0))
	qt.Assert(t, qt.IsTrue(slices.ContainsFunc(oomOf(t, dir, "oom.ttmem"), func(f failureSaid) bool { return f.Reason == "static_clash" })))
	out, err := exec.Command(ttmem, "peak", "--json", "--region", "L1", filepath.Join(dir, "oom.ttmem")).Output()
	qt.Assert(t, qt.IsNil(err))
	var page struct {
		Peaks []struct {
			Bytes    uint64 `json:"bytes"`
			Capacity uint64 `json:"capacity_bytes"`
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(out, &page)))
	qt.Assert(t, qt.HasLen(page.Peaks, 1))
	peak := page.Peaks[0]
	qt.Check(t, qt.IsTrue(peak.Bytes > peak.Capacity/2 && peak.Bytes <= peak.Capacity), qt.Commentf("%+v", peak))
}

func TestOOMWithoutFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	under := setup(t, "0.81.1", "3.10").Command(t.Context(), "n150", program(t, "one.py"))
	cmd := exec.Command(ttmem, append([]string{"oom", "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(string(out), "No allocation failed in the command."))
}
