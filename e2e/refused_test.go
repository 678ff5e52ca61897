package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// limitSaid is a failure in `ttmem oom --json` that is not an allocator's.
type limitSaid struct {
	TimeNs         uint64 `json:"time_ns"`
	Reason         string
	Region         string
	ProgramID      *uint64 `json:"program_id"`
	NeededBytes    uint64  `json:"needed_bytes"`
	AvailableBytes uint64  `json:"available_bytes"`
	Setting        struct {
		Name  string
		Bytes uint64
	}
	ClearProgramCache blameSaid `json:"clear_program_cache"`
	Message, Name     string
	Blockers, Holders []blameSaid
	Stack             []event.Frame
}

// limitsOf runs ttmem oom on a recording, and returns all failures in order.
func limitsOf(t *testing.T, file string) (all []limitSaid) {
	t.Helper()
	var said struct {
		Failures          []limitSaid
		OperationFailures []limitSaid `json:"operation_failures"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "oom", "--json", "-n", "0", file), &said)))
	all = slices.Concat(said.Failures, said.OperationFailures)
	slices.SortStableFunc(all, func(a, b limitSaid) int { return int(a.TimeNs) - int(b.TimeNs) })
	return all
}

func output(t *testing.T, args ...string) []byte {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command(ttmem, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", &errs))
	return out
}

// recordProgram records a program, which has to end well.
func recordProgram(t *testing.T, version, name string, args ...string) (file string, out []byte) {
	t.Helper()
	env := setup(t, version, "3.10")
	under := env.Command(t.Context(), "n150", append([]string{program(t, name)}, args...)...)
	dir := t.TempDir()
	file = filepath.Join(dir, "run.ttmem")
	cmd := exec.Command(ttmem, append([]string{"run", "-o", file, "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	if checkReplay(t, readEvents(t, file)); t.Failed() {
		t.Logf("%s", out)
	}
	return file, out
}

// figuresOf are the figures of the library's texts: what was needed, and what there was.
var figuresOf = map[string]*regexp.Regexp{
	"static_too_large":        regexp.MustCompile(`grow to (\d+) B which is beyond max L1 size of (\d+) B`),
	"static_clash":            regexp.MustCompile(`allocated at (\d+) and static \w+ buffer region ends at (\d+)`),
	"trace_region_too_small":  regexp.MustCompile(`of size (\d+)B on .* only (\d+)B`),
	"kernel_config_too_small": regexp.MustCompile(`Program size \((\d+)\) .* buffer \((\d+)\)`),
	"operation_refused":       regexp.MustCompile(`(\d+) (?:B|bytes|is larger).*?(\d+)(?: B| bytes|$)`),
}

// TestEveryFailureIsTold: each exception that leaves an operation is a failure, with its kind, the figures
// of its text and its line, and in order.
func TestEveryFailureIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version                  string
		static, traceBytes, hogs int
		want                     []string
	}{
		{"0.81.1", 2097152, 4096, 78, []string{
			"static_too_large", "static_too_large", "operation_refused", "operation_failed", "operation_refused",
			"trace_region_too_small", "trace_region_too_small", "operation_refused", "operation_refused", "kernel_config_too_small",
		}},
		{"0.76.0", 1501184, 2048, 79, []string{
			"static_too_large", "static_too_large", "static_too_large", "operation_failed", "static_clash",
			"trace_region_too_small", "trace_region_too_small", "trace_region_too_small", "trace_region_too_small", "operation_refused", "operation_refused", "kernel_config_too_small",
		}},
		{"0.66.0", 4194304, 4096, 70, []string{
			"static_too_large", "static_too_large", "static_too_large", "operation_failed", "static_clash",
			"trace_region_too_small", "trace_region_too_small", "operation_refused", "operation_refused", "kernel_config_too_small",
		}},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(c.version, func(t *testing.T) {
			t.Parallel()
			file, out := recordProgram(t, c.version, "refused.py", fmt.Sprint(c.static), fmt.Sprint(c.traceBytes), fmt.Sprint(c.hogs))
			var threw []struct {
				Line int
				Text string
			}
			for line := range strings.Lines(string(out)) {
				if text, ok := strings.CutPrefix(line, "THREW "); ok {
					threw = append(threw, struct {
						Line int
						Text string
					}{})
					qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), &threw[len(threw)-1])))
				}
			}
			failures := limitsOf(t, file)
			qt.Assert(t, qt.HasLen(failures, len(threw)))
			var kinds []string
			for i, f := range failures {
				kinds = append(kinds, f.Reason)
				about := qt.Commentf("%s: %s", f.Name, threw[i].Text)
				first, _, _ := strings.Cut(threw[i].Text, "\n")
				qt.Check(t, qt.StringContains(f.Message, first))
				qt.Check(t, qt.IsTrue(slices.ContainsFunc(f.Stack, func(s event.Frame) bool {
					return s.Kind == event.Python && strings.HasSuffix(s.File, "refused.py") && s.Line == threw[i].Line
				})), about)
				if f.Reason == "operation_failed" || strings.HasPrefix(first, "Reserved size") { // without figures
					continue
				}
				want := figures(t, figuresOf[f.Reason], threw[i].Text)
				if f.Reason == "static_clash" { // the tensor comes first
					slices.Reverse(want)
				}
				qt.Check(t, qt.DeepEquals([]uint64{f.NeededBytes, f.AvailableBytes}, want), about)
				checkRemedy(t, &f)
			}
			qt.Check(t, qt.DeepEquals(kinds, c.want))
			checkRefusedRuns(t, file)
			qt.Check(t, qt.StringContains(string(output(t, "report", file)), "failed"))
			ops := string(output(t, "ops", "--json", "-n", "0", file))
			for _, at := range threw { // they only failed
				qt.Check(t, qt.StringContains(ops, fmt.Sprintf("refused.py:%d ", at.Line)))
			}
		})
	}
}

// checkRemedy checks what a failure says to set or to free.
func checkRemedy(t *testing.T, f *limitSaid) {
	t.Helper()
	about := qt.Commentf("%s: %+v", f.Message, f.Setting)
	switch f.Reason {
	case "static_too_large": // nothing
		qt.Check(t, qt.Equals(f.Setting.Name, ""), about)
		qt.Check(t, qt.HasLen(f.Blockers, 0), about)
		qt.Check(t, qt.HasLen(f.Holders, 0), about)
	case "trace_region_too_small":
		qt.Check(t, qt.Equals(f.Setting.Name, "trace_region_size"), about)
		qt.Check(t, qt.IsTrue(f.Setting.Bytes >= f.NeededBytes), about)
		kept := uint64(0)
		for _, h := range f.Holders {
			kept += h.Buffers
		}
		qt.Check(t, qt.Equals(kept, f.AvailableBytes/1024), about) // each trace is 1 KiB
	case "kernel_config_too_small":
		qt.Check(t, qt.Equals(f.Setting.Name, "worker_l1_size"), about)
	case "operation_refused":
		if strings.Contains(f.Message, "Worker L1 size") {
			qt.Check(t, qt.Equals(f.Setting.Name, "worker_l1_size"), about)
			qt.Check(t, qt.Equals(f.Setting.Bytes, f.AvailableBytes), about)
		}
		if strings.Contains(f.Message, "LayerNorm") {
			qt.Assert(t, qt.HasLen(f.Blockers, 1), about)
			qt.Check(t, qt.Equals(f.Holders[0].Buffers, 78), about)
		}
	}
}

// checkRefusedRuns checks that a failure that refuses a program comes after the program's run, if it was
// enqueued, on the same thread: no run follows that the library refused.
func checkRefusedRuns(t *testing.T, file string) {
	t.Helper()
	type logged struct {
		Kind, Region, Reason string
		TID                  int
		ProgramID            uint64 `json:"program_id"`
	}
	ran, refused := make(map[int]uint64), make(map[uint64]bool)
	for line := range strings.Lines(string(output(t, "log", "--json", file))) {
		var e logged
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &e)))
		switch {
		case e.Kind == "program_run":
			ran[e.TID] = e.ProgramID
			qt.Check(t, qt.IsFalse(refused[e.ProgramID]), qt.Commentf("%s", line))
		case e.Kind == "alloc_failed" && (e.Region == "CB" || e.Region == "KERNEL"):
			refused[e.ProgramID] = true
			if id, ok := ran[e.TID]; ok { // else it was compiled before it was to be enqueued
				qt.Check(t, qt.Equals(id, e.ProgramID), qt.Commentf("%s", line))
			}
			delete(ran, e.TID)
		}
	}
	qt.Check(t, qt.IsTrue(len(refused) > 0))
}

// TestTheSettingThatWouldDo: with the size that `oom` names, what failed fits.
func TestTheSettingThatWouldDo(t *testing.T) {
	t.Parallel()
	const version = "0.81.1"
	fit := func(size uint64) (first, after int, f limitSaid) {
		file, out := recordProgram(t, version, "small.py", fmt.Sprint(size))
		_, text, ok := strings.Cut(string(out), "FIT ")
		qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%s", out))
		_, err := fmt.Sscan(text, &first, &after)
		qt.Assert(t, qt.IsNil(err))
		all := limitsOf(t, file)
		qt.Assert(t, qt.HasLen(all, 1))
		return first, after, all[0]
	}
	first, after, f := fit(2048)
	qt.Check(t, qt.Equals(after, 2)) // device.clear_program_cache() helps
	qt.Check(t, qt.IsTrue(f.ClearProgramCache.BytesPerBank > 1024), qt.Commentf("%+v", f))
	qt.Assert(t, qt.Equals(f.Setting.Name, "l1_small_size"))
	more, _, next := fit(f.Setting.Bytes)
	qt.Check(t, qt.IsTrue(more > first || next.Name != f.Name || next.Setting.Bytes > f.Setting.Bytes), qt.Commentf("%d of %d, %+v", more, first, next))
}
