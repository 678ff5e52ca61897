package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// ownersStory is a process that was attached late, and whose owners were looked for at the end and
// when an allocation failed: weights, a cache, a list that grows by a tensor in each step, and one
// buffer that nothing is known of.
func ownersStory() (events []event.Event) {
	const began = 1000 * pagetest.Second
	id := uint64(0)
	var owners []event.Event
	alloc := func(region event.Region, perBank uint64, banks uint32, stack *event.Stack, path, tensor string) {
		id++
		e := pagetest.Buffer(event.Alloc, id, region, 0x20000+id*0x10000, perBank, stack, 0)
		e.Banks, e.SizeBytes, e.BeforeAttach = banks, perBank*uint64(banks), stack == nil
		events = append(events, e)
		if path != "" {
			owners = append(owners, event.Event{Kind: event.Owner, PID: e.PID, BufferID: id, Object: e.Object, Count: began, Cause: path, Message: tensor})
		}
	}
	open := event.Event{Kind: event.DeviceOpen, PID: 4242, Allocator: 1, Devices: []int{0}, Open: &event.Open{Board: "n150", Arch: "wormhole_b0"}}
	open.Open.Capacities[event.DRAM] = event.Capacity{Banks: 12, BytesPerBank: 1 << 30, Base: 0x20000}
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: 1_360_544, Base: 0x20000}
	events = append(events, event.Event{TimeNs: began, Kind: event.ProcessStart, PID: 4242, Comm: "python3", Start: &event.Start{Command: "python3 serve.py"}}, open)
	for i := range 4 {
		alloc(event.DRAM, 128<<10, 12, nil, fmt.Sprintf("model.layers[%d].attention.wq", i), "bf16[1,1,1024,768] TILE")
		alloc(event.DRAM, 96<<10, 12, nil, fmt.Sprintf("cache['k'][%d]", i), "bfp8[1,8,1024,64] TILE")
		alloc(event.L1, 4<<10, 64, nil, fmt.Sprintf("model.layers[%d].norm\x1b[31m.weight", i), "bf16[1,1,32,4096] TILE")
	}
	alloc(event.DRAM, 64<<10, 12, nil, "", "")
	for i := range 6 {
		alloc(event.DRAM, 8<<10, 12, nil, fmt.Sprintf("model.debug[%d]", i), "bf16[1,1,32,1536] TILE")
	}
	scores, add := pagetest.Stack("softmax", "Attention.forward", 31), pagetest.Stack("add", "Model.step", 52)
	for i := range 24 {
		alloc(event.L1, 2<<10, 64, scores, "", "")
		events = append(events, pagetest.Buffer(event.Free, id, event.L1, 0, 0, nil))
		alloc(event.DRAM, 8<<10, 12, add, fmt.Sprintf("model.debug[%d]", 6+i), "bf16[1,1,32,1536] TILE")
	}
	alloc(event.L1, 2<<10, 64, scores, "local scores of forward()", "bf16[1,8,32,256] TILE")
	failed := event.Event{
		Kind: event.AllocFailed, PID: 4242, Allocator: 1, Devices: []int{0}, Stack: scores, Region: event.L1,
		SizeBytes: 64 * 1_350_000, BytesPerBank: 1_350_000, Banks: 64, Reason: event.ReasonOutOfMemory,
	}
	return append(append(append(events, owners...), failed), event.Event{Kind: event.Mark, PID: 4242, Cause: "end"})
}

// TestOwnersOnAllPages: every page names who holds the buffers. No line is wider than the terminal,
// and no name controls it.
func TestOwnersOnAllPages(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LC_ALL", "C.UTF-8")
	path := writeEvents(t, "late.ttmem", ownersStory())
	testdata, err := filepath.Abs("testdata")
	qt.Assert(t, qt.IsNil(err))
	t.Chdir(filepath.Dir(path))
	var all strings.Builder
	for _, args := range []string{
		"leaks late.ttmem", "leaks late.ttmem --by owner", "dump late.ttmem --by owner", "dump late.ttmem --grep layers.3.", "peak late.ttmem -n 4",
		"peak late.ttmem --by owner --region DRAM -n 3", "oom late.ttmem", "map late.ttmem --region L1", "report late.ttmem",
		"diff late.ttmem --from 2.8s --to end --by owner", "top --once --color=never late.ttmem",
	} {
		out, errs, status := runSized(t, &unix.Winsize{Row: 60, Col: 80}, strings.Fields(args))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, errs))
		pagetest.CheckWidth(t, out, 80)
		qt.Check(t, qt.IsFalse(strings.Contains(out, "\x1b")), qt.Commentf("%s", args))
		fmt.Fprintf(&all, "$ ttmem %s\n%s\n", args, strings.ReplaceAll(out, "\r\n", "\n"))
	}
	for _, args := range []string{
		"export late.ttmem --to folded --by owner --value inuse_space", "export late.ttmem --to folded --value inuse_space",
		"export late.ttmem --to folded --by owner",
	} {
		out, errs, status := runSized(t, nil, strings.Fields(args))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, errs))
		fmt.Fprintf(&all, "$ ttmem %s\n%s\n", args, out)
	}
	t.Chdir(filepath.Dir(testdata))
	golden.Check(t, "owners.golden", all.String())
	for _, command := range []string{"leaks", "dump", "peak", "oom", "map", "report"} {
		out, errs, status := runSized(t, nil, []string{command, path, "--json"})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", command, errs))
		pagetest.CheckSchema(t, command, out)
		qt.Check(t, qt.StringContains(out, `"owner":"model.`), qt.Commentf("%s", command))
		qt.Check(t, qt.StringContains(out, `"tensor":"bf16[`), qt.Commentf("%s", command))
	}
}

// TestOwnersAfterTheProcessEnded: pages of a recording name who held what the process did not free.
func TestOwnersAfterTheProcessEnded(t *testing.T) {
	for name, kinds := range map[string][]event.Kind{
		"exit.ttmem": {event.ProcessExit}, "close.ttmem": {event.DeviceClose, event.ProcessExit},
	} {
		events := ownersStory()
		for _, kind := range kinds {
			events = append(events, event.Event{Kind: kind, PID: 4242, Allocator: 1})
		}
		path := writeEvents(t, name, events)
		for command, want := range map[string]string{
			"leaks --by owner":             "24  model.debug[…]\n",
			"leaks":                        "model.debug[…]: 6 → 18 → 30 tensors\n",
			"peak --by owner":              "30  model.debug[*]\n",
			"diff --from begin --by owner": "6 → 30  model.debug[*]\n",
			"diff --from peak --by owner":  "are the same in both",
			"report":                       "held by model.debug[…]",
		} {
			args := strings.Fields(command)
			t.Setenv("LC_ALL", "C.UTF-8")
			out, errs, status := runSized(t, nil, append([]string{args[0], path}, args[1:]...))
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", command, errs))
			qt.Check(t, qt.StringContains(out, want), qt.Commentf("%s %s", name, command))
		}
	}
}
