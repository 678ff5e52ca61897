package e2e

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// Whenever ttmem attaches to a busy program, its totals equal the library's own allocator
// from then on.
func TestLateAttach(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.76.0", "0.72.0", "0.68.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		for _, board := range []rig.Board{rig.N150, "t3000"} {
			if board == rig.N150 || version == rig.DefaultVersion || *tracetest.Long {
				moments := 1
				if board == rig.N150 && version == rig.DefaultVersion {
					moments = 2
				}
				t.Run(version+"/"+string(board), func(t *testing.T) { assertLateEqual(t, version, board, tracetest.Many(moments, 20)) })
			}
		}
	}
}

// assertLateEqual attaches to a busy program at some moments.
func assertLateEqual(t *testing.T, version string, board rig.Board, moments int) {
	t.Helper()
	p := startTarget(t, setup(t, version, "3.10"), board, program(t, "late.py"), "400")
	p.expect(t, "ready")
	compared := 0
	for range moments {
		time.Sleep(time.Duration(rand.IntN(50_000)) * time.Microsecond)
		compared += attachLate(t, p)
	}
	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()), qt.Commentf("%s", p.stderr.String()))
	t.Logf("%d attaches, %d checkpoints after them", moments, compared)
}

// attachLate attaches to a busy program until it has stopped at some checkpoints, and
// compares the totals at these, and at the moment of the attach. It returns the
// number of checkpoints.
func attachLate(t *testing.T, p *target) int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "events.ttmem")
	attach := attachTo(t, file, p.Process.Pid)
	waitFor(t, "what was there before", func() bool {
		return count(readEvents(t, file), func(e *event.Event) bool { return e.BeforeAttach }) > 0
	})
	seen := countCheckpoints(t, p.Dir)
	waitFor(t, "checkpoints", func() bool { return countCheckpoints(t, p.Dir) >= seen+5 })
	qt.Assert(t, qt.IsNil(attach.Process.Signal(os.Interrupt)))
	waitEnd(t, attach.Wait)
	events := readEvents(t, file)

	var at uint64 // the moment of the attach
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == event.Lost:
			t.Errorf("lost: %d, %s", e.Count, e.Cause)
		case e.Kind == event.Alloc && e.BeforeAttach:
			at = e.TimeNs
			qt.Check(t, qt.IsNil(e.Stack))
		}
	}
	qt.Assert(t, qt.IsTrue(at > 0), qt.Commentf("nothing was found in the process"))
	assertAtAttach(t, events, at, readLog(t, p.Dir))
	var after []checkpoint
	for _, c := range readCheckpoints(t, p.Dir) {
		if c.TimeNs > at && c.TimeNs <= events[len(events)-1].TimeNs {
			after = append(after, c)
		}
	}
	qt.Assert(t, qt.IsTrue(len(after) >= 3))
	assertEqual(t, events, after)
	return len(after)
}

// logged is what the library's allocator counted after an operation.
type logged struct{ begunNs, doneNs, dram, l1 uint64 }

func readLog(t *testing.T, dir string) []logged {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	qt.Assert(t, qt.IsNil(err))
	list := make([]logged, len(b)/32)
	for i := range list {
		word := func(n int) uint64 { return binary.LittleEndian.Uint64(b[i*32+n*8:]) }
		list[i] = logged{word(0), word(1), word(2), word(3)}
	}
	return list
}

// assertAtAttach checks that the totals at a moment are those of the allocator, give
// or take the one operation that may be under way.
func assertAtAttach(t *testing.T, events []event.Event, at uint64, log []logged) {
	t.Helper()
	state := aggregate.New()
	for i := range events {
		if events[i].TimeNs <= at {
			state.Apply(&events[i])
		}
	}
	snapshot := state.Snapshot()
	next := sort.Search(len(log), func(i int) bool { return log[i].doneNs > at })
	for _, d := range snapshot.Devices {
		dram, l1 := d.Regions.DRAM.BytesPerBank, d.Regions.L1.BytesPerBank
		equal := false
		var near []string
		for i := max(0, next-2); i <= min(next+1, len(log)-1); i++ {
			equal = equal || log[i].dram == dram && log[i].l1 == l1
			near = append(near, fmt.Sprintf("%d and %d", log[i].dram, log[i].l1))
		}
		qt.Check(t, qt.IsTrue(equal), qt.Commentf("chip %d: %d and %d B in each bank of DRAM and L1, the library counts %s",
			d.ID, dram, l1, strings.Join(near, ", ")))
	}
	qt.Check(t, qt.IsTrue(len(snapshot.Devices) > 0))
}

// waitFor waits until something is so, for a minute at most.
func waitFor(t testing.TB, what string, so func() bool) {
	t.Helper()
	if !eventually(2*time.Minute, so) {
		t.Fatalf("waiting for %s", what)
	}
}

// waitEnd waits for the end of a process that was interrupted. The kernel removes its
// probes one by one, which takes minutes where other work keeps all processors busy.
func waitEnd(t *testing.T, wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- wait() }()
	select {
	case err := <-done:
		qt.Check(t, qt.IsNil(err))
	case <-time.After(5 * time.Minute * patience):
		t.Fatal("it did not end")
	}
}
