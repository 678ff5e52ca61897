package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/gate"
	"ttmem/tracer/event"
)

// lossyPages are views of a recording.
var lossyPages = slices.Concat(pagesWithPIDs, pagesWithoutPIDs, []string{
	"diff FILE FILE", "leaks FILE -p 4194301", "oom FILE -p 4194301", "dump FILE --at mark:warm", "map FILE --at mark:warm",
	"export FILE --to folded -o OUT", "export FILE --to pprof -o OUT",
})

// TestEveryPageNamesLosses: each view of a recording with losses says what was lost and why, as a
// page and as JSON, whether the process of the lost events is known or not.
func TestEveryPageNamesLosses(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LC_ALL", "C.UTF-8")
	const running = 4194301
	for name, lost := range map[string][]event.Event{
		"none":              nil,
		"of a process":      {{Kind: event.Lost, PID: running, TID: running, Count: 7, Cause: "ring buffer full"}},
		"of no one process": {{Kind: event.Lost, Count: 7, Cause: "ring buffer full"}},
	} {
		t.Run(name, func(t *testing.T) {
			events := slices.DeleteFunc(sharedHost(anna, anna), func(e event.Event) bool { return e.Kind == event.Lost })
			middle := len(events) / 2
			path := writeEvents(t, "lossy.ttmem", slices.Insert(events, middle, lost...))
			check := func(args string, json bool) {
				words := strings.Fields(strings.NewReplacer("FILE", path, "OUT", filepath.Join(t.TempDir(), "out")).Replace(args))
				if json {
					words = append(words, "--json")
				}
				out, errs, status := runOnStreams(t, false, words)
				qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
				cause := `"ring buffer full"`
				if !json {
					out, cause = strings.Join(strings.Fields(out+errs), " "), "7 events lost (ring buffer full)"
				}
				qt.Check(t, qt.Equals(strings.Contains(out, cause), lost != nil), qt.Commentf("%v: %.2000s", words, out))
			}
			for _, args := range lossyPages {
				check(args, false)
				if !slices.ContainsFunc([]string{"OUT", "top ", "--stacks"}, func(s string) bool { return strings.Contains(args, s) }) {
					check(args, true)
				}
			}
		})
	}
}

// TestMomentsNameLaterLosses: a loss is known only after it happened, so each view of an earlier moment
// names it.
func TestMomentsNameLaterLosses(t *testing.T) {
	events := slices.DeleteFunc(sharedHost(anna, anna), func(e event.Event) bool { return e.Kind == event.Lost })
	last := events[len(events)-1].TimeNs
	path := writeEvents(t, "lossy.ttmem", append(events, event.Event{TimeNs: last, Kind: event.Lost, Count: 7, Cause: "ring buffer full"}))
	for _, args := range []string{
		"dump FILE --at warm", "dump FILE --at peak", "dump FILE --at 1ms", "map FILE --at warm", "ops FILE --to warm", "diff FILE --from begin --to warm",
		"leaks FILE --from begin --to warm", "html FILE --to warm -o OUT", "log FILE --to warm", "log FILE --to 1ms", "export FILE --to folded --at warm -o OUT",
		"oom FILE", "peak FILE", "top FILE --once",
	} {
		out := filepath.Join(t.TempDir(), "out")
		words := strings.Fields(strings.NewReplacer("FILE", path, "OUT", out).Replace(args))
		text, errs, status := runOnStreams(t, false, words)
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, errs))
		qt.Check(t, qt.StringContains(strings.Join(strings.Fields(text+errs), " "), "7 events lost"), qt.Commentf("%s", args))
	}
}

// TestGatesDoNotPassOnLostEvents: --fail-above has a status of its own if events were lost and it is
// not exceeded by what is known.
func TestGatesDoNotPassOnLostEvents(t *testing.T) {
	events := slices.DeleteFunc(sharedHost(anna, anna), func(e event.Event) bool { return e.Kind == event.Lost })
	lossy := append(slices.Clone(events), event.Event{TimeNs: events[len(events)-1].TimeNs, Kind: event.Lost, Count: 7, Cause: "ring buffer full"})
	right, wrong := writeEvents(t, "right.ttmem", events), writeEvents(t, "wrong.ttmem", lossy)
	for _, test := range []struct {
		args   string
		status int
	}{
		{"leaks RIGHT --fail-above 1TiB", 0},
		{"leaks WRONG --fail-above 1TiB", gate.Unjudged},
		{"leaks WRONG", 0},
		{"leaks WRONG --from begin --to warm --fail-above 1TiB", gate.Unjudged},
		{"diff RIGHT RIGHT --fail-above 1TiB", 0},
		{"diff RIGHT WRONG --fail-above 1TiB", gate.Unjudged},
		{"diff WRONG RIGHT --fail-above 1TiB", gate.Unjudged},
		{"diff RIGHT WRONG", 0},
		{"diff WRONG --from begin --to warm --fail-above 0", gate.Exceeded},
	} {
		words := strings.Fields(strings.NewReplacer("RIGHT", right, "WRONG", wrong).Replace(test.args))
		_, errs, status := runOnStreams(t, false, words)
		qt.Check(t, qt.Equals(status, test.status), qt.Commentf("%s: %s", test.args, errs))
		qt.Check(t, qt.Equals(strings.Count(errs, "events were lost: the result may be wrong"), map[bool]int{true: 1}[status == gate.Unjudged]), qt.Commentf("%s: %s", test.args, errs))
	}
}

// TestAGateWritesWhatCIShows: a JUnit file that parsers read, and annotations of the lines for GitHub's runner.
func TestAGateWritesWhatCIShows(t *testing.T) {
	a, b := writeEvents(t, "a.ttmem", newTrainingRun(100).steps(1, 2, 12).events), writeEvents(t, "b.ttmem", newTrainingRun(100).steps(4, 2, 12).events)
	out := filepath.Join(t.TempDir(), "junit.xml")
	type testSuites struct {
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suite    struct {
			Case struct {
				Name    string `xml:"name,attr"`
				Failure string `xml:"failure"`
				Error   string `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	run := func(args ...string) (doc testSuites, errs string, status int) {
		_, errs, status = runOnStreams(t, false, append(args, "--junit", out))
		text, err := os.ReadFile(out)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", errs))
		qt.Assert(t, qt.IsNil(xml.Unmarshal(text, &doc)))
		return doc, errs, status
	}
	t.Setenv("GITHUB_ACTIONS", "true")
	t.Setenv("GITHUB_WORKSPACE", "/home/user/project")

	doc, errs, status := run("diff", a, b, "--fail-above", "1KiB")
	qt.Check(t, qt.Equals(status, gate.Exceeded))
	qt.Check(t, qt.Equals(doc.Suite.Case.Name, a+" "+b))
	qt.Check(t, qt.DeepEquals([]int{doc.Failures, doc.Errors}, []int{1, 0}))
	qt.Check(t, qt.Matches(doc.Suite.Case.Failure, `DRAM has grown by 144\.0 KiB, which is over 1\.0 KiB\n\S*model\.py:41: \+144\.0 KiB of DRAM: model\.py:41 Model\.step · ttnn\.add\n`))
	qt.Check(t, qt.Matches(errs, `(?s).*(^|\n)::error file=\S*model\.py,line=41,title=ttmem diff::\+144\.0 KiB of DRAM: model\.py:41 Model\.step · ttnn\.add\n.*`))

	doc, errs, status = run("diff", b, a, "--fail-above", "1KiB")
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.Equals(doc.Failures, 0))
	qt.Check(t, qt.Equals(errs, ""))

	leaking := markedFile(t, 8)
	doc, errs, status = run("leaks", leaking, "--from", "step", "--to", "step", "--fail-above", "0")
	qt.Check(t, qt.Equals(status, gate.Exceeded), qt.Commentf("%s", errs))
	qt.Check(t, qt.Matches(doc.Suite.Case.Failure, `(?s).* leaked, more than --fail-above 0 B\n.* KiB leaked: .*`))
	qt.Check(t, qt.StringContains(errs, "\n::error file="))

	_, errs, status = runOnStreams(t, false, []string{"leaks", leaking, "--junit", out})
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.Equals(errs, "ttmem: --junit has the result of a check: give --fail-above SIZE\n"))
}
