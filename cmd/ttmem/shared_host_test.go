package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// Users that no host has names for.
const anna, ben = 54321, 54322

// sharedHost are the events of 32 chips that processes of the given users share: weights on all
// chips, a leak on every second one, and a failure.
func sharedHost(uids ...int) []event.Event {
	var all, odd []int
	for chip := range 32 {
		all = append(all, 31-chip) // in the order of a mesh
		if chip%2 == 1 {
			odd = append(odd, chip)
		}
	}
	var events []event.Event
	add := func(pid int, e event.Event) {
		e.PID, e.TID, e.Allocator = pid, pid, uint64(pid)
		events = append(events, e)
	}
	cores := []event.CoreRange{{X1: 7, Y1: 7}}
	long := "MultiHeadAttentionWithRotaryEmbedding.forward"
	for i, uid := range uids {
		pid := 4194300 + i
		add(pid, event.Event{Kind: event.ProcessStart, Comm: "python3", UID: uid, Start: &event.Start{Release: "0.81.1",
			Command: fmt.Sprintf("python3 /home/user/training/run_the_whole_model.py --layers %d --batch 32", i)}})
		add(pid, event.Event{Kind: event.DeviceOpen, Devices: all, Open: &event.Open{Board: "galaxy", Arch: "wormhole_b0", Capacities: pagetest.Capacities}, Mesh: true})
		softmax := pagetest.Stack("softmax", long, 50)
		add(pid, event.Event{Kind: event.CBAlloc, ProgramID: 5, Devices: all, Region: event.CB, Address: 0x8000, SizeBytes: 4096,
			Cores: cores, StaticKind: event.CircularBuffer, Stack: softmax})
		add(pid, event.Event{Kind: event.ProgramRun, ProgramID: 5, Devices: all, Stack: softmax})
		for n := range uint64(40) {
			id, on := uint64(i)<<16+n, odd
			if n < 4 {
				on = all
			}
			region, address := event.DRAM, 0x1000+id%64*0x1000+uint64(i)*0x40000
			if n%8 == 3 {
				region, address = event.L1, 0x17000-n*0x400-uint64(i)*0x1000
			}
			add(pid, pagetest.Buffer(event.Alloc, id, region, address, 0x400, pagetest.Stack("scaled_dot_product_attention_decode", long, int(10+n/20)), on...))
		}
		add(pid, event.Event{Kind: event.AllocFailed, Devices: odd, Region: event.L1, SizeBytes: 30_000 * 64, BytesPerBank: 30_000, Banks: 64,
			Reason: event.ReasonOutOfMemory, Message: "TT_FATAL @ x.cpp:1\ninfo:\nOut of Memory: no\n", Stack: pagetest.Stack("matmul", long, 60)})
		add(pid, event.Event{Kind: event.Lost, Count: 3, Cause: "ring buffer full"})
	}
	return append(events, event.Event{Kind: event.Mark, Cause: "warm"}, event.Event{Kind: event.ProcessExit, PID: 4194300, ExitStatus: 9})
}

// Commands whose pages show PIDs, and others.
var (
	pagesWithPIDs = []string{
		"report FILE", "leaks FILE --from begin --to warm", "leaks FILE --from begin --to warm --by process", "peak FILE", "peak FILE --by process", "dump FILE", "dump FILE --by process",
		"oom FILE", "ops FILE", "log FILE", "top FILE --once",
	}
	pagesWithoutPIDs = []string{
		"report FILE -p 4194301", "peak FILE --region L1", "peak FILE --chip 3", "dump FILE --by chip", "dump FILE --by stack", "dump FILE --at peak --by op",
		"map FILE", "map FILE -n 0", "map FILE --at peak --region L1", "map FILE --at failure#1",
		"diff FILE --from begin --to warm", "diff FILE --from warm --to peak --by chip", "diff FILE --from warm --to peak --by process",
		"log FILE --stacks", "leaks FILE", "top FILE --once -p 4194301",
	}
)

// TestManyChipsFitTheTerminal: no line of a page or of a warning is longer than 80 columns, and
// chips are ranges.
func TestManyChipsFitTheTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Chdir(filepath.Dir(writeEvents(t, "shared.ttmem", sharedHost(anna, anna, ben, ben, anna)))) // messages have the name, which fits
	for _, args := range append(pagesWithPIDs, pagesWithoutPIDs...) {
		t.Run(args, func(t *testing.T) {
			size := &unix.Winsize{Row: 24, Col: 80}
			out, errs, status := onStreams(t, size, size, func() int { return run(strings.Fields(strings.Replace(args, "FILE", "shared.ttmem", 1))) })
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			pagetest.CheckWidth(t, out, 80)
			if !strings.HasPrefix(args, "report") && !strings.HasPrefix(args, "top") { // whose pages have it
				qt.Check(t, qt.StringContains(errs, " lost"))
			}
			pagetest.CheckWidth(t, errs, 80)
			qt.Check(t, qt.Not(qt.StringContains(out, "0, 1, 2, 3")))
		})
	}
}

// TestUsersAreNamedWhereThereAreSeveral, beside PIDs.
func TestUsersAreNamedWhereThereAreSeveral(t *testing.T) {
	shared := writeEvents(t, "shared.ttmem", sharedHost(anna, ben))
	own := writeEvents(t, "own.ttmem", sharedHost(anna, anna))
	for _, args := range pagesWithPIDs {
		if strings.HasPrefix(args, "top ") {
			continue // which always has the column
		}
		for path, named := range map[string]bool{shared: true, own: false} {
			out, _, status := runOnStreams(t, false, strings.Fields(strings.Replace(args, "FILE", path, 1)))
			qt.Check(t, qt.Equals(status, 0))
			qt.Check(t, qt.StringContains(out, "4194301"), qt.Commentf("%s", args))
			qt.Check(t, qt.Equals(strings.Contains(out, "54322") || strings.Contains(out, "54321"), named), qt.Commentf("%s: %s", args, out))
		}
	}
}
