package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// diffPage is the tested part of `ttmem diff --json`.
type diffPage struct {
	Totals []struct {
		Device      int
		Region      string
		ChangeBytes int64 `json:"change_bytes"`
		A, B        struct{ Buffers, Bytes uint64 }
	}
	Groups []struct {
		Key           string
		Static        bool
		ChangeBuffers int64 `json:"change_buffers"`
		ChangeBytes   int64 `json:"change_bytes"`
		Stack         []event.Frame
	}
}

func diffPageOf(t *testing.T, args ...string) (page diffPage) {
	t.Helper()
	out, errs, status := runTtmem(t, nil, append([]string{"diff", "--json"}, args...)...)
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &page)))
	return page
}

// Two runs of a real program, of which one leaks more, differ in the leaking line only,
// although addresses and processes differ. So do two moments of one run. The bytes are
// those of the library's own allocator.
func TestDiff(t *testing.T) {
	t.Parallel()
	short, _ := recordStory(t, 3)
	long, dir := recordStory(t, 20)
	at := markedLines(t, program(t, "log_story.py"))
	page := diffPageOf(t, short, long)
	qt.Assert(t, qt.HasLen(page.Groups, 1))
	leak := page.Groups[0]
	qt.Check(t, qt.Equals(leak.Key, fmt.Sprintf("log_story.py:%d step · ttnn.empty", at["leak"])))
	qt.Check(t, qt.Equals(leak.ChangeBuffers, 17))
	qt.Check(t, qt.IsTrue(calls(leak.Stack, at["leak"])))
	for _, args := range [][]string{{short, short}, {long, short, "--fail-above", "0"}} {
		_, errs, status := runTtmem(t, nil, append([]string{"diff"}, args...)...)
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	}
	_, errs, status := runTtmem(t, nil, "diff", short, long, "--fail-above", "1KiB")
	qt.Check(t, qt.Equals(status, 3))
	qt.Check(t, qt.StringContains(errs, "DRAM has grown by"))

	// marks are times here: the checkpoints of the program
	begin := logLines(t, long)[0].TimeNs
	moment := make(map[string]string)
	allocated := make(map[string]uint64)
	for _, c := range readCheckpoints(t, dir) {
		moment[c.Name] = fmt.Sprintf("%dns", c.TimeNs-begin)
		allocated[c.Name] = c.Devices[0].Regions["DRAM"].AllocatedPerBank
	}
	page = diffPageOf(t, long, "--from", moment["first"], "--to", moment["last"], "--region", "DRAM")
	qt.Assert(t, qt.HasLen(page.Groups, 1))
	qt.Check(t, qt.Equals(page.Groups[0].ChangeBuffers, 20))
	qt.Assert(t, qt.HasLen(page.Totals, 1))
	qt.Check(t, qt.Equals(page.Totals[0].A.Bytes, allocated["first"]*12))
	qt.Check(t, qt.Equals(page.Totals[0].B.Bytes, allocated["last"]*12))
}

// Two marks in the service's recording differ by what the program leaked in between.
func TestDiffOfMarks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "host.ttmem")
	s, env := startServer(t, "-o", file), setup(t, "0.81.1", "3.10")
	s.discover(t, env)
	p := &target{Cmd: env.Command(context.Background(), "n150", program(t, "log_story.py"), "20")}
	p.Env, p.Dir = append(testEnviron(p.Env, "n150", dir), "TTMEM_MARK="+ttmem+" mark --socket "+s.socket), dir
	out, err := p.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	s.stop(t)
	at, pid := markedLines(t, program(t, "log_story.py")), fmt.Sprint(p.Process.Pid)

	page := diffPageOf(t, file, "--from", "first", "--to", "last", "-p", pid)
	qt.Assert(t, qt.HasLen(page.Groups, 1))
	qt.Check(t, qt.Equals(page.Groups[0].Key, fmt.Sprintf("log_story.py:%d step · ttnn.empty", at["leak"])))
	qt.Check(t, qt.Equals(page.Groups[0].ChangeBuffers, 20))
	text, _, status := runTtmem(t, nil, "diff", file, "--from", "first", "--to", "last", "-p", pid, "--fail-above", "64KiB")
	qt.Check(t, qt.Equals(status, 3))
	qt.Check(t, qt.StringContains(text, "at the mark first"))

	_, errs, status := runTtmem(t, nil, "diff", file, "--from", "warm")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(errs, "no mark warm in "+file+": there are loaded, first, last, holed"))
}
