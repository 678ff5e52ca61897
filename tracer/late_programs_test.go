package tracer

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// opsProgram compiles programs with circular and dataflow buffers, in tensors too,
// and does so again for each line, or drops them for the line "clear".
const opsProgram = `
import sys
sys.path.insert(0, sys.argv[1])
import ttnn
from device import open_device
print("ready", flush=True)
sys.stdin.readline()
device = open_device()
TILE, BF16, kinds = ttnn.TILE_LAYOUT, ttnn.bfloat16, ttnn.TensorMemoryLayout

def sharded(layout, shape, x, y):
    grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(x - 1, y - 1))})
    spec = ttnn.ShardSpec(grid, list(shape), ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(layout, ttnn.BufferType.L1, spec)

def empty(shape, config):
    return ttnn.empty(list(shape), BF16, TILE, device, config)

a = empty((1, 1, 512, 512), ttnn.DRAM_MEMORY_CONFIG)
b = empty((1, 1, 512, 512), ttnn.L1_MEMORY_CONFIG)
weight = empty((1, 1, 64, 64), ttnn.DRAM_MEMORY_CONFIG)
gamma = empty((1, 1, 32, 512), ttnn.DRAM_MEMORY_CONFIG)
shard = empty((1, 1, 512, 64), sharded(kinds.HEIGHT_SHARDED, (32, 64), 4, 4))

def run():
    for op in (
        lambda: ttnn.add(a, a),
        lambda: ttnn.add(b, b),
        lambda: ttnn.relu(a),
        lambda: ttnn.matmul(a, a),
        lambda: ttnn.softmax(a),
        lambda: ttnn.to_memory_config(a, ttnn.L1_MEMORY_CONFIG),
        lambda: ttnn.to_memory_config(a, sharded(kinds.HEIGHT_SHARDED, (32, 512), 4, 4)),
        lambda: ttnn.relu(shard),
        lambda: ttnn.add(shard, shard),
        lambda: ttnn.matmul(shard, weight, memory_config=shard.memory_config()),
        lambda: ttnn.transpose(a, -2, -1),
        lambda: ttnn.layer_norm(a, weight=gamma, bias=gamma),
        lambda: ttnn.sum(a, dim=-1),
        lambda: ttnn.concat([a, a], dim=-1),
    ):
        try:
            op()
        except RuntimeError:
            pass

run()
print("done", flush=True)
for line in sys.stdin:
    if line == "clear\n":
        device.clear_program_cache()
    else:
        run()
    print("done", flush=True)
`

// startOps starts opsProgram.
func startOps(t *testing.T, version string, board rig.Board, mesh string, environ ...string) *nativeProgram {
	t.Helper()
	env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	programs, err := filepath.Abs(filepath.Join("..", "e2e", "programs"))
	qt.Assert(t, qt.IsNil(err))
	p := &nativeProgram{Cmd: env.Command(context.Background(), board, "-c", opsProgram, programs)}
	p.Dir = t.TempDir()
	p.Env = append(append(p.Env, "TTMEM_MESH="+mesh), environ...)
	p.start(t)
	return p
}

// run has the program do something, and waits until it is done.
func (p *nativeProgram) run(t *testing.T, what string) {
	t.Helper()
	p.tell(t, what)
	qt.Assert(t, qt.Equals(p.line(t), "done"))
}

// traceProgram traces a program, and gives all events up to when it is asked.
func traceProgram(t *testing.T, pid int) (tr *Tracer, events func() []event.Event) {
	t.Helper()
	tr, err := New(Options{Processes: []int{pid}, NoStacks: true, Warn: func(line string) { t.Log(line) }})
	qt.Assert(t, qt.IsNil(err))
	var mu sync.Mutex
	var list []event.Event
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		handle := func(e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, *e)
		}
		qt.Check(t, qt.IsNil(tr.Run(ctx, handle, func() {})))
	})
	t.Cleanup(func() { cancel(); running.Wait(); tr.Close() })
	return tr, func() []event.Event {
		time.Sleep(200 * time.Millisecond) // what happened is told of by then
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

// heldProgram is what a program holds by its events.
type heldProgram struct {
	lateProgram
	devices []int
	kernels bool // told of
}

// heldPrograms are the live programs by their events, by id.
func heldPrograms(t *testing.T, events []event.Event) map[uint64]*heldProgram {
	t.Helper()
	held := make(map[uint64]*heldProgram)
	for _, e := range events {
		if e.Kind == event.Lost {
			t.Errorf("lost: %d %s", e.Count, e.Cause)
		}
		if e.ProgramID == 0 && e.Kind != event.CBAlloc && e.Kind != event.KernelLoad {
			continue
		}
		p := held[e.ProgramID]
		if p == nil {
			p = &heldProgram{lateProgram: lateProgram{id: e.ProgramID}}
			held[e.ProgramID] = p
		}
		switch e.Kind {
		case event.CBAlloc:
			s := lateStatic{e.Address, e.SizeBytes, e.Cores, e.StaticKind, e.Global}
			same := func(other lateStatic) bool { return compareStatics(s, other) == 0 }
			if !slices.ContainsFunc(p.statics, same) { // each device of a mesh is told of
				p.statics = append(p.statics, s)
			}
			for _, d := range e.Devices {
				if !slices.Contains(p.devices, d) {
					p.devices = append(p.devices, d)
				}
			}
		case event.CBFree:
			p.statics = slices.DeleteFunc(p.statics, func(s lateStatic) bool {
				return e.StaticKind == event.NotStatic || s.kind == e.StaticKind ||
					s.kind == event.Scratchpad && e.StaticKind == event.DataflowBuffer
			})
		case event.KernelLoad:
			p.binaryBytes, p.textBytes, p.kernels = e.SizeBytes, e.BytesPerBank, true
		case event.KernelUnload:
			p.binaryBytes, p.textBytes, p.kernels = 0, 0, false
		}
	}
	return held
}

func compareStatics(a, b lateStatic) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.address, b.address), cmp.Compare(a.bytes, b.bytes),
		strings.Compare(fmt.Sprint(a.cores, a.global), fmt.Sprint(b.cores, b.global)))
}

// describe is a program's memory as a line for each place, sorted.
func describe(p lateProgram) string {
	var b strings.Builder
	list := slices.SortedFunc(slices.Values(p.statics), compareStatics)
	list = slices.CompactFunc(list, func(a, b lateStatic) bool { return compareStatics(a, b) == 0 })
	for _, s := range list {
		fmt.Fprintf(&b, "%v %#x %d %v global %v\n", s.kind, s.address, s.bytes, s.cores, s.global)
	}
	fmt.Fprintf(&b, "binary %d text %d\n", p.binaryBytes, p.textBytes)
	return b.String()
}

// TestReadPrograms: what is read of a program from memory is what the events of its
// compilation told, for all programs of a process.
func TestReadPrograms(t *testing.T) {
	const slow = "TT_METAL_SLOW_DISPATCH_MODE=1"
	circular := []event.StaticKind{event.CircularBuffer}
	mixed := []event.StaticKind{event.CircularBuffer, event.DataflowBuffer, event.Scratchpad}
	for _, c := range []struct {
		version string
		board   rig.Board
		mesh    string
		environ []string
		// globals: circular buffers that lie in tensors are told of; before 0.70.1
		// they are not
		globals bool
		kinds   []event.StaticKind
	}{
		{"0.81.1", rig.N150, "1x1", nil, true, mixed},
		{"0.81.1", "n300", "1x2", nil, true, mixed},
		{"0.81.1", rig.N150, "1x1", []string{slow}, true, mixed},
		{"0.80.0", rig.N150, "1x1", nil, true, mixed},
		{"0.76.0", rig.N150, "1x1", nil, true, circular},
		{"0.76.0", "t3000", "1x8", nil, true, circular},
		{"0.75.0", rig.N150, "1x1", nil, true, circular},
		{"0.66.0", rig.N150, "1x1", nil, false, circular},
	} {
		t.Run(strings.Join(append([]string{c.version, string(c.board)}, c.environ...), "/"), func(t *testing.T) {
			p := startOps(t, c.version, c.board, c.mesh, c.environ...)
			pid := p.Process.Pid
			tr, events := traceProgram(t, pid)
			p.run(t, "go")
			p.run(t, "again")
			held := heldPrograms(t, events())
			kinds := map[event.StaticKind]int{}
			var took time.Duration
			var key bpf.KernelObjectKey
			value := make([]byte, tr.objs.Programs.ValueSize())
			for objects := tr.objs.Programs.Iterate(); objects.Next(&key, &value); {
				id := binary.LittleEndian.Uint64(value)
				start := time.Now()
				got, err := tr.finder.libraries.list[0].readProgram(pid, key.Object)
				took += time.Since(start)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(got.id, id))
				for _, s := range got.statics {
					kinds[s.kind]++
				}
				want := held[id]
				if want == nil { // the kernel side has looked at it, and no event tells of it
					want = &heldProgram{}
					alike(&got, want, c.globals)
					qt.Check(t, qt.HasLen(got.statics, 0), qt.Commentf("program %d: %s", id, describe(got)))
					continue
				}
				delete(held, id)
				alike(&got, want, c.globals)
				qt.Check(t, qt.Equals(describe(got), describe(want.lateProgram)), qt.Commentf("program %d", id))
			}
			qt.Check(t, qt.HasLen(held, 0)) // all were read
			qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(kinds)), c.kinds))
			t.Log(kinds, "read in", took)
		})
	}
}

// alike takes out of what was read what no event tells of: circular buffers in tensors
// of programs that have no others, for which there is nothing to allocate; and, with
// slow dispatch, which does without the functions that are probed, kernels and the
// scratchpads that are read with them.
func alike(read *lateProgram, told *heldProgram, globals bool) {
	local := func(s lateStatic) bool { return s.kind == event.CircularBuffer && !s.global }
	read.statics = slices.DeleteFunc(read.statics, func(s lateStatic) bool {
		return s.kind == event.Scratchpad && !told.kernels || s.global && !(globals && slices.ContainsFunc(told.statics, local))
	})
	if !told.kernels {
		read.textBytes = 0
	}
}

// TestDivide: a region becomes as many parts as buffers lie in it, where there is one
// way to do so.
func TestDivide(t *testing.T) {
	here, there := event.CoreRange{X1: 7, Y1: 7}, event.CoreRange{X0: 8, X1: 9, Y1: 7}
	buffers := func(sizes ...uint64) (list []lateDataflow) {
		for _, bytes := range sizes {
			list = append(list, lateDataflow{bytes, []event.CoreRange{here}})
		}
		return list
	}
	whole := []span{{100, 160}}
	for _, c := range []struct {
		name    string
		regions []span
		buffers []lateDataflow
		parts   []span
		rest    span
	}{
		{"one after the other", whole, buffers(20, 40), []span{{100, 120}, {120, 160}}, span{}},
		{"one shares the place of another", whole, buffers(20, 40, 40), []span{{100, 120}, {120, 160}}, span{}},
		{"one lies in a tensor", whole, buffers(60, 20, 70), []span{{100, 160}}, span{}},
		{"which one does is not known", whole, buffers(20, 40, 20), whole, span{}},
		{"no way", whole, buffers(50, 20), whole, span{}},
		{"two regions", []span{{100, 120}, {128, 160}}, buffers(20, 32), []span{{100, 120}, {128, 160}}, span{}},
		{"scratchpads behind them", whole, buffers(20, 30), []span{{100, 120}, {120, 150}}, span{150, 160}},
		{"scratchpads alone", whole, nil, nil, span{100, 160}},
		{"scratchpads alone on these cores", whole, []lateDataflow{{60, []event.CoreRange{there}}}, nil, span{100, 160}},
		{"an empty one", whole, buffers(0, 60), whole, span{}},
		{"none", nil, buffers(20), nil, span{}},
		{"too many ways", []span{{0, 1 << 20}}, buffers(slices.Repeat([]uint64{3}, 64)...), []span{{0, 1 << 20}}, span{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts, rest := divide(c.regions, here, c.buffers)
			qt.Check(t, qt.IsTrue(slices.Equal(parts, c.parts)), qt.Commentf("%v", parts))
			qt.Check(t, qt.Equals(rest, c.rest))
		})
	}
}

// madeUpFields are where a made-up program has its fields, in words.
var madeUpFields = map[string]layout.Chain{
	"ProgramImpl.id":                                       {0},
	"ProgramImpl.circular_buffers_":                        {8},
	"ProgramImpl.local_circular_buffer_allocation_needed_": {24},
	"ProgramImpl.kernel_text_size":                         {32, 4},
	"ProgramImpl.binary_data(begin)":                       {48},
	"CircularBuffer.core_ranges":                           {0},
	"CircularBuffer.size":                                  {16},
	"CircularBuffer.local_address":                         {24},
	"CircularBuffer.has_local_address":                     {28},
	"CircularBuffer.global_address":                        {32},
	"CircularBuffer.is_global":                             {36},
}

// TestReadMadeUpProgram: what makes no sense, or is not there, is an error and
// nothing worse.
func TestReadMadeUpProgram(t *testing.T) {
	at := func(words []uint64) uint64 { return uint64(uintptr(unsafe.Pointer(&words[0]))) }
	for _, c := range []struct {
		name   string
		damage func(impl, cb, ranges []uint64)
		want   string
	}{
		{"as it is", func(_, _, _ []uint64) {}, ""},
		{"its buffers have no places yet", func(impl, cb, _ []uint64) { impl[3], cb[0] = 1, 1 }, ""},
		{"a vector ends before it begins", func(impl, _, _ []uint64) { impl[2] = impl[1] - 16 }, ".*makes no sense.*"},
		{"half an element", func(impl, _, _ []uint64) { impl[2] = impl[1] + 8 }, ".*makes no sense.*"},
		{"very many buffers", func(impl, _, _ []uint64) { impl[2] = impl[1] + 1<<30 }, ".*makes no sense.*"},
		{"a flag of 0x70", func(impl, _, _ []uint64) { impl[3] = 0x70 }, ".*makes no sense.*"},
		{"no vector there", func(impl, _, _ []uint64) { impl[1], impl[2] = 16, 32 }, ".*reading 16 bytes at 0x10.*bad address"},
		{"no buffer there", func(_, cb, _ []uint64) { cb[0], cb[1] = 64, 96 }, ".*reading 32 bytes at 0x40.*bad address"},
		{"a range that ends before it begins", func(_, _, ranges []uint64) { ranges[0] = 9 }, ".*makes no sense.*"},
		{"a range of very many cores", func(_, _, ranges []uint64) { ranges[2] = 1 << 40 }, ".*makes no sense.*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranges := []uint64{0, 1, 7, 8}
			cb := []uint64{0, 0, 4096, 1<<32 | 0x19d60, 0}
			shared, configs := make([]uint64, 2), []uint64{80 << 32}
			impl := make([]uint64, 8)
			var pin runtime.Pinner
			defer pin.Unpin()
			for _, words := range [][]uint64{ranges, cb, shared, configs, impl} {
				pin.Pin(&words[0])
			}
			cb[0], cb[1] = at(ranges), at(ranges)+32
			shared[0] = at(cb)
			copy(impl, []uint64{77, at(shared), at(shared) + 16, 0, at(configs), at(configs) + 8, 1000, 1400})
			c.damage(impl, cb, ranges)
			l := &heapLibrary{layout: &layout.Layout{Fields: madeUpFields}}
			p, err := l.readProgram(os.Getpid(), at(impl))
			runtime.KeepAlive(shared)
			if c.want != "" {
				qt.Assert(t, qt.ErrorMatches(err, `program at 0x[0-9a-f]+ of process \d+: `+c.want))
				return
			}
			qt.Assert(t, qt.IsNil(err))
			want := lateProgram{id: 77, binaryBytes: 400, textBytes: 80}
			if impl[3] == 0 {
				want.statics = []lateStatic{{0x19d60, 4096, []event.CoreRange{{X0: 0, Y0: 1, X1: 7, Y1: 8}}, event.CircularBuffer, false}}
			}
			qt.Check(t, qt.Equals(describe(p), describe(want)))
			qt.Check(t, qt.Equals(p.id, want.id))
		})
	}
	_, err := (&heapLibrary{layout: &layout.Layout{}}).readProgram(os.Getpid(), 1<<12)
	qt.Check(t, qt.ErrorMatches(err, ".*ProgramImpl.id is not known"))
}

// TestLatePrograms: a program that was compiled before the attach is told of when it
// is enqueued again, as if it had been compiled then, and so is its end.
func TestLatePrograms(t *testing.T) {
	for _, c := range []struct {
		version string
		board   rig.Board
		mesh    string
		globals bool
	}{
		{"0.81.1", rig.N150, "1x1", true},
		{"0.81.1", "n300", "1x2", true},
		{"0.76.0", "t3000", "1x8", true},
		{"0.66.0", rig.N150, "1x1", false},
	} {
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			early := startOps(t, c.version, c.board, c.mesh)
			_, earlyEvents := traceProgram(t, early.Process.Pid)
			early.run(t, "go")
			early.run(t, "again")
			want := heldPrograms(t, earlyEvents())
			early.run(t, "clear")

			late := startOps(t, c.version, c.board, c.mesh)
			late.run(t, "go")
			_, events := traceProgram(t, late.Process.Pid)
			late.run(t, "again")
			list := events()
			got := heldPrograms(t, list)
			for id, w := range want {
				g := got[id]
				if g == nil && len(w.statics) == 0 && w.binaryBytes+w.textBytes == 0 {
					// before 0.79 a mock says nothing of kernels: it might be about to be compiled
					delete(want, id)
					continue
				}
				qt.Assert(t, qt.IsNotNil(g), qt.Commentf("program %d: %s", id, describe(w.lateProgram)))
				alike(&g.lateProgram, w, c.globals)
				qt.Check(t, qt.Equals(describe(g.lateProgram), describe(w.lateProgram)), qt.Commentf("program %d", id))
				slices.Sort(w.devices)
				slices.Sort(g.devices)
				if len(w.devices) > 0 {
					qt.Check(t, qt.DeepEquals(g.devices, w.devices), qt.Commentf("program %d", id))
				}
			}
			qt.Check(t, qt.HasLen(got, len(want)))
			before := func(e event.Event) bool {
				return !e.BeforeAttach || e.Kind != event.CBAlloc && e.Kind != event.KernelLoad
			}
			met := slices.DeleteFunc(list, before)
			t.Logf("%d programs, %d events of what was before", len(got), len(met))
			late.run(t, "again") // nothing is told twice
			qt.Check(t, qt.HasLen(slices.DeleteFunc(events(), before), len(met)))
			late.run(t, "clear") // all but what the library keeps
			qt.Check(t, qt.DeepEquals(live(heldPrograms(t, events())), live(heldPrograms(t, earlyEvents()))))
		})
	}
}

// live are the ids of programs that hold something.
func live(programs map[uint64]*heldProgram) (ids []uint64) {
	for id, p := range programs {
		if len(p.statics) > 0 || p.binaryBytes+p.textBytes > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
