package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/words"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

var (
	cardReport = flag.String("card", "", "TestCard runs programs on the chips of this machine, and writes this report")
	cardPython = flag.String("card-python", "python3", "the Python of TestCard, which has ttnn")
)

// TestCard is TestChip on the chips of this machine, with the caller's own ttnn: with fast dispatch, captured
// traces and several chips. `make card` runs it. Its report is for an issue.
func TestCard(t *testing.T) {
	if *cardReport == "" {
		t.Skip("no -card: make card")
	}
	m, err := rig.FindMachine(t.Context(), *cardPython)
	qt.Assert(t, qt.IsNil(err))
	table := chipTable{slow: m.SlowDispatch}
	defer writeCardReport(t, m, &table)
	board := rig.Board(m.Arch)

	steps := []string{"clone", "from L1", "clone in L1", "to a shard", "concat", "clone of rows", "slice of rows", "untilize", "transpose", "matmul", "tilize"}
	t.Run("operations", func(t *testing.T) {
		run := runOnCard(t, m, 1, append([]string{program(t, "chip.py")}, steps...)...)
		table.add(t, chipRow{board: board, name: "operations", how: "run"}, run.dir, run.events)
	})
	t.Run("attached late", func(t *testing.T) {
		dir := t.TempDir()
		target := &target{Cmd: m.Command(t.Context(), dir, 1, program(t, "chip.py"), "clone", "to L1", "wait", "clone", "to L1")}
		target.start(t)
		table.add(t, chipRow{board: board, name: "operations", how: "attach"}, dir, attachWaiting(t, target))
	})
	if m.SlowDispatch { // it cannot capture traces
		return
	}
	for _, chips := range []int{1, m.Chips}[:min(2, m.Chips)] {
		t.Run(fmt.Sprintf("captured trace on %d", chips), func(t *testing.T) {
			run := runOnCard(t, m, chips, program(t, "card.py"))
			table.add(t, chipRow{board: board, name: "trace on " + words.Count(uint64(chips), "chip"), how: "run"}, run.dir, run.events)
			checkReplays(t, run.events, chips)
		})
	}
}

// runOnCard runs a program under `ttmem run` on the first chips.
func runOnCard(t *testing.T, m *rig.Machine, chips int, args ...string) traced {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "events.ttmem")
	under := m.Command(t.Context(), dir, chips, args...)
	cmd := exec.CommandContext(t.Context(), ttmem, append([]string{"run", "-o", file, "--"}, under.Args...)...)
	cmd.Env, cmd.Dir = under.Env, dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	events := readEvents(t, file)
	checkSamples(t, events)
	assertEnded(t, events)
	return traced{events: events, dir: dir}
}

// checkReplays checks the events of card.py: a replay is a run of the captured operation, on all chips.
func checkReplays(t *testing.T, events []event.Event, chips int) {
	t.Helper()
	kinds := map[event.Kind]int{}
	s := aggregate.New()
	for i := range events {
		e := &events[i]
		s.Apply(e)
		if e.Kind >= event.TraceBegin && e.Kind <= event.TraceRelease {
			kinds[e.Kind]++
			qt.Check(t, qt.HasLen(e.Devices, chips))
		}
	}
	qt.Check(t, qt.DeepEquals(kinds, map[event.Kind]int{event.TraceBegin: 1, event.TraceEnd: 1, event.TraceReplay: 3, event.TraceRelease: 1}))
	var replays uint64
	operations, _ := s.Operations()
	for _, op := range operations {
		replays += op.Replays
	}
	qt.Check(t, qt.Equals(replays, 3))
}

// writeCardReport writes what a stranger needs to know, whatever failed.
func writeCardReport(t *testing.T, m *rig.Machine, table *chipTable) {
	var b strings.Builder
	version, _ := exec.Command(ttmem, "--version").Output()
	doctor, _ := exec.Command(ttmem, "doctor", m.Library).CombinedOutput()
	host, _ := exec.Command(ttmem, "doctor").CombinedOutput()
	result := "all checks passed"
	if t.Failed() {
		result = "some checks failed: attach the output of make card, too"
	}
	dispatch := "fast"
	if m.SlowDispatch {
		dispatch = "slow"
	}
	fmt.Fprintf(&b, "# ttmem on a card: %s\n\n%s, ttnn %s, %s of %s, %s dispatch\n%s\n## The host\n\n```\n%s```\n\n## The library\n\n```\n%s```\n",
		result, strings.TrimSpace(string(version)), m.Version, words.Count(uint64(m.Chips), "chip"), m.Arch, dispatch, table.markdown(), host, doctor)
	qt.Check(t, qt.IsNil(os.WriteFile(*cardReport, []byte(b.String()), 0o644)))
	fmt.Printf("wrote %s\n", *cardReport)
}
