package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// leakyFile is a file of events of a program that leaks at one line, loads weights, and
// has a program cache.
func leakyFile(t *testing.T) string {
	t.Helper()
	python := func(file string, line int, name string) event.Frame {
		return event.Frame{Kind: event.Python, Name: name, File: file, Line: line}
	}
	native := func(name string) event.Frame { return event.Frame{Kind: event.Native, Name: name} }
	operation := func(line int) *event.Stack {
		return event.StackOf([]event.Frame{
			native("ttnn::device_operation::detail::launch"), native("nanobind::detail::func_create<ttnn.add>::{lambda#1}"),
			python("/site-packages/ttnn/decorators.py", 1, "__call__"),
			python("/code/model.py", line, "Attention.forward"), python("/code/main.py", 3, "main"),
		})
	}
	leak, temporary := operation(12), operation(13)
	weight := event.StackOf([]event.Frame{python("/code/model.py", 5, "load")})
	cached := event.StackOf([]event.Frame{
		native("ttnn::device_operation::detail::create_and_cache_mesh_workload"),
		native("nanobind::detail::func_create<ttnn.halo>::{lambda#1}"), python("/code/model.py", 14, "forward"),
	})
	var text []byte
	now, id := uint64(1e9), uint64(0)
	add := func(e event.Event) uint64 {
		now += 1e6
		e.TimeNs, e.PID, e.Comm, e.Devices, e.Allocator = now, 42, "python", []int{0}, 1
		text = append(e.AppendJSON(text), '\n')
		return e.BufferID
	}
	alloc := func(stack *event.Stack) uint64 {
		id++
		return add(event.Event{Kind: event.Alloc, BufferID: id, SizeBytes: 8192, BytesPerBank: 2048, Banks: 12, Stack: stack})
	}
	add(event.Event{Kind: event.ProcessStart, Command: "python main.py"})
	for range 10 {
		alloc(weight)
	}
	for i := range 20 {
		if i%10 == 5 {
			add(event.Event{Kind: event.Mark, Cause: fmt.Sprint("step ", i)})
		}
		free := alloc(temporary)
		alloc(leak)
		if i%2 == 0 {
			alloc(cached)
		}
		add(event.Event{Kind: event.Free, BufferID: free, Reason: event.ReasonExplicit})
	}
	add(event.Event{Kind: event.ProcessExit})
	file := filepath.Join(t.TempDir(), "leaky.jsonl")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, text, 0o600)))
	return file
}

// leaksText is the page of a file.
func leaksText(t *testing.T, file string, o leaksOptions, between leakRange, layout page.Layout) string {
	t.Helper()
	o.source.file = file
	w, marks, _, err := o.follow(between)
	qt.Assert(t, qt.IsNil(err))
	w.of = filepath.Base(w.of)
	qt.Assert(t, qt.IsNil(marks.check()))
	var out strings.Builder
	qt.Assert(t, qt.IsNil(newLeakPage(marks, w, &o, alloc.Filter{}, nil).write(&out, layout)))
	return out.String()
}

func TestLeaksPage(t *testing.T) {
	o := leaksOptions{dumpOptions: dumpOptions{by: "stack"}}
	file := leakyFile(t)
	text := leaksText(t, file, o, leakRange{}, page.Layout{Width: 80})
	qt.Check(t, qt.Equals(text, `480.0 KiB leaked: 20 buffers from 1 call site

      bytes buffers     oldest
  480.0 KiB      20    0.071 s  ttnn.add · model.py:12 Attention.forward
      grew in 8 of 8 intervals, 20 times, never freed, still growing
        main.py:3 main

Retained by the runtime: program cache  10 buffers, 240.0 KiB
  made together with a program, and there as long as it is cached:
  configuration, semaphores, global circular buffers
      bytes buffers     oldest
  240.0 KiB      10    0.070 s  ttnn.halo · model.py:14 forward

Live but stable: 10 buffers, 240.0 KiB, from 1 call site.
`))
	for _, line := range strings.Split(text, "\n") {
		qt.Check(t, qt.IsTrue(page.Width(line) <= 80), qt.Commentf("%s", line))
	}
}

func TestLeaksBetweenNamedMarks(t *testing.T) {
	o := leaksOptions{dumpOptions: dumpOptions{by: "stack"}}
	text := leaksText(t, leakyFile(t), o, leakRange{from: "step 5", to: "step 15"}, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "240.0 KiB leaked from \"step 5\" to \"step 15\" (0.036 s): 10 buffers from 1 call\nsite\n"))
	qt.Check(t, qt.StringContains(text, "grew between the two marks\n"))
	qt.Check(t, qt.StringContains(text, "Retained by the runtime: program cache  5 buffers"))
}

func TestLeaksBySomethingElse(t *testing.T) {
	o := leaksOptions{dumpOptions: dumpOptions{by: "op"}}
	text := leaksText(t, leakyFile(t), o, leakRange{}, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "      bytes buffers  op\n  480.0 KiB      20  ttnn.add\n"))
	o.by = "process"
	text = leaksText(t, leakyFile(t), o, leakRange{}, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "PID 42 python main.py\n"))
}

func TestLeaksSaysWhatIsWrong(t *testing.T) {
	file := leakyFile(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{file, "--from", "x"}, `no mark "x": there are step 5, step 15`},
		{[]string{file, "--from", ""}, `--from: name a mark`},
		{[]string{file, "--from", "2.5s"}, `--from 2.5s: leaks compares marks, .*; mark:2.5s is a mark of that name`},
		{[]string{file, "--from", "step 15", "--to", "step 5"}, `no mark "step 5" after the mark "step 15"`},
		{[]string{file, "--interval", "1us"}, `--interval 1µs: at least 1ms`},
		{[]string{file, "--interval", "1s", "--to", "x"}, `--interval places marks of its own: .*`},
		{[]string{file, "--by", "x"}, `--by x: choose stack, .*`},
		{[]string{file, "--region", "CB"}, `--region CB: circular buffers do not leak; .*`},
		{[]string{file, "--fail-above", "x"}, `.*not a size: .*`},
		{[]string{file, "--suppress", file + "-none"}, `--suppress .*-none: no such file or directory`},
		{[]string{file, "--mark-at", "f"}, `--mark-at places marks while a program is traced: .*`},
		{[]string{"--mark-at", "f"}, `--mark-at: missing -p PID or -- COMMAND`},
		{[]string{"--mark-at", "", "--", "true"}, `--mark-at: name a function`},
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"leaks"}, test.args...)...), test.want), qt.Commentf("%q", test.args))
	}
}

func TestMarkSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, `missing name: ttmem mark warm`},
		{[]string{"epoch", "3"}, `one name at a time: quote it .* ttmem mark "epoch 3"`},
		{[]string{"warm", "--socket", filepath.Join(t.TempDir(), "none")}, `no ttmem service.*`},
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"mark"}, test.args...)...), test.want), qt.Commentf("%q", test.args))
	}
}
