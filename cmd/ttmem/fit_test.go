package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page/fit"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// batchEvents are the events of a program on an N150 that allocates a tile of each bank of L1, and 100 for each 1 of n.
func batchEvents(n uint64) []event.Event {
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}, Open: new(event.Open)}
	open.Open.Capacities = [event.BankedRegions]event.Capacity{
		event.DRAM: {Banks: 12, Base: 1048640, BytesPerBank: 1072693184}, event.Trace: {Banks: 12, Base: 1 << 30},
		event.L1: {Banks: 64, Base: 105824, BytesPerBank: 1393312}, event.L1Small: {Banks: 64, Base: 0x16e000},
	}
	list := []event.Event{{Kind: event.ProcessStart, PID: 7, Start: &event.Start{Command: "python model.py"}}, open}
	address := uint64(0x16e000)
	for i, tiles := range []uint64{1, 100 * n} {
		address -= tiles * 2048
		list = append(list, event.Event{
			Kind: event.Alloc, PID: 7, Allocator: 1, Devices: []int{0}, Region: event.L1, BufferID: uint64(i + 1), Address: address, Banks: 64,
			SizeBytes: tiles * 64 * 2048, PageSizeBytes: 2048, BytesPerBank: tiles * 2048, Stack: pagetest.At("ttnn.empty", 10*(i+1)),
		})
	}
	return append(list, event.Event{Kind: event.ProcessExit, PID: 7})
}

// TestFit extrapolates the largest value: 680 tiles fit.
func TestFit(t *testing.T) {
	one, two, four := writeEvents(t, "one.ttmem", batchEvents(1)), writeEvents(t, "two.ttmem", batchEvents(2)), writeEvents(t, "four.ttmem", batchEvents(4))
	for _, args := range [][]string{{one, two, "--param", "1,2"}, {two, one, "--param", "2,1"}, {one, two, four, "--param", "1,2,4"}} {
		out, errs, status := runSized(t, nil, append([]string{"fit"}, args...))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		qt.Check(t, qt.StringContains(out, "The largest value that fits is 6, by extrapolation.\n With 7, L1 is too small first at:\n model.py:20 call_20 · ttnn.empty\n"))
		qt.Check(t, qt.StringContains(out, "\n        0 B   12.5 MiB  L1      model.py:20 call_20 · ttnn.empty\n  128.0 KiB        0 B  L1      model.py:10 call_10 · ttnn.empty\n"))
	}
	out, _, _ := runSized(t, nil, []string{"fit", one, two, "--param", "1,2", "--on", "p150", "--json", "-n", "1"})
	pagetest.CheckSchema(t, "fit", out)
	var doc fit.Document
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &doc)))
	qt.Check(t, qt.Equals(doc.Largest, 12)) // 713 tiles of 110 banks are 78430, and 12 * 6400 + 64 are 76864
	qt.Check(t, qt.Equals(doc.Board, "p150"))
	qt.Check(t, qt.Equals(doc.Omitted, 1))
	out, _, _ = runSized(t, nil, []string{"fit", four, two, "--param", "1,2"}) // it shrinks
	qt.Check(t, qt.StringContains(out, "All values up to 16777216 fit, by extrapolation.\n"))
	qt.Check(t, qt.StringContains(out, "-25.0 MiB"))
}

// TestFitSaysWhatIsWrong, in one line.
func TestFitSaysWhatIsWrong(t *testing.T) {
	one, two := writeEvents(t, "one.ttmem", batchEvents(1)), writeEvents(t, "two.ttmem", batchEvents(2))
	failed := writeEvents(t, "failed.ttmem", pagetest.Failures())
	for args, want := range map[string]string{
		one:                                        "fit takes two or three recordings: .*",
		one + " " + two:                            "--param : give a value for each of the 2 recordings, .*",
		one + " " + two + " --param 1":             "--param 1: give a value for each of the 2 recordings, .*",
		one + " " + two + " --param 1,1":           "--param 1,1: give different numbers from 1 to .*",
		one + " " + two + " --param 1,x":           "--param 1,x: give different numbers .*",
		one + " " + failed + " --param 1,2":        ".*has failed allocations: fit needs runs that worked",
		one + " " + two + " --param 1,2 --on n151": "--on n151: choose a board: .*",
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"fit"}, strings.Fields(args)...)...), want))
	}
	lost := append(batchEvents(2)[:2:2], event.Event{Kind: event.Alloc, PID: 7, Allocator: 1, Devices: []int{0}, Region: event.L1, BufferID: 9, Address: 0x30000, BytesPerBank: 2048, SizeBytes: 64 * 2048, PageSizeBytes: 2048})
	out, _, _ := runSized(t, nil, []string{"fit", one, writeEvents(t, "lost.ttmem", lost), "--param", "1,2"})
	qt.Check(t, qt.StringContains(out, "The largest value that fits is not known: "))
}
