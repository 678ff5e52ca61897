package main

import (
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestWrongFlagsOfPeak(t *testing.T) {
	file := writeEvents(t, "model.ttmem", []event.Event{
		{TimeNs: 1, Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}},
		{TimeNs: 2, Kind: event.Alloc, PID: 7, BufferID: 1, Devices: []int{0}, SizeBytes: 64, BytesPerBank: 64, Banks: 1},
	})
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{file, "--by", "colour"}, "--by colour: choose stack, op"},
		{[]string{file, "--by", ""}, "--by is empty"},
		{[]string{file, "--region", "SRAM"}, "--region SRAM: choose DRAM"},
		{[]string{file, "--chip", "3"}, "--chip 3: no such chip in .*; available: chip 0"},
		{[]string{file, "-p", "9"}, "-p 9: no such process in .*; available: PID "},
		{[]string{file, "-n", "-1"}, "-n -1: must not be negative"},
		{[]string{file, "--rules", "/nowhere/rules"}, "--rules /nowhere/rules: no such file"},
		{[]string{file + ".none"}, "no such file"},
		{[]string{file, "--", "true"}, "a file and a command"},
	} {
		err := execute(append([]string{"peak"}, test.args...)...)
		qt.Check(t, qt.ErrorMatches(err, "(?s).*"+test.want+".*"), qt.Commentf("%v", test.args))
	}
}

// TestRowsOfPeaksInJSON: -n limits each list of the document as it limits those of the text, and 0
// and no -n list all.
func TestRowsOfPeaksInJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leak.ttmem")
	readStory(t, storyEvents(goldenFolder, "leak")).record(t, file, 0)
	of := func(args ...string) (d peakDocument, rows int) {
		jsonOf(t, &d, append([]string{"peak", file, "--json"}, args...)...)
		for _, p := range d.Peaks {
			rows += len(p.Groups) + len(p.StaticGroups) + len(p.Holders) + len(p.Programs)
		}
		return d, rows
	}
	all, rows := of()
	qt.Check(t, qt.Equals(all.Omitted, 0))
	none, same := of("-n", "0")
	qt.Check(t, qt.Equals(none.Omitted, 0))
	qt.Check(t, qt.Equals(same, rows))
	some, fewer := of("-n", "2")
	qt.Check(t, qt.Equals(fewer+some.Omitted, rows))
	qt.Check(t, qt.IsTrue(some.Omitted > 0))
	for i, p := range some.Peaks {
		qt.Check(t, qt.HasLen(p.Holders, min(2, len(all.Peaks[i].Holders))))
		qt.Check(t, qt.Equals(p.Bytes, all.Peaks[i].Bytes))
	}
}
