package main

import (
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
