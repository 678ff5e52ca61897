package main

import (
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/between"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/gate"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/leaks"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// joinedFile is a file of the events that a client gets that joins a service late. The program
// has loaded weights, and replaces its state. Two marks of another user are older than the file,
// so that the state at them is not known. leaks: the program keeps a result of each step.
func joinedFile(t *testing.T, leaks bool) string {
	t.Helper()
	run := newTrainingRun(100)
	mark := func(name string) {
		run.events = append(run.events, event.Event{Kind: event.Mark, Cause: name, UID: 1000})
	}
	for range 8 {
		run.alloc(event.DRAM, 4096, pagetest.Stack("zeros", "Model.__init__", 12))
	}
	run.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.state", 21))
	mark("lunch")
	state := run.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.state", 21))
	mark("lunch2")
	mark("dinner")
	before := aggregate.New()
	_, err := (&source.Options{File: writeEvents(t, "before.ttmem", run.events)}).Watch(before.Apply)
	qt.Assert(t, qt.IsNil(err))
	events := []event.Event{*before.Checkpoint()}
	id := uint64(1000)
	alloc := func(stack *event.Stack) uint64 {
		id++
		e := pagetest.Buffer(event.Alloc, id, event.DRAM, 0x1000*id, 4096, stack, 0)
		e.PID = 100
		events = append(events, e)
		return id
	}
	for range 24 {
		next := alloc(pagetest.Stack("add", "Model.state", 21))
		events = append(events, event.Event{Kind: event.Free, PID: 100, BufferID: state, Reason: event.ReasonExplicit})
		if state = next; leaks {
			alloc(pagetest.Stack("softmax", "Model.forward", 31))
		}
	}
	return writeEvents(t, "joined.ttmem", events)
}

// TestMarksOfBeforeDoNotHideLeaks: without --from and --to, and from the beginning,
// leaks are reported as if there were no marks.
func TestMarksOfBeforeDoNotHideLeaks(t *testing.T) {
	for _, flags := range [][]string{nil, {"--from", "begin"}} {
		doc, err := leaksJSON(t, append(flags, joinedFile(t, true), "--fail-above", "0")...)
		qt.Check(t, qt.Equals(err, error(term.ExitStatus(gate.Exceeded))))
		qt.Check(t, qt.Equals(doc.LeakedCount, 24))
		qt.Check(t, qt.IsNil(doc.From))
		doc, err = leaksJSON(t, append(flags, joinedFile(t, false), "--fail-above", "0")...)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(doc.LeakedCount, 0))
	}
}

// TestMarksOfBeforeAreAnError, but for the last one, at which the file begins: frees since then are missing, so that new buffers may have replaced others.
// Without them the file is judged.
func TestMarksOfBeforeAreAnError(t *testing.T) {
	file := joinedFile(t, true)
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--from", "lunch"}, "lunch"},
		{[]string{"--from", "lunch", "--to", "lunch2"}, "lunch"},
		{[]string{"--to", "lunch2"}, "lunch2"},
	} {
		_, err := leaksJSON(t, append(test.flags, file)...)
		qt.Check(t, qt.ErrorMatches(err, "no mark "+test.want+" in .*joined.ttmem: the mark "+test.want+" lies before .*joined.ttmem begins"), qt.Commentf("%v", test.flags))
	}
}

// TestMarksOfBeforeAreAnsweredByTheService: a client that connects after two marks gets the same answer
// as from a recording of the service, although most of what was live then was freed.
func TestMarksOfBeforeAreAnsweredByTheService(t *testing.T) {
	run := newTrainingRun(100)
	mark := func(name string) { run.events = append(run.events, event.Event{Kind: event.Mark, Cause: name}) }
	var later []uint64
	state := run.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.state", 21))
	for range 2 {
		mark("a")
		for range 5 {
			next := run.alloc(event.DRAM, 4096, pagetest.Stack("add", "Model.state", 21))
			run.free(state)
			state = next
			later = append(later, run.alloc(event.DRAM, 8192, pagetest.Stack("softmax", "Model.forward", 31)))
			run.free(run.alloc(event.L1, 64, pagetest.Stack("relu", "Model.forward", 32)))
		}
		mark("b")
	}
	for _, id := range later {
		run.free(id)
	}
	whole := writeEvents(t, "whole.ttmem", run.events)
	socket := filepath.Join(t.TempDir(), "s")
	var events []event.Event // with the times of the file
	_, err := (&source.Options{File: whole}).Watch(func(e *event.Event) { events = append(events, *e) })
	qt.Assert(t, qt.IsNil(err))
	serveEvents(t, socket, events)
	text := func(v any) string {
		b, err := event.MarshalJSON(v)
		qt.Assert(t, qt.IsNil(err))
		return string(b)
	}
	for _, args := range [][]string{{"--from", "a", "--to", "b"}, {"--from", "a", "--to", "b#1"}, {"--to", "a"}, {"--from", "b", "--to", "b#2"}} {
		checkSpan(t, whole, args)
		want, err := leaksJSON(t, append(args, whole)...)
		qt.Assert(t, qt.IsNil(err))
		got, err := leaksJSON(t, append(args, "--socket", socket)...)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v", args))
		qt.Check(t, qt.Equals(text(got.Leaks), text(want.Leaks)), qt.Commentf("%v", args))
		qt.Check(t, qt.Equals(text(got.Left), text(want.Left)))
		qt.Check(t, qt.Equals(got.Steady, want.Steady))
		qt.Check(t, qt.DeepEquals(got.Marks, want.Marks))
		qt.Check(t, qt.Equals(len(got.Leaks) > 0, args[0] == "--from"), qt.Commentf("%v", args))
	}
}

// checkSpan checks that the survivors of a span of a file are those of following its events.
func checkSpan(t *testing.T, path string, args []string) {
	t.Helper()
	values := map[string]string{args[0]: args[1]}
	if len(args) > 2 {
		values[args[2]] = args[3]
	}
	o := source.Options{File: path}
	span, err := source.ParseSpan(path, flags.Span{From: values["--from"], To: values["--to"]}, moment.Mark)
	qt.Assert(t, qt.IsNil(err))
	want, got := &between.Follower{Span: span}, &between.Follower{Span: span}
	state, begun := aggregate.New(), false
	_, err = o.Watch(func(e *event.Event) {
		state.Apply(e)
		x := state.Index()
		if at, ok := span.From.Find(&x); ok && !begun {
			begun = true
			want.Begin(state, at)
		}
		if at, ok := span.To.Find(&x); ok && begun && at.Number == state.Number() && (e.Kind == event.Mark || e.Kind == event.Checkpoint) {
			want.End(state, at)
		}
	})
	qt.Assert(t, qt.IsNil(err))
	r := &source.Recording{Path: path}
	list, err := r.Intervals(span)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(r.Follow(span, list, got.Begin, got.End)))
	report := func(m *between.Follower) string {
		times := page.Each(m.Marks(), func(one leaks.Mark) uint64 { return one.TimeNs })
		return jsonText([]any{times, analyze.Leaks(m.State, analyze.LeakOptions{Times: times})})
	}
	qt.Check(t, qt.Equals(report(got), report(want)), qt.Commentf("%v", args))
}

// TestMissingProcessesAndChipsAreErrors: a wrong id does not print "no leaks found".
func TestMissingProcessesAndChipsAreErrors(t *testing.T) {
	for _, file := range []string{joinedFile(t, true), markedFile(t, 8)} {
		_, err := leaksJSON(t, file, "-p", "99999")
		qt.Check(t, qt.ErrorMatches(err, "-p 99999: no such process in .*"))
		_, err = leaksJSON(t, file, "--chip", "7")
		qt.Check(t, qt.ErrorMatches(err, "--chip 7: no such chip in .*; available: chip.* 0.*"))
		_, err = leaksJSON(t, file, "--chip", "0")
		qt.Check(t, qt.IsNil(err))
	}
}

func TestTheVerdictBetweenMarksSaysInHowManyIntervals(t *testing.T) {
	for _, test := range []struct {
		steps int
		flags []string
		want  string
	}{
		{29, []string{"--from", "step"}, "grew in 29 of 29 intervals between marks, still growing"},
		{3, []string{"--from", "step", "--to", "step"}, "grew in 3 of 3 intervals between marks, still growing"},
		{1, []string{"--from", "step", "--to", "step"}, "grew between the two marks"},
		{2, []string{"--from", "step#2", "--to", "end"}, "grew in 1 of 1 intervals between marks"},
		{2, []string{"--from", "begin", "--to", "step#2"}, "grew in 1 of 1 intervals between marks"},
	} {
		doc, err := leaksJSON(t, append(test.flags, markedFile(t, test.steps))...)
		qt.Assert(t, qt.IsNil(err))
		rows := append(doc.Leaks, doc.Left...)
		qt.Assert(t, qt.IsTrue(len(rows) > 0), qt.Commentf("%+v", test))
		qt.Check(t, qt.Equals(rows[0].Verdict, test.want), qt.Commentf("%+v", test))
	}
}

// TestTheVerdictSinceOneMark names what there is.
func TestTheVerdictSinceOneMark(t *testing.T) {
	mark := event.Event{Kind: event.Mark, Cause: "warm"}
	held := pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x1000, 1024, pagetest.Stack("add", "Attention.forward", 31), 0)
	for want, events := range map[string][]event.Event{
		"grew since the mark": {mark, held}, "grew before the mark": {held, mark},
	} {
		flag := "--from"
		if want == "grew before the mark" {
			flag = "--to"
		}
		doc, err := leaksJSON(t, writeEvents(t, "one.ttmem", events), flag, "warm")
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(doc.Leaks, 1))
		qt.Check(t, qt.Equals(doc.Leaks[0].Verdict, want))
	}
}
