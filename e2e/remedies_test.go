package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// TestRemediesAreTrue: a program that does what ttmem advises has the peak that was promised, or works with tensors at the
// addresses that were promised, also by the library's own count.
func TestRemediesAreTrue(t *testing.T) {
	t.Parallel()
	for name, prove := range map[string]func(*testing.T){
		"late free": func(t *testing.T) {
			proveAdvice(t, "DRAM", "HELD", "LAST", []string{"remedies.py", "late"}, "changed")
		},
		"decode loop": func(t *testing.T) { proveAdvice(t, "L1", "WIDE", "SLICE", []string{"decode.py"}, "freed") },
		"CNN": func(t *testing.T) {
			proveAdvice(t, "DRAM", "IMAGE", "CONVOLUTION", []string{"remedies.py", "cnn"}, "changed")
		},
		"training step": func(t *testing.T) {
			proveAdvice(t, "DRAM", "ACTIVATION", "BACKWARD", []string{"remedies.py", "training"}, "changed")
		},
		"fragmentation":    proveWhatIfs,
		"circular buffers": proveFree,
		"L1_SMALL":         proveSmallest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prove(t)
		})
	}
}

// advice is what ttmem advise says of a region.
type advice struct {
	Region    string
	PeakBytes uint64 `json:"peak_bytes"`
	Lines     []heldLine
}

// heldLine is a line with buffers that are not used any more at the peak.
type heldLine struct {
	Stack        []event.Frame
	LastUseStack []event.Frame `json:"last_use_stack"`
	Freed        struct {
		PeakBytes uint64 `json:"peak_bytes"`
		Proved    bool
		Reason    string
	}
}

// String is the line as a check that fails shows it.
func (l heldLine) String() string {
	return fmt.Sprintf("%s, %d frames, last used by %s, freed: %+v", name.Of(l.Stack), len(l.Stack), name.Of(l.LastUseStack), l.Freed)
}

// adviceOf runs a program, and returns the advice about a region. A test that fails shows it, with what the program and ttmem
// printed.
func adviceOf(t *testing.T, region string, args ...string) (of advice, out string) {
	t.Helper()
	run := traceOnce(t, setup(t, "0.81.1", "3.10"), "n150", append([]string{program(t, args[0])}, args[1:]...)...)
	var said struct{ Peaks []advice }
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%q: %+v\n%s%s", args, said.Peaks, run.stdout, run.stderr)
		}
	})
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "advise", run.file, "--json"), &said)))
	i := slices.IndexFunc(said.Peaks, func(a advice) bool { return a.Region == region })
	qt.Assert(t, qt.IsTrue(i >= 0))
	return said.Peaks[i], run.stdout
}

// proveAdvice frees the tensors of a line after their last use by another line, each given by its remark.
func proveAdvice(t *testing.T, region, held, last string, program []string, change string) {
	before, out := adviceOf(t, region, program...)
	checkPeak(t, out, before.PeakBytes)
	is := name.AtLine(lineOf(t, program[0], held))
	i := slices.IndexFunc(before.Lines, func(l heldLine) bool { return is(event.StackOf(l.Stack)) })
	qt.Assert(t, qt.IsTrue(i >= 0), qt.Commentf("no line is at %s", lineOf(t, program[0], held)))
	l := before.Lines[i]
	qt.Check(t, qt.IsTrue(l.Freed.Proved), qt.Commentf("%s", l.Freed.Reason))
	qt.Check(t, qt.IsTrue(l.Freed.PeakBytes < before.PeakBytes))
	qt.Check(t, qt.IsTrue(name.AtLine(lineOf(t, program[0], last))(event.StackOf(l.LastUseStack))), qt.Commentf("%s", l))
	after, out := adviceOf(t, region, append(program, change)...)
	qt.Check(t, qt.Equals(after.PeakBytes, l.Freed.PeakBytes))
	checkPeak(t, out, l.Freed.PeakBytes)
}

// checkPeak compares a peak with the library's own count, if the program prints it.
func checkPeak(t *testing.T, out string, peak uint64) {
	t.Helper()
	if strings.Contains(out, "PEAK ") {
		qt.Check(t, qt.StringContains(out, fmt.Sprintf("PEAK %d\n", peak)))
	}
}

// failureWith is what ttmem oom says of a failure.
type failureWith struct {
	WhatIf struct {
		Fits      bool
		Address   uint64
		StaticEnd uint64 `json:"static_region_end"`
		Lowest    uint64 `json:"lowest_l1_address"`
		Reason    string
	} `json:"what_if"`
	Remedy struct{ Flags []string }
}

// failureIn is the only failure of a recording, with changes.
func failureIn(t *testing.T, file string, flags ...string) failureWith {
	t.Helper()
	var said struct{ Failures []failureWith }
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, append([]string{"oom", file, "--json"}, flags...)...), &said)))
	qt.Assert(t, qt.HasLen(said.Failures, 1))
	if len(flags) > 0 {
		qt.Check(t, qt.IsTrue(said.Failures[0].WhatIf.Fits), qt.Commentf("%s", said.Failures[0].WhatIf.Reason))
	}
	return said.Failures[0]
}

// proveWhatIfs: of each change, or on the other board, the tensor that fails is where the replay says.
func proveWhatIfs(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	file := traceOnce(t, env, "n150", program(t, "whatif.py")).file
	qt.Check(t, qt.DeepEquals(failureIn(t, file).Remedy.Flags, []string{"--set", "l1_small_size=0"})) // one of those below
	for name, c := range map[string]struct {
		flags  []string
		board  rig.Board
		change string
	}{
		"move":  {[]string{"--move", lineOf(t, "whatif.py", "WEIGHTS") + ":DRAM"}, "n150", "moved"},
		"free":  {[]string{"--free", lineOf(t, "whatif.py", "WEIGHTS")}, "n150", "freed"},
		"first": {[]string{"--first", lineOf(t, "whatif.py", "ISLAND")}, "n150", "first"},
		"set":   {[]string{"--set", "l1_small_size=0"}, "n150", "small"},
		"on":    {[]string{"--on", "p150"}, "p150", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := runAlone(t, env, c.board, program(t, "whatif.py"), c.change)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(out, fmt.Sprintf("AT %d\n", failureIn(t, file, c.flags...).WhatIf.Address)))
		})
	}
}

// proveFree: with the tensors freed that are in the way of circular buffers, these and the lowest tensor are where the replay says.
func proveFree(t *testing.T) {
	before, _ := recordProgram(t, "0.81.1", "remedies.py", "circular")
	promised := failureIn(t, before, "--free", lineOf(t, "remedies.py", "BIASES")).WhatIf
	after, out := recordProgram(t, "0.81.1", "remedies.py", "circular", "changed")
	qt.Check(t, qt.HasLen(limitsOf(t, after), 0))
	qt.Check(t, qt.StringContains(string(out), fmt.Sprintf("AT %d\n", promised.Lowest)))
	end, is := uint64(0), name.AtLine(lineOf(t, "remedies.py", "SOFTMAX"))
	for _, e := range readEvents(t, after) {
		if e.Kind == event.CBAlloc && is(e.Stack) {
			end = max(end, e.Address+e.SizeBytes)
		}
	}
	qt.Check(t, qt.Equals(end, promised.StaticEnd))
}

// proveSmallest: the program still works with the smallest size that ttmem names, and with less it does not.
func proveSmallest(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	file, _ := recordProgram(t, "0.81.1", "remedies.py", "pools")
	var said struct {
		Smallest []struct {
			Name, Value string
			Proof       struct{ Proved bool }
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "oom", file, "--json"), &said)))
	qt.Assert(t, qt.Equals(said.Smallest[0].Name, "l1_small_size"))
	qt.Check(t, qt.IsTrue(said.Smallest[0].Proof.Proved))
	var size uint64
	_, err := fmt.Sscan(said.Smallest[0].Value, &size)
	qt.Assert(t, qt.IsNil(err))
	for size, works := range map[uint64]bool{size: true, size - 32: false} { // a multiple of 32
		out, err := runAlone(t, env, "n150", program(t, "remedies.py"), "pools", fmt.Sprint(size))
		qt.Check(t, qt.Equals(err == nil && strings.Contains(out, "WORKED"), works), qt.Commentf("with %d: %v\n%s", size, err, out))
	}
}
