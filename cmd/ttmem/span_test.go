package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// trainingFile is a recording of three steps, each with a mark: forward has two activations and leaks a
// buffer, and backward has a temporary one while they are live. Bytes are of each bank of 12, on two chips.
func trainingFile(t *testing.T) string {
	t.Helper()
	r := newTrainingRun(4242)
	r.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "load", 3))
	for i := range uint64(3) {
		a := r.alloc(event.DRAM, 1024+i, pagetest.Stack("matmul", "Model.forward", 12))
		r.alloc(event.DRAM, 64, pagetest.Stack("add", "Model.forward", 13))
		b := r.alloc(event.L1, 2048, pagetest.Stack("matmul", "Model.forward", 14))
		temporary := r.alloc(event.DRAM, 512, pagetest.Stack("matmul", "backward", 20))
		r.free(temporary)
		r.free(a)
		r.free(b)
		r.add(event.Event{Kind: event.ProgramRun, TID: 4242, ProgramID: 9, Devices: []int{0, 1}, Stack: pagetest.Stack("subtract", "step", 30)})
		r.mark("step")
	}
	return writeEvents(t, "train.ttmem", r.events)
}

// said decodes what a command prints with --json.
func said[T any](t *testing.T, args ...string) (doc T) {
	t.Helper()
	out, errs, status := runOnStreams(t, false, append(args, "--json"))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%v: %s", args, errs))
	pagetest.CheckSchema(t, args[0], out)
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &doc)), qt.Commentf("%v", args))
	return doc
}

type regionPeak struct {
	Region string
	Bytes  uint64
	TimeNs uint64 `json:"time_ns"`
}

type peaksDocument struct {
	FromNs uint64 `json:"from_ns"`
	ToNs   uint64 `json:"to_ns"`
	Within string
	Peaks  []regionPeak
}

// TestPeaksWithinFunctionsAreThoseOfPhases, and lie within the span.
func TestPeaksWithinFunctionsAreThoseOfPhases(t *testing.T) {
	path := trainingFile(t)
	listed := said[struct {
		Phases []struct {
			Calls string
			Peaks []regionPeak
		}
	}](t, "phases", path)
	qt.Assert(t, qt.HasLen(listed.Phases, 4))
	for _, phase := range listed.Phases {
		got := said[peaksDocument](t, "peak", path, "--within", phase.Calls)
		qt.Check(t, qt.Equals(got.Within, phase.Calls))
		bytes := make(map[string]uint64)
		for _, peak := range got.Peaks {
			bytes[peak.Region] = peak.Bytes
			qt.Check(t, qt.IsTrue(peak.TimeNs+1 >= got.FromNs && peak.TimeNs <= got.ToNs), qt.Commentf("%s: %+v", phase.Calls, got))
		}
		for _, peak := range phase.Peaks {
			qt.Check(t, qt.Equals(bytes[peak.Region], peak.Bytes), qt.Commentf("%s of %s", peak.Region, phase.Calls))
		}
	}
}

// TestPeaksOfSpans: what was live before counts, and what was before does not.
func TestPeaksOfSpans(t *testing.T) {
	path := trainingFile(t)
	for args, perBank := range map[string]uint64{
		"":                                 4096 + 1026 + 3*64 + 512,
		"--within forward#1":               4096 + 1024 + 64,
		"--within model.py:14":             4096 + 1026 + 3*64,
		"--within backward#2":              4096 + 1025 + 2*64 + 512,
		"--within backward --to step#1":    4096 + 1024 + 64 + 512,
		"--within backward#1 --from step":  4096 + 1025 + 2*64 + 512,
		"--from begin --to step#1":         4096 + 1024 + 64 + 512,
		"--within step":                    4096 + 3*64,
		"--within forward -p 4242":         4096 + 1026 + 3*64,
		"--from step#2 --within forward#1": 4096 + 1026 + 3*64,
	} {
		got := said[peaksDocument](t, append([]string{"peak", path, "--region", "DRAM"}, strings.Fields(args)...)...)
		qt.Assert(t, qt.HasLen(got.Peaks, 1), qt.Commentf("%s", args))
		qt.Check(t, qt.Equals(got.Peaks[0].Bytes, 12*perBank), qt.Commentf("%s", args))
	}
}

// TestDumpOfASpan lists what was allocated in it and is live at its end.
func TestDumpOfASpan(t *testing.T) {
	path := trainingFile(t)
	for args, want := range map[string]string{
		"--within forward":         "2048 1026 64 64 64",
		"--within forward#2":       "2048 1025 64",
		"--within backward":        "",
		"--from step#1":            "64 64",
		"--from step#1 --to peak":  "1026 512 64 64",
		"--within load":            "4096",
		"--within load --from end": "error",
	} {
		all := append([]string{"dump", path}, strings.Fields(args)...)
		if want == "error" {
			qt.Check(t, qt.ErrorMatches(commandSays(t, all...), ".* did not run from end to end in .*"))
			continue
		}
		got := said[struct {
			Buffers []struct {
				Bytes uint64 `json:"bytes_per_bank"`
			}
		}](t, all...)
		var list []string
		for _, b := range got.Buffers {
			list = append(list, fmt.Sprint(b.Bytes))
		}
		qt.Check(t, qt.Equals(strings.Join(list, " "), want), qt.Commentf("%s", args))
	}
	text, _, _ := runOnStreams(t, false, []string{"dump", path, "--within", "forward#2"})
	qt.Check(t, qt.Matches(text, `(?s)allocated within forward#2 in .*train.ttmem, and live at the end of that\n.*`))
}

// TestOperationsOfCalls: those of all calls count together.
func TestOperationsOfCalls(t *testing.T) {
	path := trainingFile(t)
	for args, runs := range map[string]uint64{"--within step": 3, "--within step --to step#2": 2, "--within step#3": 1, "--within forward": 0} {
		got := said[struct{ Operations []struct{ Runs uint64 } }](t, append([]string{"ops", path}, strings.Fields(args)...)...)
		if runs == 0 {
			qt.Check(t, qt.HasLen(got.Operations, 0))
			continue
		}
		qt.Assert(t, qt.HasLen(got.Operations, 1), qt.Commentf("%s", args))
		qt.Check(t, qt.Equals(got.Operations[0].Runs, runs), qt.Commentf("%s", args))
	}
}

// TestLeaksOfCalls: each call leaves a buffer; the activations of the last one are live at its end, and those
// of the others are not.
func TestLeaksOfCalls(t *testing.T) {
	path := trainingFile(t)
	doc, err := leaksJSON(t, path, "--within", "forward")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(doc.Leaks, 1))
	qt.Check(t, qt.Equals(doc.LeakedCount, 3))
	qt.Check(t, qt.HasLen(doc.Marks, 4))
	text, _, _ := runOnStreams(t, false, []string{"leaks", path, "--within", "forward"})
	qt.Check(t, qt.StringContains(text, "leaked within forward (3 calls, "))
	qt.Check(t, qt.StringContains(text, "grew in 3 of 3 calls of forward, still growing"))
}

// TestDiffOfCalls compares the first and the last one or, of two files, all.
func TestDiffOfCalls(t *testing.T) {
	path := trainingFile(t)
	text, _, status := runOnStreams(t, false, []string{"diff", path, "--within", "forward"})
	qt.Check(t, qt.Equals(status, 0))
	for _, want := range []string{"within forward, the 1st of its calls", "within forward, the 3rd of its calls", "+48 B"} { // two bytes in 12 banks of two chips
		qt.Check(t, qt.StringContains(text, want))
	}
	text, _, _ = runOnStreams(t, false, []string{"diff", path, path, "--within", "forward"})
	qt.Check(t, qt.StringContains(text, "Nothing differs"))
}

// TestLogOfCalls lists the events of each call.
func TestLogOfCalls(t *testing.T) {
	path := trainingFile(t)
	text, _, _ := runOnStreams(t, false, []string{"log", path, "--within", "forward", "--json"})
	qt.Check(t, qt.Equals(strings.Count(text, "\n"), 9))
	text, _, _ = runOnStreams(t, false, []string{"log", path, "--within", "backward#2", "--json"})
	qt.Check(t, qt.Equals(strings.Count(text, "\n"), 4)) // with the frees after it
}

// TestMistakesInSpans have errors of one line that say what to do.
func TestMistakesInSpans(t *testing.T) {
	path := trainingFile(t)
	for args, want := range map[string]string{
		"peak FILE --within forwad":             "--within forwad: it did not run in FILE: did you mean forward.",
		"peak FILE --within train":              "--within train: it did not run in FILE; `ttmem phases FILE` lists functions that did",
		"peak FILE --within forward#4":          "--within forward#4: forward ran 3 times in FILE",
		"peak FILE --within forward#0":          "--within forward#0: numbers begin at 1: forward#1 is the first",
		"ops FILE --within load --from step#1":  "--within load: it did not run from step#1 to end in FILE; .*",
		"peak FILE --from step#2 --to step#1":   "--to step#1 must be later than --from step#2",
		"peak FILE --from end":                  "nothing happened from end to end in FILE: give other moments",
		"ops FILE --from end":                   "nothing happened from end to end in FILE: give other moments",
		"dump FILE --from end":                  "nothing happened from end to end in FILE: give other moments",
		"dump FILE --at step --within forward":  "--at selects a moment, and --from, --to and --within a span: give one of them",
		"diff FILE --within forward#2":          "--within forward#2 is one call: give a second file, or forward to compare .*",
		"diff FILE --within load":               "--within load: it ran once in FILE: give a second file",
		"diff FILE FILE --within load --at end": "--at is one moment: leave it out with --within",
		"peak FILE --within forward -p 9":       "-p 9: no such process in FILE; available: PID 4242",
		"ops FILE --within forward -p 9":        "-p 9: no such process in FILE; available: PID 4242",
		"log FILE --from step -p 9":             "-p 9: no such process in FILE; available: PID 4242",
		"diff FILE --within forward -p 9":       "-p 9: no such process in FILE; available: PID 4242",
		"peak --within forward":                 "--within needs a recording: `ttmem run -o .* -- COMMAND` makes one",
		"leaks -p 1 --within forward":           "--within needs a recording: .*",
		"dump --from warm":                      "--from is a moment of a recording: leave it out for running processes",
	} {
		err := commandSays(t, strings.Fields(strings.ReplaceAll(args, "FILE", path))...)
		qt.Check(t, qt.ErrorMatches(err, strings.ReplaceAll(want, "FILE", path)), qt.Commentf("%s", args))
	}
}

// TestACallThatTheProcessEndsIn ends before that, or before it closes its device: what it allocated is live then.
func TestACallThatTheProcessEndsIn(t *testing.T) {
	r := newTrainingRun(4242)
	r.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "load", 3))
	exit := event.Event{Kind: event.ProcessExit, PID: 4242}
	path := writeEvents(t, "killed.ttmem", append(slices.Clone(r.events), exit))
	r.add(event.Event{Kind: event.DeviceClose, Allocator: 1, Devices: []int{0, 1}})
	closed := writeEvents(t, "closed.ttmem", append(r.events, exit))
	for _, args := range [][]string{{path, "--within", "load"}, {path, "--within", "load", "-p", "4242"}, {closed, "--within", "load"}} {
		text, errs, status := runOnStreams(t, false, append([]string{"dump"}, args...))
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		qt.Check(t, qt.StringContains(text, "model.py:3 load"))
	}
	text, _, _ := runOnStreams(t, false, []string{"dump", path, "--from", "begin", "--to", "peak"})
	qt.Check(t, qt.StringContains(text, "allocated from begin to peak in "))
}
