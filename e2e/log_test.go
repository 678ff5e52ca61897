package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// loggedEvent is the tested part of a line of `ttmem log --json`.
type loggedEvent struct {
	Kind     string        `json:"kind"`
	TimeNs   uint64        `json:"time_ns"`
	Region   string        `json:"region"`
	Address  uint64        `json:"address"`
	BufferID uint64        `json:"buffer_id"`
	Object   uint64        `json:"object"`
	Size     uint64        `json:"size_bytes"`
	PerBank  uint64        `json:"bytes_per_bank"`
	Stack    []event.Frame `json:"stack"`
	Note     struct {
		Kinds       []string      `json:"kinds"`
		Name        string        `json:"name"`
		FreedBy     string        `json:"freed_by"`
		LivedNs     *uint64       `json:"lived_ns"`
		AllocatedNs uint64        `json:"allocated_ns"`
		AllocatedBy []event.Frame `json:"allocated_by"`
		Earlier     *struct {
			BytesPerBank uint64        `json:"bytes_per_bank"`
			Stack        []event.Frame `json:"stack"`
		} `json:"earlier"`
	} `json:"note"`
}

// logLines returns the lines of `ttmem log --json`.
func logLines(t *testing.T, args ...string) (list []loggedEvent) {
	t.Helper()
	out, errs, status := runTtmem(t, nil, append([]string{"log", "--json"}, args...)...)
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	for line := range strings.Lines(out) {
		var e loggedEvent
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &e)))
		list = append(list, e)
	}
	return list
}

// recordStory records log_story.py with this many steps.
func recordStory(t *testing.T, steps int) (file, dir string) {
	t.Helper()
	run := traceOnce(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "log_story.py"), fmt.Sprint(steps))
	return run.file, run.dir
}

// calls reports whether a stack has this line of the story.
func calls(stack []event.Frame, line int) bool {
	for i := range stack {
		if strings.HasSuffix(stack[i].File, "/log_story.py") && stack[i].Line == line {
			return true
		}
	}
	return false
}

// The history of an address in a real program has each of its buffers, with lines,
// lifetimes and sizes. Objects without memory make no event.
func TestLog(t *testing.T) {
	t.Parallel()
	file, _ := recordStory(t, 20)
	at := markedLines(t, program(t, "log_story.py"))
	all := logLines(t, file)
	// the buffer with a view and a second free
	var viewed loggedEvent
	for _, e := range all {
		if e.Kind == "free" && calls(e.Note.AllocatedBy, at["viewed"]) {
			qt.Assert(t, qt.Equals(viewed.Kind, ""), qt.Commentf("it is freed twice, or its view is an event"))
			viewed = e
		}
		for _, kind := range e.Note.Kinds {
			qt.Check(t, qt.Equals(kind, "reuse"), qt.Commentf("a clean program has no such note"))
		}
	}
	qt.Assert(t, qt.Equals(viewed.Kind, "free"))
	one := logLines(t, file, "--buffer", fmt.Sprint(viewed.BufferID))
	qt.Assert(t, qt.HasLen(one, 2))
	qt.Check(t, qt.Equals(one[0].Kind, "alloc"))
	qt.Check(t, qt.Equals(*one[1].Note.LivedNs, one[1].TimeNs-one[0].TimeNs))
	qt.Check(t, qt.Equals(one[1].Note.AllocatedNs, one[0].TimeNs))
	qt.Check(t, qt.Equals(one[1].Object, one[0].Object))

	// a larger buffer had the address, then 21 steps in turn, this one, and later ones
	place := logLines(t, file, "--address", fmt.Sprintf("%#x", viewed.Address), "--region", "DRAM", "--kind", "alloc")
	qt.Assert(t, qt.HasLen(place, 24))
	qt.Check(t, qt.IsTrue(place[0].PerBank > place[1].PerBank))
	qt.Check(t, qt.Equals(place[22].BufferID, viewed.BufferID))

	out, errs, status := runTtmem(t, nil, "log", file, "--grep", fmt.Sprintf(`log_story\.py:%d`, at["leak"]), "--kind", "alloc", "--stacks", "--all-frames", "-n", "3")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	name := fmt.Sprintf("log_story.py:%d step · ttnn.empty", at["leak"])
	qt.Check(t, qt.Equals(strings.Count(out, name), 3), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(out, "track_allocate"))

	// a buffer that is freed with the device shows its allocation
	left := 0
	for _, e := range logLines(t, file, "--kind", "free") {
		if calls(e.Note.AllocatedBy, at["leak"]) {
			left++
		}
	}
	qt.Check(t, qt.Equals(left, 21))
}

// An address that had another size before shows the previous buffer.
func TestLogWithAnotherSize(t *testing.T) {
	t.Parallel()
	file, _ := recordStory(t, 1)
	at := markedLines(t, program(t, "log_story.py"))
	found := false
	for _, e := range logLines(t, file, "--kind", "reuse") {
		qt.Check(t, qt.Equals(e.Kind, "alloc"))
		qt.Check(t, qt.Not(qt.Equals(e.Note.Earlier.BytesPerBank, e.PerBank)))
		found = found || calls(e.Note.Earlier.Stack, at["swapped"])
	}
	qt.Check(t, qt.IsTrue(found))
}

// Events are listed as they happen, until Ctrl-C.
func TestLogFollows(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "loop.py"), "3000000")
	p.expect(t, "ready")
	follow := exec.Command(ttmem, "log", "-p", fmt.Sprint(p.Process.Pid), "--kind", "alloc,free")
	stdout, err := follow.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(follow.Start()))
	defer follow.Process.Kill()
	text := make(chan string, 1000)
	go func() {
		defer close(text)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			text <- s.Text()
		}
	}()
	seen, deadline := 0, time.After(time.Minute*patience)
	for seen < 100 {
		select {
		case line := <-text:
			if strings.Contains(line, "loop.py:") {
				seen++
			}
		case <-deadline:
			t.Fatalf("%d lines", seen)
		}
	}
	qt.Assert(t, qt.IsNil(follow.Process.Signal(os.Interrupt)))
	for range text { // it ends by itself
	}
	qt.Check(t, qt.IsNil(follow.Wait()))
}
