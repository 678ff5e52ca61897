package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page/advise"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// lateEvents are the events of a program on an N150 that uses a tensor of line 10 once, and holds it beside three others. A result
// of line 30 is larger than what is free. Earlier ones of other lines are freed when they are used.
func lateEvents(earlier ...int) []event.Event {
	list := batchEvents(0)[:2]
	list[1].Open.Capacities[event.L1] = event.Capacity{Banks: 64, Base: 0x16e000 - 5*2048, BytesPerBank: 5 * 2048}
	id, live := uint64(0), uint64(0)
	add := func(e event.Event) {
		e.TimeNs, e.PID, e.Allocator, e.Devices, e.Region = 1001e9+uint64(len(list)+1)*1e6, 7, 1, []int{0}, event.L1
		list = append(list, e)
	}
	alloc := func(line int) uint32 {
		id, live = id+1, live+1
		at := 0x16e000 - live*2048
		add(event.Event{Kind: event.Alloc, BufferID: id, Address: at, Banks: 64, SizeBytes: 64 * 2048, PageSizeBytes: 2048, BytesPerBank: 2048, Stack: pagetest.At("ttnn.empty", line)})
		return uint32(at)
	}
	run := func(line int, at ...uint32) {
		add(event.Event{Kind: event.ProgramRun, ProgramID: 1, Uses: &event.Uses{Arguments: at}, Stack: pagetest.At("ttnn.add", line)})
	}
	for _, line := range earlier {
		run(20, alloc(line))
		add(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit})
		live--
	}
	late, first := alloc(10), id
	add(event.Event{Kind: event.Owner, BufferID: id, Cause: "residual (local of forward)"})
	run(20, late)
	others := []uint32{alloc(21), alloc(22)}
	run(23, others...)
	others = append(others, alloc(24))
	run(25, others...)
	add(event.Event{
		Kind: event.AllocFailed, Reason: event.ReasonOutOfMemory, BytesPerBank: 2 * 2048, Banks: 64, SizeBytes: 2 * 64 * 2048, PageSizeBytes: 2048,
		Stack: pagetest.At("ttnn.add", 30),
	})
	run(31, others...)
	for i := range live {
		add(event.Event{Kind: event.Free, BufferID: first + i, Reason: event.ReasonExplicit})
	}
	return append(list, event.Event{TimeNs: 1001e9 + uint64(len(list)+1)*1e6, Kind: event.ProcessExit, PID: 7})
}

func TestAdvise(t *testing.T) {
	file := writeEvents(t, "late.ttmem", lateEvents())
	out, errs, status := runSized(t, nil, []string{"advise", file})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.Equals(out, `L1 of chip 0: peak 512.0 KiB after 2 program runs, at model.py:24 call_24 · ttnn.empty
 128.0 KiB are not used any more then. If all is freed after its last use, the peak is 384.0 KiB; proved by replay.
       held  buffers   runs  allocated by
  128.0 KiB        1      1  model.py:10 call_10 · ttnn.empty, held by residual (local of forward)
                             last used by model.py:20 call_20 · ttnn.add; freed there, the peak is 384.0 KiB; proved by replay
`))
	out, _, _ = runSized(t, nil, []string{"advise", file, "--json"})
	pagetest.CheckSchema(t, "advise", out)
	var doc advise.Document
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &doc)))
	qt.Assert(t, qt.HasLen(doc.Peaks, 1))
	qt.Check(t, qt.Equals(doc.Peaks[0].Lines[0].Owner, "residual (local of forward)"))
	qt.Check(t, qt.Equals(doc.Peaks[0].All.PeakBytes, 3*64*2048))
	qt.Check(t, qt.IsTrue(name.AtLine("model.py:20")(doc.Peaks[0].Lines[0].LastUseStack)))
}

// TestReportSaysWhatToFreeEarlier, in two lines at most, if a peak is lower then.
func TestReportSaysWhatToFreeEarlier(t *testing.T) {
	const begin = "Tensors in L1 would peak at 6.0 KiB, not 8.0 KiB, if 2.0 KiB of model.py:10\ncall_10 were freed after model.py:20 call_20 · ttnn.add: ttmem advise FILE\n"
	file := writeEvents(t, "late.ttmem", lateEvents())
	out, errs, status := runSized(t, &unix.Winsize{Row: 40, Col: 80}, []string{"report", "--color=never", file})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, begin))
	out, _, _ = runSized(t, nil, []string{"report", file, "--json"})
	pagetest.CheckSchema(t, "report", out)
	qt.Check(t, qt.StringContains(out, `"late_frees":[{"region":"L1","pid":7,"user":"root","devices":[0],"peak_bytes":8192,"freed_peak_bytes":6144,"lines":1,"name":"model.py:10 call_10 · ttnn.empty","count":1,"bytes":2048,"last_use":"model.py:20 call_20 · ttnn.add"}]`))
	out, _, _ = runSized(t, nil, []string{"report", file, "-p", "7"})
	qt.Check(t, qt.StringContains(out, "would peak at"))

	used := lateEvents()
	for i := range used {
		if e := &used[i]; e.Kind == event.ProgramRun && name.AtLine("model.py:31")(e.Stack) {
			e.Uses.Arguments = append(e.Uses.Arguments, 0x16e000-2048)
		}
	}
	for name, events := range map[string][]event.Event{"used.ttmem": used, "batch.ttmem": batchEvents(0)} {
		out, _, _ = runSized(t, nil, []string{"report", writeEvents(t, name, events)})
		qt.Check(t, qt.Not(qt.StringContains(out, "would peak")), qt.Commentf("%s", name))
	}
}

// TestDumpHasTheLastUse of each buffer before the moment.
func TestDumpHasTheLastUse(t *testing.T) {
	file := writeEvents(t, "late.ttmem", lateEvents())
	out, errs, status := runSized(t, &unix.Winsize{Row: 40, Col: 200}, []string{"dump", "--color=never", file, "--at", "peak"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, "       age      unused     PID  layout           name\n"))
	qt.Check(t, qt.Matches(out, `(?s).* 0.006 s       1 run       7  interleaved      model.py:10 .*`), qt.Commentf("%s", out))
	out, _, _ = runSized(t, nil, []string{"dump", file, "--at", "peak", "--json"})
	pagetest.CheckSchema(t, "dump", out)
	qt.Check(t, qt.StringContains(out, `"last_use":"model.py:20 call_20 · ttnn.add","last_use_ns":1001005000000,`))
	qt.Check(t, qt.StringContains(out, `"idle_ns":4000000,"idle_runs":1}`))
	qt.Check(t, qt.Equals(strings.Count(out, `"idle_runs":0`), 2))
	qt.Check(t, qt.Equals(strings.Count(out, `"last_use":`), 3)) // the last one is not used yet
	out, _, _ = runSized(t, &unix.Winsize{Row: 40, Col: 80}, []string{"dump", "--color=never", file, "--at", "peak"})
	qt.Check(t, qt.Not(qt.StringContains(out, "unused"))) // no room
}

// TestPeakSaysWhatIsNotUsedAnyMore below the row of its line.
func TestPeakSaysWhatIsNotUsedAnyMore(t *testing.T) {
	file := writeEvents(t, "late.ttmem", lateEvents())
	out, errs, status := runSized(t, nil, []string{"peak", file})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.Matches(out, `(?s).*\n +2.0 KiB   25% +1  model.py:10 call_10 · ttnn.empty\n +held by residual \(local of forward\)\n +2.0 KiB not used after model.py:20 call_20 · ttnn.add\n.*`), qt.Commentf("%s", out))
	qt.Check(t, qt.Equals(strings.Count(out, "not used after"), 1))
	out, _, _ = runSized(t, nil, []string{"peak", file, "--by", "op"})
	qt.Check(t, qt.Not(qt.StringContains(out, "not used after")))
	out, _, _ = runSized(t, nil, []string{"peak", file, "--json"})
	pagetest.CheckSchema(t, "peak", out)
	qt.Check(t, qt.StringContains(out, `"unused":[{"pid":7,"user":"root","name":"model.py:10 call_10 · ttnn.empty","count":1,"bytes":2048,"last_use":"model.py:20 call_20 · ttnn.add","runs":1}]`))
	out, _, _ = runSized(t, nil, []string{"peak", file, "--json", "--to", "0.909s"}) // a part of the recording
	qt.Check(t, qt.Not(qt.StringContains(out, `"unused"`)))
}

// TestAdviseSaysWhatItDoesNotKnow, in one line, and why.
func TestAdviseSaysWhatItDoesNotKnow(t *testing.T) {
	change := func(do func(e *event.Event)) []event.Event {
		list := lateEvents()
		for i := range list {
			do(&list[i])
		}
		return list
	}
	lost := lateEvents()
	for want, events := range map[string][]event.Event{
		"Nothing is judged: what programs use is not recorded; ":    change(func(e *event.Event) { e.Uses = nil }),
		"Nothing is judged: the recording has no runs of programs.": slices.DeleteFunc(lateEvents(), func(e event.Event) bool { return e.Kind == event.ProgramRun }),
		"The recording has no call stacks: ":                        change(func(e *event.Event) { e.Stack = nil }),
		"Of 1 run of programs it is not recorded what they use: ": change(func(e *event.Event) {
			if e.Kind == event.ProgramRun && e.TimeNs == 1001e9+10e6 {
				e.Uses = nil
			}
		}),
		"Events were lost: ":                   slices.Insert(lost, 12, event.Event{TimeNs: lost[11].TimeNs, Kind: event.Lost, Count: 1, Cause: "x"}),
		" 128.0 KiB from before tracing began": change(func(e *event.Event) { e.BeforeAttach = e.Kind == event.Alloc && e.BufferID == 1 }),
	} {
		out, errs, _ := runSized(t, nil, []string{"advise", writeEvents(t, "file.ttmem", events)})
		qt.Check(t, qt.StringContains(out, want), qt.Commentf("%s", errs))
		if !strings.Contains(want, "call stacks") {
			qt.Check(t, qt.Not(qt.StringContains(out, "model.py:10")), qt.Commentf("%s", want))
		}
	}
}

// TestAdviseOfRunningProcesses is about what the service has recorded, of selected processes.
func TestAdviseOfRunningProcesses(t *testing.T) {
	events := lateEvents()
	events[0].TimeNs, events[1].TimeNs = 1000e9, 1001e9
	other := pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x1000, 4096, pagetest.Stack("add", "forward", 90), 0)
	other.PID, other.TimeNs = 8, 1001e9
	events = slices.Insert(events[:len(events)-1], 2, event.Event{Kind: event.ProcessStart, PID: 8, TimeNs: 1001e9, Start: new(event.Start)}, other)
	socket := filepath.Join(t.TempDir(), "ttmem.sock")
	serveEvents(t, socket, events)
	if os.Getuid() != 0 {
		t.Skip("other users than root have no process here")
	}
	out, errs, status := runSized(t, nil, []string{"advise", "--socket", socket, "-p", "7"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, "  128.0 KiB        1      1  model.py:10 call_10 · ttnn.empty, held by residual (local of forward)\n"))
	qt.Check(t, qt.StringContains(out, "freed there, the peak is 384.0 KiB; proved by replay"))
	qt.Check(t, qt.Not(qt.StringContains(out, "forward · ttnn.add")))
	qt.Check(t, qt.Matches(errs, "ttmem: the advice is of the last .*, which the service has recorded\n"))
	out, _, _ = runSized(t, nil, []string{"advise", "--socket", socket})
	qt.Check(t, qt.StringContains(out, "DRAM of chip 0: "))
	qt.Check(t, qt.ErrorMatches(execute("advise", "--socket", socket, "-p", "9"), "-p 9: no such process in the service's recording; available: PID 7, 8"))
	qt.Check(t, qt.ErrorMatches(execute("advise", "--socket", socket+"x"), ".*, or give a recording: `ttmem run -o FILE -- COMMAND` or .*"))
	qt.Check(t, qt.ErrorMatches(execute("advise", writeEvents(t, "late.ttmem", events), "-p", "9"), "-p 9: no such process in .*late.ttmem; available: PID 7, 8"))
}

// TestOOMFree: a failure fits if the tensor is freed after its last use.
func TestOOMFree(t *testing.T) {
	file := writeEvents(t, "late.ttmem", lateEvents())
	out, errs, status := runSized(t, nil, []string{"oom", file, "--free", "model.py:10"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, "With model.py:10 freed after last use: it fits: it goes to 0x16b800; proved by\n replay\n"))
	qt.Check(t, qt.StringContains(out, "\n 1 buffer freed earlier\n"))
	qt.Check(t, qt.StringContains(out, "at most 6.0 KiB of each bank allocated; recorded 8.0 KiB"))
	out, _, _ = runSized(t, nil, []string{"oom", file, "--free", "model.py:10", "--free", "model.py:21", "--json"})
	pagetest.CheckSchema(t, "oom", out)
	qt.Check(t, qt.StringContains(out, `"freed_earlier":1`))
	out, _, _ = runSized(t, nil, []string{"oom", file, "--free", "model.py:21"}) // it is used after the failure
	qt.Check(t, qt.StringContains(out, "it still fails; proved by replay"))
}

// TestOOMFreesFirst: freeing after the last use is the most welcome change, if earlier tensors of the line show that there is no
// other use.
func TestOOMFreesFirst(t *testing.T) {
	remedy := "It fits with model.py:10 freed after last use, and nothing that worked fails"
	for _, earlier := range [][]int{{10}, {10, 12, 10}, {}, {12}} {
		out, errs, _ := runSized(t, nil, []string{"oom", writeEvents(t, "file.ttmem", lateEvents(earlier...))})
		qt.Check(t, qt.Equals(strings.Contains(out, remedy), slices.Contains(earlier, 10)), qt.Commentf("%v: %s%s", earlier, out, errs))
	}
}
