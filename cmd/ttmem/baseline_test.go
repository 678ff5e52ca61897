package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/gate"
	"ttmem/tracer/event"
)

// TestABaseline is compared as the recording that it was made of.
func TestABaseline(t *testing.T) {
	t.Setenv("GITHUB_ACTIONS", "") // in which there are annotations, too
	a := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(4, 2, 12).events)
	grown := writeEvents(t, "b.ttmem", newTrainingRun(101).steps(6, 2, 14).events) // the weights are on another line
	high := newTrainingRun(102)
	high.free(high.alloc(event.DRAM, 1<<20, nil))
	higher := writeEvents(t, "c.ttmem", high.steps(4, 2, 12).events) // and leaves the same
	less := newTrainingRun(103)
	less.free(less.alloc(event.DRAM, 1<<20, nil))
	lower := writeEvents(t, "d.ttmem", less.steps(3, 2, 12).events) // leaves less, with a higher peak
	file := filepath.Join(t.TempDir(), "base.json")
	run := func(args ...string) (text, errs string, status int) {
		return runOnStreams(t, false, append([]string{"diff", "--baseline", file}, args...))
	}
	_, errs, status := run(a)
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(errs, "no such file or directory; name a file that can be read; --update-baseline makes it"))
	_, errs, status = run(a, "--update-baseline")
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.Equals(errs, "ttmem: "+file+" has the unfreed memory and the peaks of "+a+"\n"))

	for name, base := range map[string]string{"a baseline": file, "a recording": a} {
		file = base
		for other, want := range map[string]int{a: 0, grown: gate.Exceeded, higher: gate.Exceeded, lower: gate.Exceeded} {
			_, errs, status := run(other)
			qt.Check(t, qt.Equals(status, want), qt.Commentf("%s: %s: %s", name, other, errs))
		}
		_, errs, status := run(grown, "--fail-above", "96KiB")
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		text, errs, _ := run(grown)
		qt.Check(t, qt.StringContains(text, "model.py:41 Model.step · ttnn.add"))
		qt.Check(t, qt.Equals(errs, "ttmem: DRAM has grown by 96.0 KiB, which is over 0 B\n"))
		_, errs, status = run(grown, "--at", "peak", "--fail-above", "1GiB")
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))

		text, _, _ = run(grown, "--json")
		direct, _, _ := runOnStreams(t, false, []string{"diff", a, grown, "--json"})
		var got, want struct {
			Totals, Groups []map[string]any
			Moved          int
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), &got)))
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(direct), &want)))
		qt.Check(t, qt.DeepEquals(got, want))
	}
	for _, args := range [][]string{
		{}, {a, grown}, {a, "--from", "step"}, {a, "--at", "end"}, {a, "--by", "class"}, {a, "--update-baseline", "--fail-above", "0"}, {a, "--update-baseline", "--at", "peak"},
	} {
		_, errs, status := run(args...)
		qt.Check(t, qt.Equals(status, 1), qt.Commentf("%v: %s", args, errs))
	}
	file = filepath.Join(t.TempDir(), "base.json")
	for _, text := range []string{"{", "{}", `{"v":2,"kind":"ttmem diff --baseline"}`, `{"v":1,"kind":"ttmem diff --baseline","left":[{"region":"L9"}]}`} {
		qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(text), 0o600)))
		_, errs, status := run(a)
		qt.Check(t, qt.Equals(status, 1))
		qt.Check(t, qt.StringContains(errs, "--update-baseline makes it again"))
	}
	lossy := writeEvents(t, "lossy.ttmem", append(newTrainingRun(100).steps(4, 2, 12).events, event.Event{Kind: event.Lost, Count: 7, Cause: "ring buffer full"}))
	_, errs, status = run(lossy, "--update-baseline")
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.StringContains(errs, "events were lost, so it is no baseline"))
}

// TestABaselineOfARealProgramIsItself: the shorter stacks of the file name the same allocations.
func TestABaselineOfARealProgramIsItself(t *testing.T) {
	for _, name := range []string{"leak", "inference", "mix", "mesh", "killed"} {
		file := filepath.Join(t.TempDir(), name+".ttmem")
		readStory(t, storyEvents(goldenFolder, name)).record(t, file, 0)
		base := filepath.Join(t.TempDir(), name+".json")
		_, errs, status := runOnStreams(t, false, []string{"diff", "--baseline", base, file, "--update-baseline"})
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		for _, at := range []string{"left", "peak"} {
			text, errs, status := runOnStreams(t, false, []string{"diff", "--baseline", base, file, "--at", at, "--json"})
			qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			var doc struct {
				Groups []any
				Same   int
			}
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), &doc)))
			qt.Check(t, qt.HasLen(doc.Groups, 0), qt.Commentf("%s", text))
			qt.Check(t, qt.IsTrue(doc.Same > 0 || at == "left")) // some leave nothing
		}
	}
}
