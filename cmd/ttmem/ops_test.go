package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// opsRecording has three runs of one operation, each a second after the last, with a mark after
// the first; another process runs one more at the end.
func opsRecording(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	f, err := os.Create("model.ttmem")
	qt.Assert(t, qt.IsNil(err))
	w, err := recording.NewWriter(f, recording.NewHeader())
	qt.Assert(t, qt.IsNil(err))
	now := uint64(1e9)
	write := func(e event.Event) {
		e.TimeNs = now
		w.Add(&e)
	}
	step := pagetest.At("ttnn.add", 70)
	write(event.Event{Kind: event.ProcessStart, PID: 7, Start: &event.Start{Command: "python model.py"}})
	write(event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}, Open: &event.Open{Capacities: pagetest.Capacities}})
	write(event.Event{Kind: event.CBAlloc, Region: event.CB, PID: 7, ProgramID: 1, Devices: []int{0}, Address: 0x8000, SizeBytes: 1024, Cores: []event.CoreRange{{}}, StaticKind: event.CircularBuffer})
	for i := range uint64(3) {
		write(event.Event{Kind: event.Alloc, PID: 7, BufferID: i, Allocator: 1, Devices: []int{0}, Region: event.L1, Address: 0x10000 - i*1024, BytesPerBank: 1024, Banks: 64})
		write(event.Event{Kind: event.ProgramRun, PID: 7, ProgramID: 1, Devices: []int{0}, Stack: step})
		if i == 0 {
			write(event.Event{Kind: event.Mark, Cause: "warm"})
		}
		now += 1e9
	}
	write(event.Event{Kind: event.ProcessStart, PID: 8, Start: &event.Start{Command: "python other.py"}})
	write(event.Event{Kind: event.ProgramRun, PID: 8, ProgramID: 1, Devices: []int{0}, Stack: pagetest.At("ttnn.relu", 80)})
	qt.Assert(t, qt.IsNil(w.Close(recording.End{TimeNs: now})))
	qt.Assert(t, qt.IsNil(f.Close()))
}

// TestTheLogListsRunsOnRequest: there are too many of them to be in every list for people.
func TestTheLogListsRunsOnRequest(t *testing.T) {
	opsRecording(t)
	all, _ := logOf(t, "model.ttmem", logOptions{}, page.Layout{})
	qt.Check(t, qt.IsFalse(strings.Contains(all, "program_run")))
	runs, _ := logOf(t, "model.ttmem", logOptions{kinds: []string{"program_run"}}, page.Layout{})
	qt.Check(t, qt.Equals(strings.Count(runs, "program_run"), 4))
	qt.Check(t, qt.StringContains(runs, "program 1, model.py:80 call_80 · ttnn.relu"))
	lines, _ := logOf(t, "model.ttmem", logOptions{viewOptions: viewOptions{format: term.Format{JSON: true}}}, page.Layout{})
	qt.Check(t, qt.Equals(strings.Count(lines, `"kind":"program_run"`), 4))
}

// The log lists what happens to captured traces, and what a replay runs.
func TestTheLogListsTraces(t *testing.T) {
	t.Chdir(t.TempDir())
	f, err := os.Create("model.ttmem")
	qt.Assert(t, qt.IsNil(err))
	w, err := recording.NewWriter(f, recording.NewHeader())
	qt.Assert(t, qt.IsNil(err))
	write := func(e event.Event) {
		e.TimeNs = 1e9
		w.Add(&e)
	}
	step := func(kind event.Kind, id uint64) {
		write(event.Event{Kind: kind, PID: 7, ProgramID: id, Devices: []int{0}, Stack: pagetest.At("execute_trace", 90)})
	}
	write(event.Event{Kind: event.ProcessStart, PID: 7, Start: &event.Start{Command: "python model.py"}})
	step(event.TraceBegin, 4)
	for range 3 {
		write(event.Event{Kind: event.ProgramRun, PID: 7, ProgramID: 1, Devices: []int{0}, Stack: pagetest.At("ttnn.add", 80)})
	}
	step(event.TraceEnd, 4)
	step(event.TraceReplay, 4)
	step(event.TraceReplay, 5)
	step(event.TraceRelease, 4)
	qt.Assert(t, qt.IsNil(w.Close(recording.End{TimeNs: 2e9})))
	qt.Assert(t, qt.IsNil(f.Close()))
	log, _ := logOf(t, "model.ttmem", logOptions{}, page.Layout{})
	for _, kind := range []string{"trace_begin", "trace_end", "trace_replay", "trace_release"} {
		qt.Check(t, qt.StringContains(log, kind))
	}
	qt.Check(t, qt.StringContains(log, "trace 4, model.py:90 call_90 · runs 3 programs"))
	qt.Check(t, qt.StringContains(log, "trace 5, model.py:90 call_90 · its programs are not known"))
	lines, _ := logOf(t, "model.ttmem", logOptions{viewOptions: viewOptions{format: term.Format{JSON: true}}}, page.Layout{})
	qt.Check(t, qt.Equals(strings.Count(lines, `"kind":"trace_replay"`), 2))
	qt.Check(t, qt.Equals(strings.Count(lines, `"trace_id":4`), 4))
	out, errs, status := runOnStreams(t, false, []string{"ops", "model.ttmem", "--json"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, `"runs":6`))
	qt.Check(t, qt.StringContains(out, `"replays":3`))
}

func TestOpsOfMoments(t *testing.T) {
	opsRecording(t)
	type of struct{ Runs, Tensors uint64 }
	for args, want := range map[string]map[string]of{
		"":                          {"ttnn.add": {3, 3072}, "ttnn.relu": {1, 3072}},
		"--to warm":                 {"ttnn.add": {1, 1024}},
		"--from warm":               {"ttnn.add": {2, 3072}, "ttnn.relu": {1, 3072}},
		"--from warm --to 1.5s":     {"ttnn.add": {1, 2048}},
		"--from 1.5s --to end -p 7": {"ttnn.add": {1, 3072}},
		"--from begin --to 0s":      {"ttnn.add": {1, 1024}},
		"--to peak":                 {"ttnn.add": {3, 3072}}, // the third run is the peak
		"-p 8":                      {"ttnn.relu": {1, 0}},
		"-n 1":                      {"ttnn.add": {3, 3072}},
		"--to begin":                {},
	} {
		out, errs, status := runOnStreams(t, false, append([]string{"ops", "model.ttmem", "--json"}, strings.Fields(args)...))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, errs))
		var said struct {
			Operations []struct {
				Op   string
				Runs uint64
				Peak struct {
					Tensors uint64 `json:"tensor_bytes"`
					CBs     uint64 `json:"cb_bytes"`
				}
			}
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &said)))
		got := make(map[string]of)
		for _, o := range said.Operations {
			got[o.Op] = of{o.Runs, o.Peak.Tensors}
			qt.Check(t, qt.Equals(o.Peak.CBs > 0, o.Op == "ttnn.add"))
		}
		qt.Check(t, qt.DeepEquals(got, want), qt.Commentf("%s", args))
	}
}

func TestOpsMistakesHaveOneLineErrors(t *testing.T) {
	opsRecording(t)
	for args, want := range map[string]string{
		"":                                     "there is no ttmem service .*|.*root.*",
		"none.ttmem":                           "there is no such file: none.ttmem; .*",
		"model.ttmem other.ttmem":              "one file at a time: ttmem ops model.ttmem; .*",
		"model.ttmem -n -1":                    "-n -1: must not be negative; 0 lists all",
		"model.ttmem -n x":                     "-n x: not a number",
		"model.ttmem -p 9":                     "-p 9: no such process in model.ttmem; available: PID 7, 8",
		"model.ttmem -p 0":                     "-p 0: not a process id: .*",
		"model.ttmem --to nowhere":             "no mark nowhere in model.ttmem: there are warm",
		"model.ttmem --from nowhere":           "no mark nowhere in model.ttmem: there are warm",
		"model.ttmem --from 2s --to warm":      "--to warm must be later than --from 2s",
		"model.ttmem --from 1h":                "model.ttmem ends before 1h0m0s: .*",
		"model.ttmem --from 3s":                "nothing happened from 3s to end in model.ttmem: give other moments",
		"model.ttmem --from failure":           "no allocation failed in model.ttmem: give another moment, such as peak",
		"model.ttmem --rules none":             "--rules none: .*",
		"--from warm":                          "--from is a moment of a recording: .*",
		"--to warm":                            "--to is a moment of a recording: .*",
		"--socket /no/such/socket":             ".*/no/such/socket.*",
		"model.ttmem --socket /no/such/socket": "a file and --socket: give one of them",
		"-- ":                                  "missing command: ttmem ops -- python model.py",
		"--region L1 model.ttmem":              "unknown flag --region; `ttmem ops --help` lists the flags",
	} {
		if args == "" && os.Geteuid() == 0 {
			continue // it would trace the host
		}
		err := execute(append([]string{"ops"}, strings.Fields(args)...)...)
		qt.Check(t, qt.ErrorMatches(err, want), qt.Commentf("%s", args))
		if err != nil {
			qt.Check(t, qt.IsFalse(strings.Contains(err.Error(), "\n")), qt.Commentf("%s", args))
		}
	}
}
