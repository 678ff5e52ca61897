package memoryviz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// pytorch is a folder with the viewer of PyTorch 2.6.0, as Debian 13 has it.
func pytorch(t testing.TB) string {
	t.Helper()
	dir, err := rig.PyTorch(t.Context())
	qt.Assert(t, qt.IsNil(err))
	return dir
}

// A snapshot that is written.
type snapshot struct{ *pagetest.Export[*Writer] }

func create(t testing.TB) *snapshot {
	t.Helper()
	return &snapshot{pagetest.NewExport(t, "model.pickle", New)}
}

// buffer adds an Alloc or a Free in DRAM.
func (s *snapshot) buffer(kind event.Kind, pid int, id, address, perBank uint64, devices ...int) {
	e := pagetest.Buffer(kind, id, event.DRAM, address, perBank, pagetest.Stack("add", "forward", 12), devices...)
	e.PID = pid
	s.Event(e)
}

func (s *snapshot) open(pid int, devices ...int) {
	s.Event(event.Event{Kind: event.DeviceOpen, PID: pid, Allocator: 1, Devices: devices, Open: &event.Open{Capacities: pagetest.Capacities}})
}

// A view is what the viewer makes of a device.
type view struct {
	Name     string
	Peak     uint64
	Context  string
	Ooms     []string
	Maps     [][2]uint64 // capacity and use, after each event
	Segments []viewSegment
}

// last is the use after the last event.
func (v *view) last() uint64 { return v.Maps[len(v.Maps)-1][1] }

type viewSegment struct {
	Address, Size uint64
	Blocks        [][3]any
}

// view runs the code of the viewer.
func (s *snapshot) view() (list []view) {
	s.T.Helper()
	out := run(s.T, "node", "testdata/view.js", filepath.Join(pytorch(s.T), "torch/utils/viz/MemoryViz.js"), s.Path)
	qt.Assert(s.T, qt.IsNil(json.Unmarshal([]byte(out), &list)))
	return list
}

// run gives what a program prints.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", &errs))
	return string(out)
}

// TestBuffersNameTheirOwners in the text of their allocation, also if these are found later.
func TestBuffersNameTheirOwners(t *testing.T) {
	s := create(t)
	s.open(1, 0, 1)
	s.buffer(event.Alloc, 1, 7, 0x1000, 4096, 0, 1)
	s.buffer(event.Alloc, 1, 8, 0x4000, 2048, 1)
	for _, path := range []string{"a", "model.wq\x1b", ""} { // the last one was not found again
		s.Event(event.Event{Kind: event.Owner, PID: 1, BufferID: 7, Cause: path, Message: "bf16[32,32] TILE"})
	}
	s.buffer(event.Free, 1, 7, 0, 0)
	s.Close()
	out := run(t, "python3", "-c", `import pickle, sys
for trace in pickle.load(open(sys.argv[1], "rb"))["device_traces"]:
    for e in trace:
        if e["action"] == "alloc": print(e["user_metadata"])`, s.Path)
	held := ", held by " + event.Printable("model.wq\x1b") + " · bf16[32,32] TILE\n"
	qt.Check(t, qt.Equals(out, "chip 0 DRAM, PID 1, buffer 7 at 0x1000 of each bank"+held+
		"chip 1 DRAM, PID 1, buffer 7 at 0x1000 of each bank"+held+"chip 1 DRAM, PID 1, buffer 8 at 0x4000 of each bank\n"))
}

func TestTheViewerShowsBuffers(t *testing.T) {
	s := create(t)
	s.open(1, 0, 1)
	s.buffer(event.Alloc, 1, 7, 0x1000, 4096, 0, 1)
	s.buffer(event.Alloc, 1, 8, 0x4000, 2048, 1)
	s.buffer(event.Free, 1, 7, 0, 0)
	failed := pagetest.Buffer(event.AllocFailed, 0, event.DRAM, 0, 1<<20, nil, 1)
	failed.Reason = event.ReasonOutOfMemory
	s.Event(failed)
	s.Event(event.Event{Kind: event.AllocFailed, PID: 1, Devices: []int{1}, Region: event.CB, SizeBytes: 2048, Reason: event.ReasonStaticClash})
	s.Close()

	list := s.view()
	qt.Assert(t, qt.HasLen(list, 3))
	first, second, l1 := list[0], list[1], list[2]
	qt.Check(t, qt.Equals(first.Name, "chip 0 DRAM"))
	qt.Check(t, qt.Equals(second.Name, "chip 1 DRAM"))
	qt.Check(t, qt.Equals(l1.Name, "chip 1 L1"))
	qt.Check(t, qt.Equals(first.Peak, 12*4096))
	qt.Check(t, qt.Equals(first.last(), 0))
	qt.Check(t, qt.Equals(second.Peak, 12*(4096+2048)))
	qt.Check(t, qt.Equals(second.last(), 12*2048))
	// the address is that of a bank times the number of banks
	qt.Check(t, qt.StringContains(second.Context, fmt.Sprintf("Addr: b%x_1, Size: 48.0KiB (49152 bytes) allocation", 12*0x1000)))
	qt.Check(t, qt.StringContains(second.Context, "_ttnncpp.so:0:ttnn::add\n"))
	qt.Check(t, qt.StringContains(second.Context, "\n/srv/model.py:12:forward\n/srv/run.py:7:<module>"))
	qt.Check(t, qt.StringContains(second.Context, "timestamp Tue Nov 14 2023 22:30:00"))
	qt.Check(t, qt.DeepEquals(second.Ooms, []string{"OOM (requested 12.0MiB (12582912 bytes), CUDA has 12.0MiB (12558336 bytes) memory free)"}))
	qt.Check(t, qt.DeepEquals(l1.Ooms, []string{"OOM (requested 2.0KiB (2048 bytes), CUDA has 4.0MiB (4194304 bytes) memory free)"}))
	// the map: after two allocations, a free and a failure
	const capacity = 12 << 20
	qt.Check(t, qt.DeepEquals(second.Maps, [][2]uint64{{capacity, 12 * 4096}, {capacity, 12 * (4096 + 2048)}, {capacity, 12 * 2048}, {capacity, 12 * 2048}}))
	qt.Check(t, qt.DeepEquals(second.Segments, []viewSegment{{12 * 0x1000, capacity, [][3]any{
		{12 * 4096., 12 * 12288., "inactive"}, {12 * 16384., 12 * 2048., "active_allocated"},
		{12 * 18432., capacity - 12*14336., "inactive"},
	}}}))
}

// TestBuffersAtOneAddress: of two processes, and on single cores.
func TestBuffersAtOneAddress(t *testing.T) {
	s := create(t)
	s.open(1, 0)
	s.open(2, 0)
	s.buffer(event.Alloc, 1, 1, 0x1000, 4096, 0)
	s.buffer(event.Alloc, 2, 1, 0x1000, 2048, 0)
	s.buffer(event.Alloc, 2, 2, 0x1800, 4096, 0) // overlaps that of the other process
	single := pagetest.Buffer(event.Alloc, 3, event.L1, 0, 256, nil, 0)
	single.PerCore, single.Banks = true, 4
	for single.BufferID < 6 { // at addresses that differ by core
		single.BufferID++
		s.Event(single)
	}
	s.buffer(event.Free, 1, 1, 0, 0)
	s.buffer(event.Alloc, 2, 2, 0x2800, 64, 0) // the end of the one before was lost
	s.Close()
	list := s.view()
	qt.Assert(t, qt.HasLen(list, 2))
	dram, l1 := list[0], list[1]
	qt.Check(t, qt.Equals(dram.Peak, 12*(4096+2048+4096)))
	qt.Check(t, qt.Equals(dram.last(), 12*(2048+64)))
	qt.Check(t, qt.HasLen(dram.Segments, 2))
	qt.Check(t, qt.Equals(l1.last(), 3*4*256))
	qt.Check(t, qt.DeepEquals(l1.Segments[1].Blocks, [][3]any{
		{1<<52 + 12*2048., 1024., "active_allocated"}, {1<<52 + 12*2048. + 1024, 1024., "active_allocated"},
		{1<<52 + 12*2048. + 2048, 1024., "active_allocated"},
	}))
}

// TestTheTimelineAgreesWithTheState: the peak of each region, and what is live at the end.
func TestTheTimelineAgreesWithTheState(t *testing.T) {
	s := create(t)
	random := rand.New(rand.NewPCG(1, 1))
	sets := [][]int{{0}, {1}, {0, 1}}
	s.open(1, 0, 1)
	s.open(2, 0, 1)
	for range 2500 { // more than a batch
		pid, id := 1+random.IntN(2), uint64(random.IntN(60))
		switch random.IntN(300) {
		case 0:
			s.Event(event.Event{Kind: event.DeviceClose, PID: pid, Allocator: 1, Devices: []int{0, 1}})
			s.open(pid, 0, 1)
		case 1:
			s.Event(event.Event{Kind: event.ProcessExit, PID: pid})
			s.open(pid, 0, 1)
		default:
			kind := event.Alloc
			if random.IntN(2) == 0 {
				kind = event.Free
			}
			s.buffer(kind, pid, id, 0x1000+(60*uint64(pid)+id)*4096, 64*uint64(1+random.IntN(64)), sets[random.IntN(3)]...)
		}
	}
	s.Close()
	for i, v := range s.view() {
		region := s.State.Snapshot().Devices[i].Regions.DRAM
		qt.Check(t, qt.Equals(v.Peak, region.PeakBytes))
		qt.Check(t, qt.Equals(v.last(), region.AllocatedBytes))
	}
}

// TestARecordingThatContinuesAnother begins with what is live.
func TestARecordingThatContinuesAnother(t *testing.T) {
	before := create(t)
	before.open(1, 0)
	before.buffer(event.Alloc, 1, 1, 0x1000, 4096, 0)
	s := create(t)
	s.Apply(before.State.Checkpoint())
	s.Now = before.Now
	s.buffer(event.Alloc, 1, 2, 0x4000, 4096, 0)
	s.buffer(event.Free, 1, 1, 0, 0)
	s.Close()
	before.Close()
	list := s.view()
	qt.Check(t, qt.Equals(list[0].Peak, 2*12*4096))
	qt.Check(t, qt.Equals(list[0].last(), 12*4096))
	qt.Check(t, qt.Equals(list[0].Segments[0].Size, 12<<20))
}

// Names and figures of a hostile program do not break the snapshot of others.
func TestHostilePrograms(t *testing.T) {
	const hostile = "</script><img src=x onerror=alert(1)>\x1b]0;owned\x07\x00\xff\n日本"
	s := create(t)
	s.open(1, 0)
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: hostile, File: hostile, Line: -1}, {Kind: event.Native, Address: 1 << 63}})
	for i, e := range []event.Event{
		{Address: 1<<64 - 1, SizeBytes: 1<<64 - 1, BytesPerBank: 1<<64 - 1, Banks: 1<<32 - 1},
		{Address: 1 << 39, SizeBytes: 1 << 39, BytesPerBank: 1 << 35, Banks: 1}, {Region: event.SystemMemory, BytesPerBank: 16, Banks: 1}, {},
	} {
		e.Kind, e.PID, e.BufferID, e.Stack, e.Devices = event.Alloc, 9, uint64(i), stack, []int{0}
		s.Event(e)
		e.Kind, e.Reason = event.AllocFailed, event.ReasonOutOfMemory
		s.Event(e)
	}
	s.Event(event.Event{Kind: event.Alloc, PID: 9, BufferID: 77, BytesPerBank: 16, Banks: 1}) // on no chip
	s.buffer(event.Alloc, 1, 1, 0x1000, 4096, 0)
	s.buffer(event.Free, 1, 1, 0, 0)
	s.Close()
	list := s.view()
	qt.Assert(t, qt.HasLen(list, 3))
	qt.Check(t, qt.Equals(list[0].Name, "unknown chip DRAM"))
	qt.Check(t, qt.Equals(list[1].Peak-list[1].last(), 12*4096))
	qt.Check(t, qt.StringContains(list[1].Context, "\n</script><img src=x onerror=alert(1)>]0;owned\ufffd 日本:0:</script>"))
	qt.Check(t, qt.StringContains(list[1].Context, "\n:0:0x8000000000000000"))
}

// PyTorch's own Python reads it too.
func TestPython(t *testing.T) {
	s := create(t)
	s.open(1, 0)
	s.buffer(event.Alloc, 1, 7, 0x1000, 4096, 0)
	s.buffer(event.Alloc, 1, 8, 0x4000, 2048, 0)
	s.buffer(event.Free, 1, 7, 0, 0)
	s.Close()
	script := filepath.Join(pytorch(t), "torch/cuda/_memory_viz.py")
	qt.Check(t, qt.StringContains(run(t, "python3", script, "stats", s.Path), "12.0MiB")) // reserved
	qt.Check(t, qt.Equals(run(t, "python3", script, "trace", s.Path), `Device 0 ----------------
4 entries
a = seg_0[0:48.0KiB]
b = MEM[196608:24.0KiB]
del a # 48.0KiB
# free completed for a 48.0KiB
TOTAL MEM: -48.0KiB
`))
	qt.Check(t, qt.Equals(strings.TrimSpace(run(t, "python3", "-c", `import pickle, sys
for e in pickle.load(open(sys.argv[1], "rb"))["device_traces"][0]:
    print(e["action"], e["addr"], e["size"], e["time_us"], [f["line"] for f in e["frames"]], e.get("user_metadata", ""))`, s.Path)), `
alloc 49152 49152 1700001000002000 [0, 0, 0, 1245, 12, 7] chip 0 DRAM, PID 1, buffer 7 at 0x1000 of each bank
alloc 196608 24576 1700001000003000 [0, 0, 0, 1245, 12, 7] chip 0 DRAM, PID 1, buffer 8 at 0x4000 of each bank
free_requested 49152 49152 1700001000004000 [0, 0, 0, 1245, 12, 7] 
free_completed 49152 49152 1700001000004000 [0, 0, 0, 1245, 12, 7]`[1:]))
}

func TestNoEvents(t *testing.T) {
	s := create(t)
	s.Close()
	qt.Check(t, qt.HasLen(s.view(), 0))
}

// A disk that is full is an error.
func TestAFullDisk(t *testing.T) {
	s := create(t)
	s.open(1, 0)
	s.buffer(event.Alloc, 1, 7, 0x1000, 4096, 0)
	qt.Assert(t, qt.IsNil(s.Out.Close()))
	qt.Check(t, qt.ErrorIs(s.Writer.Close(), os.ErrClosed))
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	_, err := New(nil, nil)
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}

// BenchmarkMillion exports a million events of buffers.
func BenchmarkMillion(b *testing.B) {
	var stacks []*event.Stack
	for line := range 500 {
		stacks = append(stacks, pagetest.Stack("add", "forward", line+1))
	}
	for b.Loop() {
		s := create(b)
		const live, loops = 5000, 502_500
		for i := range uint64(loops) {
			s.Event(pagetest.Buffer(event.Alloc, i, event.DRAM, i%live*4096, 4096, stacks[i%500], 0))
			if i >= live {
				s.Event(pagetest.Buffer(event.Free, i-live, event.DRAM, 0, 0, nil))
			}
		}
		s.Close()
		info, err := os.Stat(s.Path)
		qt.Assert(b, qt.IsNil(err))
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
}
