package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/source"
	"ttmem/e2e/pagetest"
)

// The wall clock is that of the recording's beginning: all commands give a moment the same time.
func TestTimesByTheWallClock(t *testing.T) {
	t.Setenv(asCommand, "yes")
	path := filepath.Join(t.TempDir(), "model.ttmem")
	readStory(t, storyEvents(goldenFolder, "fragments")).record(t, path, 1<<30)
	f, err := source.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	output := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(os.Args[0], args...).Output()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v", args))
		return string(out)
	}
	var doc struct {
		TimeNs   uint64 `json:"time_ns"`
		WallNs   int64  `json:"wall_ns"`
		Failures []struct {
			TimeNs uint64 `json:"time_ns"`
			WallNs int64  `json:"wall_ns"`
		}
	}
	text := output("oom", path, "--json")
	pagetest.CheckSchema(t, "oom", text)
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), &doc)))
	qt.Assert(t, qt.IsTrue(len(doc.Failures) > 1))
	first := doc.Failures[0]
	wall := f.Created.UnixNano() + int64(first.TimeNs) - int64(f.BeganNs)
	qt.Check(t, qt.Equals(first.WallNs, wall))
	at := time.Unix(0, wall).UTC().Format("2006-01-02 15:04:05.000000")
	for _, args := range []string{"oom -n 0", "log --kind alloc_failed"} {
		text := output(append(strings.Fields(args), path, "--utc")...)
		qt.Check(t, qt.StringContains(text, at), qt.Commentf("%s %s", args, path))
	}
	for _, args := range []string{"dump --at failure#1", "map --at failure#1", "diff --from begin --to failure#1"} {
		qt.Check(t, qt.StringContains(output(append(strings.Fields(args), path, "--utc")...), at+" UTC"), qt.Commentf("%s %s", args, path))
	}
	moments := output("dump", path, "--at", "peak", "--utc")
	qt.Check(t, qt.Matches(moments, `at the peak of each region, of .*\n(chip 0: [A-Z0-9_, ]+ at `+at[:10]+` \d\d:\d\d:\d\d\.\d{6} UTC\n)+chip 0\n(?s).*`))
	qt.Check(t, qt.Matches(output("report", path, "--utc"), `Device memory over .*, from `+at[:10]+` \d\d:\d\d:\d\d\.\d{6} to `+at[:10]+`\s\d\d:\d\d:\d\d\.\d{6} UTC\n(?s).*`))
	qt.Check(t, qt.Matches(output("peak", path, "--utc"), `(?s).*peak .*, at `+at[:10]+` \d\d:\d\d:\d\d\.\d{6} UTC( \(▲\))?\n.*`))
	qt.Check(t, qt.Matches(output("top", "--once", path, "--utc"), `[^\n]*\n `+at[:10]+` \d\d:\d\d:\d\d\.\d{6} UTC .* failed allocation, PID \d+\n(?s).*`))
	times, walls := regexp.MustCompile(`"((time|began|begin|end|since|first|last|peak_time|allocated|right_since)_ns)":[1-9]`), regexp.MustCompile(`wall_ns":[1-9]`)
	for _, args := range []string{"report", "dump --at failure", "peak", "ops", "leaks", "oom", "map --at failure", "diff --at end " + path} {
		document, _, _ := strings.Cut(args, " ")
		text := output(append(strings.Fields(args), path, "--json")...)
		pagetest.CheckSchema(t, document, text)
		qt.Check(t, qt.Equals(len(walls.FindAllString(text, -1)), len(times.FindAllString(text, -1))), qt.Commentf("%s: %s", args, text))
		qt.Check(t, qt.StringContains(text, `"wall_ns":`), qt.Commentf("%s", args))
	}
}
