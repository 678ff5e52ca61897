package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// lossyPages are views of a recording.
var lossyPages = slices.Concat(pagesWithPIDs, pagesWithoutPIDs, []string{
	"diff FILE FILE", "leaks FILE -p 4194301", "oom FILE -p 4194301", "dump FILE --at mark:warm", "map FILE --at mark:warm",
	"export FILE --to folded -o OUT", "export FILE --to flamegraph -o OUT", "export FILE --to pprof -o OUT",
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
