package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// statusFile names the file to which a command that a test starts writes its /proc/self/status at its end.
const statusFile = "TTMEM_TEST_STATUS"

// TestViewsTakeLittleMemoryForEachBuffer asserts the rule of docs/limits.md.
func TestViewsTakeLittleMemoryForEachBuffer(t *testing.T) {
	const base, each, live, stacks = 64 << 20, 1 << 10, 100_000, 1000
	dir := t.TempDir()
	path := filepath.Join(dir, "live.ttmem")
	file, err := recording.Create(path, recording.FileOptions{})
	qt.Assert(t, qt.IsNil(err))
	e := event.Event{
		Kind: event.DeviceOpen, TimeNs: 1, PID: 7, Devices: []int{0}, Allocator: 1,
		Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{event.DRAM: {Banks: 12, BytesPerBank: 1 << 30, Base: 1 << 10}}},
	}
	file.Add(&e)
	var sites []*event.Stack
	for i := range stacks {
		sites = append(sites, event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "model.py", Line: 1 + i}}))
	}
	for id := range uint64(live) {
		e = event.Event{
			Kind: event.Alloc, TimeNs: 2 + id, PID: 7, Devices: []int{0}, Allocator: 1, Region: event.DRAM, BufferID: id, Stack: sites[id%stacks],
			Address: 1 << 10 * (1 + id*7919%(1<<20)), SizeBytes: 12 << 10, PageSizeBytes: 1 << 10, BytesPerBank: 1 << 10, Banks: 12,
		}
		file.Add(&e)
	}
	qt.Assert(t, qt.IsNil(file.Close(recording.End{})))
	self, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`)
	for _, args := range [][]string{
		{"report"}, {"report", "--json"}, {"peak"}, {"leaks"}, {"oom"}, {"map"}, {"map", "-n", "0"}, {"map", "--json"},
		{"dump"}, {"dump", "-n", "20"}, {"dump", "--by", "line"}, {"dump", "--json"}, {"html", "-o", filepath.Join(dir, "live.html")},
	} {
		c := exec.Command(self, append(args, path)...)
		status := filepath.Join(dir, "status")
		c.Env = append(os.Environ(), "GOGC=", asCommand+"=1", statusFile+"="+status) // with memory as for users
		text, err := c.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s: %.1000s", args, text))
		of, err := os.ReadFile(status)
		qt.Assert(t, qt.IsNil(err))
		most := peak.FindSubmatch(of)
		qt.Assert(t, qt.HasLen(most, 2))
		kB, err := strconv.Atoi(string(most[1]))
		qt.Assert(t, qt.IsNil(err))
		t.Logf("%s: %d MiB", args, kB>>10)
		qt.Check(t, qt.IsTrue(kB<<10 <= base+each*live), qt.Commentf("%s: %d kB", args, kB))
	}
}
