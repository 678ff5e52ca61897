package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestTheLogFitsTheTerminal: also chips, names and paths that are longer than a line.
func TestTheLogFitsTheTerminal(t *testing.T) {
	long := event.StackOf([]event.Frame{
		{Kind: event.Native, Name: strings.Repeat("ttnn::device_operation::", 12) + "create_mesh_workload", Module: "_ttnncpp.so"},
		{Kind: event.Python, Name: "forward", File: "/" + strings.Repeat("folder/", 30) + "model.py", Line: 3},
		{Kind: event.Native, Name: strings.Repeat("x", 300)},
	})
	var odd, all []int
	for i := range 32 {
		all = append(all, 31-i) // in the order of the mesh
		if i%2 == 1 {
			odd = append(odd, i)
		}
	}
	path := writeEvents(t, "wide.ttmem", []event.Event{
		pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x8000, 4096, long, all...),
		pagetest.Buffer(event.Alloc, 2, event.DRAM, 0x9000, 4096, long, odd...),
		{Kind: event.ProcessStart, PID: 4242, Start: &event.Start{Command: "python3 " + strings.Repeat("a", 500)}},
	})
	for _, columns := range []int{80, 120, 200} {
		text, _ := logOf(t, path, logOptions{stacks: true, allFrames: true}, page.Layout{Width: columns})
		pagetest.CheckWidth(t, text, columns)
		whole := strings.Join(strings.Fields(text), "")
		for _, f := range long.Frames() { // nothing of it is cut off
			qt.Check(t, qt.IsTrue(strings.Count(whole, f.Name) >= 2), qt.Commentf("%s", f.Name))
		}
		qt.Check(t, qt.StringContains(text, " 0-31 alloc "))
		qt.Check(t, qt.StringContains(text, " many alloc "))
		qt.Check(t, qt.StringContains(whole, "chips1,3,5,7,"))
	}
}

// TestAProcessWithoutACommandHasAQuestionMark, where nobody could read it.
func TestAProcessWithoutACommandHasAQuestionMark(t *testing.T) {
	path := writeEvents(t, "unread.ttmem", []event.Event{{Kind: event.ProcessStart, PID: 4242}})
	text, _ := logOf(t, path, logOptions{}, page.Layout{})
	qt.Check(t, qt.Matches(text, `(?s).*process_start +4242  \?\n.*`))
}

// TestAClashHasNoSize: nobody knows what the program asked for.
func TestAClashHasNoSize(t *testing.T) {
	path := writeEvents(t, "clash.ttmem", []event.Event{{
		Kind: event.AllocFailed, PID: 4242, Devices: []int{0}, Region: event.CB, Reason: event.ReasonStaticClash, ProgramID: 5,
	}})
	text, _ := logOf(t, path, logOptions{}, page.Layout{})
	qt.Check(t, qt.StringContains(text, "alloc_failed"))
	qt.Check(t, qt.Not(qt.StringContains(text, "0 B")))
}

// TestARunSaysHowManyBuffersItUses: live ones, if that was recorded.
func TestARunSaysHowManyBuffersItUses(t *testing.T) {
	stack := pagetest.Stack("add", "forward", 3)
	run := func(uses *event.Uses) event.Event {
		return event.Event{Kind: event.ProgramRun, PID: 4242, Devices: []int{0}, ProgramID: 5, Stack: stack, Uses: uses}
	}
	path := writeEvents(t, "uses.ttmem", []event.Event{
		pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x108000, 4096, stack, 0),
		pagetest.Buffer(event.Alloc, 2, event.DRAM, 0x109000, 4096, stack, 0),
		run(nil),
		run(&event.Uses{Arguments: []uint32{0x108000, 0x109000, 0x200000}}),
		run(&event.Uses{Partial: true}),
	})
	text, _ := logOf(t, path, logOptions{kinds: []string{"program_run"}}, page.Layout{})
	lines := strings.Split(strings.TrimSpace(text), "\n")
	qt.Assert(t, qt.HasLen(lines, 4), qt.Commentf("%s", text))
	qt.Check(t, qt.Not(qt.StringContains(lines[1], "uses")))
	qt.Check(t, qt.StringContains(lines[2], ", uses 2 buffers"))
	qt.Check(t, qt.StringContains(lines[3], ", uses 0 buffers or more"))
}
