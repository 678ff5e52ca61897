package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// commandOutput is what a command prints on both of its streams, which are no terminal.
func commandOutput(t *testing.T, args ...string) (string, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	os.Stdout, os.Stderr = f, f
	root := newRoot()
	root.SetArgs(args)
	failed := root.Execute()
	term.Flush()
	text, err := os.ReadFile(f.Name())
	qt.Assert(t, qt.IsNil(err))
	return string(text), failed
}

// commandSays is the error of a command.
func commandSays(t *testing.T, args ...string) error {
	t.Helper()
	_, err := commandOutput(t, args...)
	qt.Assert(t, qt.IsNotNil(err), qt.Commentf("%v", args))
	return err
}

// busyEvents have all that pages tell of: buffers with callers and without, circular
// buffers, holes, marks, failures with their reasons, long names, and many chips.
func busyEvents() []event.Event {
	events := append(holedEvents(), pagetest.Failures()...)
	for i := range uint64(7) {
		e := pagetest.Buffer(event.Alloc, 500+i, event.DRAM, 0x1000+i*0x4000, 0x1000*(i+1),
			pagetest.Stack("scaled_dot_product_attention_decode", "MultiHeadAttentionWithRotaryEmbedding.forward", 31), 10+int(i))
		events = append(events, e)
	}
	events = append(events, event.Event{Kind: event.Mark, Cause: "loaded"})
	for i := range events {
		events[i].TimeNs = 0 // one after the other
	}
	return events
}

// TestPagesAreOfASCIIWhereTheTerminalIs: what ttmem itself writes; names are as they are.
func TestPagesAreOfASCIIWhereTheTerminalIs(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	file := writeEvents(t, "busy.ttmem", busyEvents())
	odd := writeEvents(t, "odd.ttmem", oddEvents())
	for _, line := range []string{
		"map FILE", "map FILE --at peak -n 0", "map FILE --at failure#1 --region L1", "map FILE --region TRACE",
		"dump FILE", "dump FILE --at peak", "dump FILE --at loaded --by stack", "dump FILE --at peak --by process",
		"diff FILE ODD", "diff ODD FILE --by op", "diff FILE --from begin", "diff FILE FILE --at peak",
		"log FILE", "log ODD --stacks", "log ODD --kind mark --grep none", "log ODD --chip 9",
		"oom FILE", "oom FILE -n 1",
		"report FILE", "report ODD", "peak FILE", "peak FILE --region L1 --by op", "leaks FILE", "leaks FILE --from begin",
		"map --help", "dump --help", "diff --help", "log --help", "oom --help",
	} {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(strings.NewReplacer("FILE", file, "ODD", odd).Replace(line))
			text, err := commandOutput(t, args...)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.IsTrue(len(text) > 20))
			for line := range strings.Lines(text) {
				qt.Check(t, qt.Equals(notASCII.FindString(line), ""), qt.Commentf("%s", line))
			}
		})
	}
}

var notASCII = regexp.MustCompile(`[^\x00-\x7f]+`)

// TestPagesFitTheTerminal: no line is wider, and no name of a line of code is cut.
func TestPagesFitTheTerminal(t *testing.T) {
	file := writeEvents(t, "busy.ttmem", busyEvents())
	odd := writeEvents(t, "odd.ttmem", oddEvents())
	for _, columns := range []int{40, 60, 80, 120} {
		layout := page.Layout{Width: columns}
		var b strings.Builder
		fits := func(name string, wants ...string) {
			t.Helper()
			text := b.String()
			b.Reset()
			for line := range strings.Lines(text) {
				qt.Check(t, qt.IsTrue(page.Width(strings.TrimRight(line, "\n")) <= columns), qt.Commentf("%s at %d: %s", name, columns, line))
			}
			joined := strings.Join(strings.Fields(text), " ")
			for _, want := range wants {
				qt.Check(t, qt.StringContains(joined, want), qt.Commentf("%s at %d", name, columns))
			}
		}
		must := func(err error) { t.Helper(); qt.Assert(t, qt.IsNil(err)) }

		must(mapOf(t, file, viewOptions{n: 12}).WriteText(&b, layout))
		fits("map", "model.py:31 MultiHeadAttention")
		must(mapOf(t, file, viewOptions{at: "begin"}).WriteText(&b, layout))
		fits("empty map", "Nothing is allocated at the beginning of")

		for _, at := range []string{"peak", "loaded"} {
			for by, want := range map[string]string{"": "model.py:31 MultiHead", "stack": "model.py:31 MultiHead", "type": "DRAM interleaved", "chip": "chip 12"} {
				o := viewOptions{at: at, by: by}
				l, err := dumpOf(t, file, o)
				must(err)
				must(o.view(l).WriteText(&b, layout))
				if at == "peak" {
					want = ""
				}
				fits("dump by "+by, want)
			}
		}
		o := viewOptions{at: "begin"}
		l, err := dumpOf(t, file, o)
		must(err)
		must(o.view(l).WriteText(&b, layout))
		fits("empty dump", "Nothing is allocated at the beginning of")

		for _, args := range [][]string{{odd, file}, {odd, file, "--by", "op"}, {file, file}, {odd, file, "--region", "TRACE"}} {
			text, _ := diffOf(t, layout, args...)
			b.WriteString(text)
			fits("diff")
		}
		text, _ := logOf(t, odd, logOptions{stacks: true}, layout)
		b.WriteString(text)
		fits("log", "8.0 KiB", "0x8000", "Attention.forward")

	}
}

// TestSizeIsTheSameInAllPages: log tells the size of a buffer, and dump what is allocated
// for it, which is another number and has another name.
func TestSizeIsTheSameInAllPages(t *testing.T) {
	r := newTrainingRun(100)
	padded := pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x2000, 2048, pagetest.Stack("empty", "Model.load", 10), 0)
	padded.SizeBytes = 3000 // of 12 banks with 2 KiB each
	r.add(padded)
	r.mark("there")
	path := writeEvents(t, "padded.ttmem", r.events)
	log, _ := logOf(t, path, logOptions{kinds: []string{"alloc"}}, page.Layout{})
	qt.Check(t, qt.IsTrue(regexp.MustCompile(`address +size +per bank`).MatchString(log)), qt.Commentf("%s", log))
	qt.Check(t, qt.StringContains(log, " 2.9 KiB   2.0 KiB × 12"))
	o := viewOptions{at: "there"}
	l, err := dumpOf(t, path, o)
	qt.Assert(t, qt.IsNil(err))
	var b strings.Builder
	qt.Assert(t, qt.IsNil(o.view(l).WriteText(&b, page.Layout{})))
	qt.Check(t, qt.IsTrue(regexp.MustCompile(`address +allocated +per bank`).MatchString(b.String())), qt.Commentf("%s", b.String()))
	qt.Check(t, qt.StringContains(b.String(), " 24.0 KiB    2.0 KiB × 12"))
}
