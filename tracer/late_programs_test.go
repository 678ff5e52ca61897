package tracer

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/internal/heap"
)

// opsProgram compiles programs with circular and dataflow buffers, some of them in tensors.
// It does so again for each line, and drops them for the line "clear".
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
func startOps(t *testing.T, version string, board rig.Board, mesh string, environ ...string) *tracetest.Program {
	t.Helper()
	env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	p := &tracetest.Program{Cmd: env.Command(context.Background(), board, "-c", opsProgram, tracetest.Programs(t))}
	p.Dir = t.TempDir()
	p.Env = append(append(p.Env, "TTMEM_MESH="+mesh), environ...)
	p.StartReady(t)
	return p
}

// runOps sends the program a command and waits until it is done.
func runOps(t *testing.T, p *tracetest.Program, what string) {
	t.Helper()
	p.Tell(t, what)
	qt.Assert(t, qt.Equals(p.Line(t), "done"))
}

// traceProgram traces a program. events returns all events up to the call.
func traceProgram(t *testing.T, pid int) (tr *Tracer, events func() []event.Event) {
	t.Helper()
	return traceWith(t, Options{Processes: []int{pid}, NoStacks: true})
}

func traceWith(t *testing.T, o Options) (tr *Tracer, events func() []event.Event) {
	t.Helper()
	o.Warn = func(_ int, line string) { t.Log(line) }
	tr, err := New(o)
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
	// reported returns what was reported up to a mark that is set now.
	reported := func() (events []event.Event) {
		t.Helper()
		awaitMark(t, tr, func(mark string) bool {
			mu.Lock()
			defer mu.Unlock()
			events = slices.Clone(list)
			return slices.ContainsFunc(list, func(e event.Event) bool { return e.Cause == mark })
		})
		return events
	}
	return tr, func() []event.Event {
		t.Helper()
		reported() // and what has to be read for it is being read
		awaitReads(tr.decoder)
		qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { return !tr.Reading() })))
		return reported()
	}
}

// programState is a program's memory according to its events.
type programState struct {
	heap.Program
	devices []int
	kernels bool // a kernel event was seen
}

// programsOf returns the live programs according to the events, by id.
func programsOf(t *testing.T, events []event.Event) map[uint64]*programState {
	t.Helper()
	states := make(map[uint64]*programState)
	for _, e := range events {
		if e.Kind == event.Lost {
			t.Errorf("lost: %d %s", e.Count, e.Cause)
		}
		if e.ProgramID == 0 && e.Kind != event.CBAlloc && e.Kind != event.KernelLoad {
			continue
		}
		p := states[e.ProgramID]
		if p == nil {
			p = &programState{Program: heap.Program{ID: e.ProgramID}}
			states[e.ProgramID] = p
		}
		switch e.Kind {
		case event.CBAlloc:
			s := heap.Static{Address: e.Address, Bytes: e.SizeBytes, Cores: e.Cores, Kind: e.StaticKind, Global: e.Global}
			same := func(other heap.Static) bool { return compareStatics(s, other) == 0 }
			if !slices.ContainsFunc(p.Statics, same) { // each device of a mesh reports it
				p.Statics = append(p.Statics, s)
			}
			for _, d := range e.Devices {
				if !slices.Contains(p.devices, d) {
					p.devices = append(p.devices, d)
				}
			}
		case event.CBFree:
			p.Statics = slices.DeleteFunc(p.Statics, func(s heap.Static) bool {
				return e.StaticKind == event.NotStatic || s.Kind == e.StaticKind ||
					s.Kind == event.Scratchpad && e.StaticKind == event.DataflowBuffer
			})
		case event.KernelLoad:
			p.BinaryBytes, p.TextBytes, p.kernels = e.SizeBytes, e.BytesPerBank, true
		case event.KernelUnload:
			p.BinaryBytes, p.TextBytes, p.kernels = 0, 0, false
		}
	}
	return states
}

func compareStatics(a, b heap.Static) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Bytes, b.Bytes),
		strings.Compare(fmt.Sprint(a.Cores, a.Global), fmt.Sprint(b.Cores, b.Global)))
}

// describe formats a program's memory as one sorted line for each range.
func describe(p heap.Program) string {
	var b strings.Builder
	list := slices.SortedFunc(slices.Values(p.Statics), compareStatics)
	list = slices.CompactFunc(list, func(a, b heap.Static) bool { return compareStatics(a, b) == 0 })
	for _, s := range mergeDataflow(list) {
		fmt.Fprintf(&b, "%v %#x %d %v global %v\n", s.Kind, s.Address, s.Bytes, s.Cores, s.Global)
	}
	fmt.Fprintf(&b, "binary %d text %d\n", p.BinaryBytes, p.TextBytes)
	return b.String()
}

// mergeDataflow merges dataflow buffers and scratchpads that are adjacent on the same cores: the
// library keeps them as one region.
func mergeDataflow(list []heap.Static) (merged []heap.Static) {
	for _, s := range list {
		if s.Kind == event.Scratchpad {
			s.Kind = event.DataflowBuffer
		}
		i := slices.IndexFunc(merged, func(m heap.Static) bool {
			return s.Kind == event.DataflowBuffer && m.Kind == s.Kind && slices.Equal(m.Cores, s.Cores) && m.Address+m.Bytes >= s.Address
		})
		if i < 0 {
			merged = append(merged, s)
			continue
		}
		merged[i].Bytes = max(merged[i].Bytes, s.Address+s.Bytes-merged[i].Address)
	}
	return merged
}

// A program read from memory must match the events of its compilation, for all programs of
// a process.
func TestReadPrograms(t *testing.T) {
	t.Parallel()
	const slow = "TT_METAL_SLOW_DISPATCH_MODE=1"
	circular := []event.StaticKind{event.CircularBuffer}
	mixed := []event.StaticKind{event.CircularBuffer, event.DataflowBuffer}
	for _, c := range []struct {
		version string
		board   rig.Board
		mesh    string
		environ []string
		// globals: events report circular buffers that lie in tensors, which they do from
		// 0.70.1 on
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
		{"0.68.0", rig.N150, "1x1", nil, false, circular},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(strings.Join(append([]string{c.version, string(c.board)}, c.environ...), "/"), func(t *testing.T) {
			t.Parallel()
			p := startOps(t, c.version, c.board, c.mesh, c.environ...)
			pid := p.Process.Pid
			tr, events := traceProgram(t, pid)
			runOps(t, p, "go")
			runOps(t, p, "again")
			states := programsOf(t, events())
			kinds := map[event.StaticKind]int{}
			var took time.Duration
			var key bpf.KernelObjectKey
			value := make([]byte, tr.objs.KernelMaps.Objects.ValueSize())
			for objects := tr.objs.KernelMaps.Objects.Iterate(); objects.Next(&key, &value); {
				if bpf.KernelObjectKind(key.Object>>bpf.KernelObjectLimitOBJECT_KIND) != bpf.KernelObjectKindOBJECT_PROGRAM {
					continue
				}
				id := binary.LittleEndian.Uint64(value)
				start := time.Now()
				got, err := tr.libraries.At(0).ReadProgram(t.Context(), tr.readers.Of(pid), key.Object&(1<<bpf.KernelObjectLimitOBJECT_KIND-1))
				took += time.Since(start)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(got.ID, id))
				for _, s := range got.Statics {
					kinds[s.Kind]++
				}
				want := states[id]
				if want == nil { // the kernel side has seen it, and no event reports it
					want = &programState{}
					alike(&got, want, c.globals)
					qt.Check(t, qt.HasLen(got.Statics, 0), qt.Commentf("program %d: %s", id, describe(got)))
					continue
				}
				delete(states, id)
				alike(&got, want, c.globals)
				qt.Check(t, qt.Equals(describe(got), describe(want.Program)), qt.Commentf("program %d", id))
			}
			qt.Check(t, qt.HasLen(states, 0)) // all were read
			qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(kinds)), c.kinds))
			t.Log(kinds, "read in", took)
		})
	}
}

// alike removes from a program what events do not report: circular buffers in tensors if
// the program has no others, as nothing is allocated; and, with slow dispatch, which does
// not call the probed functions, kernels and scratchpads.
func alike(read *heap.Program, state *programState, globals bool) {
	local := func(s heap.Static) bool { return s.Kind == event.CircularBuffer && !s.Global }
	read.Statics = slices.DeleteFunc(read.Statics, func(s heap.Static) bool {
		return s.Global && !(globals && slices.ContainsFunc(state.Statics, local))
	})
	if state.kernels {
		return
	}
	read.TextBytes = 0
	for i := range read.Statics {
		s := &read.Statics[i]
		if s.Kind != event.DataflowBuffer {
			continue
		}
		end := s.Address
		for _, reported := range state.Statics {
			if slices.Equal(reported.Cores, s.Cores) {
				end = max(end, reported.Address+reported.Bytes)
			}
		}
		s.Bytes = min(s.Bytes, end-s.Address)
	}
	read.Statics = slices.DeleteFunc(read.Statics, func(s heap.Static) bool { return s.Bytes == 0 })
}

const shortProgram = `
import sys
sys.path.insert(0, sys.argv[1])
import ttnn
from device import open_device
print("ready", flush=True)
sys.stdin.readline()
device = open_device()
device.disable_and_clear_program_cache()
words = ttnn.empty([1, 1, 512, 512], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
tokens = ttnn.zeros([1, 32], ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
for _ in range(10):
    ttnn.embedding(tokens, words, layout=ttnn.TILE_LAYOUT)
print("done", flush=True)
sys.stdin.readline()
`

// Scratchpads are seen although their programs are destroyed at once.
func TestScratchpadsOfShortPrograms(t *testing.T) {
	t.Parallel()
	env, err := rig.Setup(context.Background(), rig.Options{Version: "0.81.1", Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	p := &tracetest.Program{Cmd: env.Command(context.Background(), rig.N150, "-c", shortProgram, tracetest.Programs(t))}
	p.Dir = t.TempDir()
	p.Env = append(p.Env, "TTMEM_MESH=1x1")
	p.StartReady(t)
	_, events := traceProgram(t, p.Process.Pid)
	runOps(t, p, "go")
	scratchpads, destroyed := map[uint64]int{}, map[uint64]bool{}
	for _, e := range events() {
		switch {
		case e.Kind == event.Lost:
			t.Errorf("lost: %d %s", e.Count, e.Cause)
		case e.Kind == event.CBAlloc && e.StaticKind == event.Scratchpad:
			scratchpads[e.ProgramID]++
		case e.Kind == event.KernelUnload:
			destroyed[e.ProgramID] = true
		}
	}
	qt.Check(t, qt.HasLen(scratchpads, 10))
	for id := range scratchpads {
		qt.Check(t, qt.IsTrue(destroyed[id]))
	}
}

// A program that was compiled before the attach is reported when it is enqueued again, as
// if it had been compiled then, and so is its end.
func TestLatePrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version string
		board   rig.Board
		mesh    string
		globals bool
	}{
		{"0.81.1", rig.N150, "1x1", true},
		{"0.81.1", "n300", "1x2", true},
		{"0.76.0", "t3000", "1x8", true},
		{"0.68.0", rig.N150, "1x1", false},
		{"0.66.0", rig.N150, "1x1", false},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			t.Parallel()
			early := startOps(t, c.version, c.board, c.mesh)
			_, earlyEvents := traceProgram(t, early.Process.Pid)
			runOps(t, early, "go")
			runOps(t, early, "again")
			want := programsOf(t, earlyEvents())
			runOps(t, early, "clear")

			late := startOps(t, c.version, c.board, c.mesh)
			runOps(t, late, "go")
			_, events := traceProgram(t, late.Process.Pid)
			runOps(t, late, "again")
			list := events()
			got := programsOf(t, list)
			for id, w := range want {
				g := got[id]
				if g == nil && len(w.Statics) == 0 && w.BinaryBytes+w.TextBytes == 0 {
					// before 0.79 a mock does not report kernels, so the program might be
					// about to be compiled
					delete(want, id)
					continue
				}
				qt.Assert(t, qt.IsNotNil(g), qt.Commentf("program %d: %s", id, describe(w.Program)))
				alike(&g.Program, w, c.globals)
				qt.Check(t, qt.Equals(describe(g.Program), describe(w.Program)), qt.Commentf("program %d", id))
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
			later := slices.DeleteFunc(list, before)
			t.Logf("%d programs, %d events of existing programs", len(got), len(later))
			runOps(t, late, "again") // nothing is reported twice
			qt.Check(t, qt.HasLen(slices.DeleteFunc(events(), before), len(later)))
			runOps(t, late, "clear") // all but what the library caches
			qt.Check(t, qt.DeepEquals(live(programsOf(t, events())), live(programsOf(t, earlyEvents()))))
		})
	}
}

// live returns the ids of programs that hold memory.
func live(programs map[uint64]*programState) (ids []uint64) {
	for id, p := range programs {
		if len(p.Statics) > 0 || p.BinaryBytes+p.TextBytes > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
