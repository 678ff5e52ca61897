package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/tracer/event"
)

// TestFewResultsThatStay: a list that is too short to be judged is said to grow, on every page; one that
// is filled at the start is not. Frees have the line that freed, also of the view of another tensor.
func TestFewResultsThatStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "few.ttmem")
	stderr, status := recordRun(t, dir, file, program(t, "few.py"))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	lines := markedLines(t, program(t, "few.py"))
	calledAt := func(stack []event.Frame) int { return stack[len(stack)-1-outer(stack)].Line }

	p, stderr, status := leaksOf(t, dir, []string{file, "--fail-above", "1MiB"})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	qt.Check(t, qt.StringContains(stderr, "growing, too few of each to judge: 49 buffers (1.1 MiB) from 5 call sites; --fail-above does not count them"))
	leaked, undecided := make(map[int]uint64), make(map[int]uint64)
	for _, l := range p.Leaks {
		leaked[calledAt(l.Stack)] += l.Count
	}
	for _, l := range p.Undecided {
		undecided[calledAt(l.Stack)] += l.Count
		qt.Check(t, qt.Equals(l.Class, "undecided"))
		qt.Check(t, qt.StringContains(l.Verdict, "too few to judge"))
	}
	qt.Check(t, qt.DeepEquals(leaked, map[int]uint64{lines["16"]: 16, lines["17"]: 17}))
	qt.Check(t, qt.DeepEquals(undecided, map[int]uint64{lines["3"]: 3, lines["5"]: 5, lines["12"]: 12, lines["15"]: 15, lines["pairs"]: 14}))

	qt.Check(t, qt.StringContains(ask(t, "leaks", file), "Growing, too few to judge  49 buffers, 1.1 MiB"))
	qt.Check(t, qt.StringContains(ask(t, "report", file), "Growing, too few of each to judge: 49 buffers (1.1 MiB) from 5 call sites"))

	freedBy := make(map[string]int)
	for _, e := range logLines(t, file, "--kind", "free") {
		freedBy[e.Note.FreedBy+" <- "+e.Note.Name]++
	}
	for _, want := range []string{
		fmt.Sprintf("few.py:%d cleanup <- few.py:%d · ttnn.empty", lines["freed"], lines["weight"]),
		fmt.Sprintf("few.py:%d <- few.py:%d · ttnn.relu", lines["dropped"], lines["dropped"]-1),
	} {
		qt.Check(t, qt.Equals(freedBy[want], 1), qt.Commentf("%s in %v", want, freedBy))
	}
	qt.Check(t, qt.StringContains(ask(t, "log", file, "--kind", "free"),
		fmt.Sprintf("freed by few.py:%d cleanup, allocated by few.py:%d · ttnn.empty, lived ", lines["freed"], lines["weight"])))
}

// outer is how many frames lie outside of the outermost Python function.
func outer(stack []event.Frame) (n int) {
	for n < len(stack) && stack[len(stack)-1-n].Kind != event.Python {
		n++
	}
	return n
}

// TestGrowthInAWatch: `leaks -p` names what grew while it watched, and who holds it.
func TestGrowthInAWatch(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	p := startTarget(t, env, "n150", program(t, "few.py"), "watch")
	p.expect(t, "watch")
	stdout, stderr, status := runTtmem(t, nil, "leaks", "-p", fmt.Sprint(p.Process.Pid), "--duration", "2s")
	qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
	// A busy host watches for longer than it was asked to: what grew may be enough to judge then.
	grew := regexp.MustCompile(`(?m)^(?:No leaks found, watched for .*; growing, too few to judge: (\d+) buffers .*|.* leaked, watched for .*: (\d+) buffers from 1 call site)$`).FindStringSubmatch(stdout)
	qt.Assert(t, qt.IsNotNil(grew), qt.Commentf("%s", stdout))
	buffers, _ := strconv.Atoi(grew[1] + grew[2])
	qt.Check(t, qt.Equals(buffers >= analyze.LeastSurvivors, grew[2] != ""), qt.Commentf("%s", stdout))
	qt.Check(t, qt.StringContains(stdout, fmt.Sprintf("few.py:%d", markedLines(t, program(t, "few.py"))["slow"])))
	qt.Assert(t, qt.IsNil(p.stdin.Close()))
	qt.Assert(t, qt.IsNil(p.Wait()))
}
