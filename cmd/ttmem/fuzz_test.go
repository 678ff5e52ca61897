package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
)

// fuzzedCommands are the commands whose pages the fuzzer reads.
var fuzzedCommands = []string{
	"report FILE", "report FILE --by op", "dump FILE --at peak --by stack", "dump FILE --by chip", "peak FILE", "peak FILE --by type",
	"leaks FILE", "oom FILE", "map FILE", "map FILE --at peak", "log FILE --stacks", "log FILE --from 1us -n 5",
	"top FILE --once", "diff FILE --from begin --to peak", "diff FILE FILE --by file", "export FILE --to folded -o out", "export FILE --to pprof -o out",
	"log FILE --json", "ops FILE", "ops FILE --to peak -n 0",
	"html -o out FILE",
}

// FuzzCommands: a recording may have any events, which other users may have made up. Every
// command has a page for them, and nothing on it that a terminal acts on.
func FuzzCommands(f *testing.F) {
	for i, story := range []string{"mesh", "reopen", "marks"} {
		var lines bytes.Buffer
		w := &storyWriter{lines: json.NewEncoder(&lines), calls: make(map[string]int), stacks: make(map[*event.Stack]int)}
		for n, e := range readStory(f, storyEvents(goldenFolder, story)).events {
			if n < 30 {
				w.add(f, &e)
			}
		}
		for command := range fuzzedCommands {
			if command%3 == i {
				f.Add(lines.Bytes(), uint8(command))
			}
		}
	}
	f.Fuzz(func(t *testing.T, lines []byte, command uint8) {
		stream, _ := parseStory(bytes.NewReader(lines))
		stream.header, stream.end = storyHeader{}, &storyEnd{}
		stream.events = slices.DeleteFunc(stream.events, func(e event.Event) bool { return e.Kind == 0 || e.Kind == event.Checkpoint })
		if len(stream.events) == 0 {
			return
		}
		slices.SortStableFunc(stream.events, func(a, b event.Event) int {
			if a.TimeNs < b.TimeNs {
				return -1
			}
			return min(1, int(min(a.TimeNs-b.TimeNs, 1)))
		})
		t.Chdir(t.TempDir())
		t.Setenv("LC_ALL", "C.UTF-8")
		stream.record(t, "FILE", 0)
		args := strings.Fields(fuzzedCommands[int(command)%len(fuzzedCommands)])
		isJSON := command >= 0x80 && !slices.Contains(args, "out")
		if isJSON {
			args = append(args, "--json")
		}
		var out, errs string
		fuzztest.Bounded(t, len(lines), 100_000, func() { out, errs, _ = runOnStreams(t, false, args) })
		fuzztest.Printable(t, errs)
		fuzztest.Printable(t, out)
		for line := range strings.Lines(out) {
			qt.Check(t, qt.IsTrue(!isJSON || json.Valid([]byte(line))))
		}
		if file, err := os.ReadFile("out"); err == nil && !slices.Contains(args, "pprof") && args[0] != "html" {
			fuzztest.Printable(t, string(file))
		}
	})
}
