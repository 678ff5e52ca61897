package tracer

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/bpf"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/kernel"
)

// rereadsFind lets each reading of a process's memory find what is given, and counts them.
func rereadsFind(d *decoder, found memory) (started *int) {
	started = new(int)
	d.process(7).mapped = new(host.NewMapping)
	d.reread = func(p *process) context.CancelCauseFunc {
		*started++
		p.recovery.beganNs = 5e9
		d.inbox.add(result{p, found.readNs, func(d *decoder) bool {
			d.rereading.Take(p.user, -1)
			return d.takeReread(p, &found)
		}})
		return func(error) {}
	}
	return started
}

// rereadUntil takes results up to a time, and begins to read.
func rereadUntil(d *decoder, ns uint64) {
	d.inbox.take(d, ns)
	d.rereadAll(ns)
}

func bufferRecord(ns uint64, object, id uint64) *bpf.KernelBufferRecord {
	r := &bpf.KernelBufferRecord{Object: object, UniqueId: id, Device: 0x1000, Allocator: 0x2000}
	r.H = bpf.KernelHeader{TimeNs: ns, Tgid: 7, Tid: 7, Kind: bpf.RecordAlloc}
	r.Window[9], r.Window[41] = 4, 4 // 1024 bytes, in pages of as many
	return r
}

func readBuffer(object, id uint64) heap.Buffer {
	return heap.Buffer{
		Object: object, ID: id, Device: 0x1000, Allocator: 0x2000, SizeBytes: 1024, BytesPerBank: 1024, Banks: 1,
	}
}

// TestRereadCorrects: after a loss the decoder's buffers become those of the process's memory,
// but for those that events are about that came after the loss.
func TestRereadCorrects(t *testing.T) {
	d := newTestDecoder()
	started := rereadsFind(d, memory{readNs: 6e9, Reading: books.Reading{Buffers: []heap.Buffer{
		readBuffer(1, 1), readBuffer(3, 30), readBuffer(4, 4), readBuffer(5, 5),
	}}})
	dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
	dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Count: 1}
	dev.Banks[event.DRAM] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 1, AlignmentBytes: 16}
	d.decode(raw(&dev))
	for object := uint64(1); object <= 3; object++ {
		d.decode(raw(bufferRecord(2e9, object, object)))
	}
	d.lose(d.process(7), kernel.Causes[bpf.KernelLostCauseLOST_RING_FULL], 1, 3e9)
	d.reportLosses()
	rereadUntil(d, 3.1e9)
	d.decode(raw(bufferRecord(3.5e9, 6, 6))) // it is not in what was read: it was too young
	free := bpf.KernelFreeRecord{Object: 5}  // its allocation was lost, and it was read before it was freed
	free.H = bpf.KernelHeader{TimeNs: 3.6e9, Tgid: 7, Tid: 7, Kind: bpf.RecordFree}
	d.decode(raw(&free))
	d.queue.Events = nil

	rereadUntil(d, 3.9e9)
	qt.Check(t, qt.Equals(*started, 0)) // events were followed for less than a second
	rereadUntil(d, 5e9)
	rereadUntil(d, 5.9e9)
	qt.Check(t, qt.Equals(*started, 1))
	qt.Check(t, qt.HasLen(d.queue.Events, 0)) // events of before the end of the reading may come
	rereadUntil(d, 6.1e9)
	type correction struct {
		kind   event.Kind
		id     uint64
		reread bool
	}
	var list []correction
	for _, e := range d.queue.Events {
		list = append(list, correction{e.Kind, e.BufferID, e.Reread})
		qt.Check(t, qt.Equals(e.TimeNs, 6e9))
	}
	qt.Assert(t, qt.HasLen(list, 5))
	slices.SortFunc(list[:2], func(a, b correction) int { return cmp.Compare(a.id, b.id) })
	qt.Check(t, qt.IsTrue(slices.Equal(list, []correction{
		{event.Free, 2, true}, {event.Free, 3, true}, {event.Alloc, 30, true}, {event.Alloc, 4, true}, {event.Reread, 0, false},
	})), qt.Commentf("%v", list))
	qt.Check(t, qt.HasLen(d.recovering, 0))
}

// TestRereadLacksSizes: what a sharded buffer takes cannot always be read. The figures are right
// all the same if events reported it, and stay doubtful if its allocation was lost.
func TestRereadLacksSizes(t *testing.T) {
	sharded := func(object uint64, perCore bool) heap.Buffer {
		b := readBuffer(object, object)
		b.BytesPerBank, b.Banks, b.Layout, b.PerCore = 0, 0, event.HeightSharded, perCore
		return b
	}
	for name, c := range map[string]struct {
		buffers []heap.Buffer
		right   bool
	}{
		"reported":                 {[]heap.Buffer{sharded(1, false), readBuffer(2, 2)}, true},
		"reported on single cores": {[]heap.Buffer{sharded(1, true)}, true},
		"lost":                     {[]heap.Buffer{readBuffer(1, 1), sharded(2, false)}, false},
		"lost on single cores":     {[]heap.Buffer{readBuffer(1, 1), sharded(2, true)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDecoder()
			started := rereadsFind(d, memory{readNs: 6e9, Reading: books.Reading{Buffers: c.buffers}})
			dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000}
			dev.H = bpf.KernelHeader{TimeNs: 1, Tgid: 7, Tid: 7, Kind: bpf.RecordDevice, Count: 1}
			dev.Banks[event.DRAM] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 1, AlignmentBytes: 16}
			d.decode(raw(&dev))
			d.decode(raw(bufferRecord(2e9, 1, 1)))
			d.lose(d.process(7), kernel.Causes[bpf.KernelLostCauseLOST_RING_FULL], 1, 3e9)
			d.reportLosses()
			for _, ns := range []uint64{3.1e9, 5e9, 6.1e9} {
				rereadUntil(d, ns)
			}
			qt.Check(t, qt.Equals(*started, 1))
			qt.Check(t, qt.Equals(d.queue.Events[len(d.queue.Events)-1].Kind == event.Reread, c.right))
			qt.Check(t, qt.Equals(len(d.recovering) == 0, c.right))
		})
	}
}

// TestRereadAfterAnotherLoss: what was read while the process lost more is not used.
func TestRereadAfterAnotherLoss(t *testing.T) {
	d := newTestDecoder()
	started := rereadsFind(d, memory{readNs: 6e9})
	d.decode(raw(bufferRecord(2e9, 1, 1)))
	d.reportLosses() // its device is not known
	rereadUntil(d, 3e9)
	rereadUntil(d, 5e9)
	d.lose(d.process(7), kernel.Causes[bpf.KernelLostCauseLOST_RING_FULL], 1, 5.5e9)
	d.queue.Events = nil
	rereadUntil(d, 6.1e9)
	qt.Assert(t, qt.HasLen(d.queue.Events, 1))
	qt.Check(t, qt.Equals(d.queue.Events[0].Kind, event.Lost))
	rereadUntil(d, 9e9)
	qt.Check(t, qt.Equals(*started, 1))
	rereadUntil(d, 5e9+rereadNs)
	rereadUntil(d, 5e9+rereadNs+quietNs)
	qt.Check(t, qt.Equals(*started, 2))
	d.end(d.process(7), event.Event{})
	qt.Check(t, qt.HasLen(d.recovering, 0))
}

const burstProgram = `
import json, random, sys
sys.path.insert(0, sys.argv[1])
import ttnn
from device import memory, open_device
print("ready", flush=True)
dice, held = random.Random(7), []
sys.stdin.readline()
device = open_device()
grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 3))})
spec = ttnn.ShardSpec(grid, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
sharded = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec)
places = [([32, 32], ttnn.DRAM_MEMORY_CONFIG), ([64, 96], ttnn.DRAM_MEMORY_CONFIG), ([32, 32], ttnn.L1_MEMORY_CONFIG), ([512, 64], sharded)]
print("done", flush=True)
for line in sys.stdin:
    for i in range(600):
        if len(held) > 60 or held and dice.random() < 0.45:
            ttnn.deallocate(held.pop(dice.randrange(len(held))))
        else:
            shape, place = dice.choice(places)
            held.append(ttnn.empty(shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, place))
    print(json.dumps(memory(device)), flush=True)
`

// TestFiguresAreRightAfterALoss: with a ring buffer that is much too small for it, a program
// loses most of its events. Its figures become those of the library's own allocator again.
func TestFiguresAreRightAfterALoss(t *testing.T) {
	tracetest.NeedsRoot(t)
	env, err := rig.Setup(context.Background(), rig.Options{Version: "0.81.1", Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	p := &tracetest.Program{Cmd: env.Command(context.Background(), rig.N150, "-c", burstProgram, tracetest.Programs(t))}
	p.Dir = t.TempDir()
	p.Env = append(p.Env, "TTMEM_MESH=1x1")
	p.StartReady(t)
	_, events := traceWith(t, Options{Processes: []int{p.Process.Pid}, NoStacks: true, RingBytes: 16 << 10})
	p.Tell(t, "open")
	qt.Assert(t, qt.Equals(p.Line(t), "done"))
	for round := range 2 {
		p.Tell(t, "burst")
		var want map[string]struct {
			Allocated uint64      `json:"allocated_per_bank"`
			Blocks    [][2]uint64 `json:"blocks"`
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(p.Line(t)), &want)))
		state, lost, reread, corrections := aggregate.New(), uint64(0), 0, 0
		for deadline := time.Now().Add(40 * time.Second); reread <= round; time.Sleep(100 * time.Millisecond) {
			qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)), qt.Commentf("no reread in round %d; %d lost", round, lost))
			state, lost, reread, corrections = aggregate.New(), 0, 0, 0
			for _, e := range events() {
				state.Apply(&e)
				switch {
				case e.Kind == event.Lost:
					qt.Check(t, qt.Equals(e.PID, p.Process.Pid))
					lost += e.Count
				case e.Kind == event.Reread:
					reread++
				case e.Reread:
					corrections++
				}
			}
		}
		t.Logf("%d lost, %d corrections", lost, corrections)
		qt.Check(t, qt.Not(qt.Equals(lost, 0)))
		snap := state.Snapshot()
		qt.Check(t, qt.HasLen(snap.Lost, 0))
		qt.Check(t, qt.HasLen(snap.Losses(true, nil).Processes, 0))
		qt.Check(t, qt.HasLen(snap.Losses(false, nil).Processes, 1))
		for _, region := range []event.Region{event.DRAM, event.L1} {
			w := want[region.String()]
			qt.Check(t, qt.Equals(snap.Devices[0].Regions.Banked(region).BytesPerBank, w.Allocated), qt.Commentf("round %d, %s", round, region))
			space := state.Space(snap.Devices[0].ID, region)
			var blocks [][2]uint64
			for _, b := range space.Blocks {
				blocks = append(blocks, [2]uint64{b.Address - space.Start, b.BytesPerBank})
			}
			slices.SortFunc(w.Blocks, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
			qt.Check(t, qt.DeepEquals(blocks, w.Blocks))
		}
	}
}
