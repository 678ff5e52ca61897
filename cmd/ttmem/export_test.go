package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// exportedEvents are two buffers: the first is freed when the second is marked, and the second when
// the process ends.
func exportedEvents() []event.Event {
	first, second := event.StackOf([]event.Frame{{Kind: event.Native, Name: "first"}}), event.StackOf([]event.Frame{{Kind: event.Native, Name: "second"}})
	buffer := func(kind event.Kind, id uint64, perBank uint64, stack *event.Stack) event.Event {
		return pagetest.Buffer(kind, id, event.DRAM, 0x8000*id, perBank, stack, 0)
	}
	free := buffer(event.Free, 1, 4096, nil)
	free.Reason = event.ReasonExplicit
	return []event.Event{
		buffer(event.Alloc, 1, 4096, first),
		buffer(event.Alloc, 2, 1024, second),
		{Kind: event.Mark, Cause: "both"},
		free,
		{Kind: event.Mark, Cause: "one"},
		{Kind: event.ProcessExit, PID: 4242},
	}
}

// foldedSums are the sums of folded stacks by the innermost frame.
func foldedSums(t *testing.T, text string) map[string]int {
	t.Helper()
	sums := make(map[string]int)
	for line := range strings.Lines(text) {
		stack, number, _ := strings.Cut(line[strings.LastIndex(line, ";")+1:], " ")
		n, err := strconv.Atoi(strings.TrimSpace(number[strings.LastIndexByte(number, ' ')+1:]))
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", line))
		sums[stack] += n
	}
	return sums
}

func TestProfilesAreOfAMomentAndAValue(t *testing.T) {
	path := writeEvents(t, "model.ttmem", exportedEvents())
	for flags, want := range map[string][2]int{ // of the first and the second buffer
		"":                                    {4096 * 12, 1024 * 12},
		"--value alloc_objects":               {1, 1},
		"--value inuse_space":                 {0, 1024 * 12},
		"--at both":                           {4096 * 12, 1024 * 12},
		"--at one":                            {0, 1024 * 12},
		"--at one --value peak_space":         {4096 * 12, 1024 * 12},
		"--at peak":                           {4096 * 12, 1024 * 12},
		"--at 0s --value alloc_space":         {4096 * 12, 0},
		"--at 150ms --value inuse_objects":    {1, 1},
		"--at end --value inuse_space -p4242": {0, 1024 * 12},
	} {
		for _, format := range []string{"folded", "pprof"} {
			out, errs, status := runOnStreams(t, false, append([]string{"export", path, "--to", format, "-o", "-"}, strings.Fields(flags)...))
			comment := qt.Commentf("%s %s: %s", format, flags, errs)
			qt.Assert(t, qt.Equals(status, 0), comment)
			var got [2]int
			switch format {
			case "folded":
				sums := foldedSums(t, out)
				got = [2]int{sums["first"], sums["second"]}
			case "pprof":
				p, err := profile.Parse(strings.NewReader(out))
				qt.Assert(t, qt.IsNil(err), comment)
				value, err := p.SampleIndexByName("")
				qt.Assert(t, qt.IsNil(err), comment)
				for _, s := range p.Sample {
					got[strings.Index("fs", s.Location[0].Line[0].Function.Name[:1])] += int(s.Value[value])
				}
			}
			qt.Check(t, qt.Equals(got, want), comment)
		}
	}
}

func TestExportsAreNamedAfterTheRecording(t *testing.T) {
	path := writeEvents(t, "model.ttmem", exportedEvents())
	dir := filepath.Dir(path)
	for _, f := range exportFormats {
		t.Run(f.name, func(t *testing.T) {
			name := filepath.Join(dir, "model"+f.extension)
			_, errs, status := runOnStreams(t, true, []string{"export", path, "--to", f.name})
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			qt.Check(t, qt.StringContains(errs, "to "+name+"\n"))
			info, err := os.Stat(name)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(info.IsDir(), f.folder))
			_, errs, status = runOnStreams(t, true, []string{"export", path, "--to", f.name})
			qt.Check(t, qt.Equals(status, 1))
			qt.Check(t, qt.Matches(strings.Join(strings.Fields(errs), ""), ".*exists:nameanotherfile.*"))
		})
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 0))
}

// TestInterruptedExportsLeaveNothing: Ctrl-C while a recording is read from a pipe that never ends.
func TestInterruptedExportsLeaveNothing(t *testing.T) {
	content, err := os.ReadFile(writeEvents(t, "model.ttmem", exportedEvents()))
	qt.Assert(t, qt.IsNil(err))
	for _, f := range exportFormats {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			if f.twice { // and cannot read a pipe
				_, errs, status := runOnStreams(t, false, []string{"export", "/dev/null", "--to", f.name, "-o", out})
				qt.Check(t, qt.Equals(status, 1))
				qt.Check(t, qt.StringContains(errs, "it can be read only once"))
				return
			}
			if !f.folder {
				qt.Assert(t, qt.IsNil(os.WriteFile(out, []byte("before"), 0o644)))
			}
			cmd := exec.Command(os.Args[0], "export", "-", "--to", f.name, "-o", out)
			cmd.Env = append(os.Environ(), asCommand+"=1")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			pipe, err := cmd.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(cmd.Start()))
			_, err = pipe.Write(content[:len(content)-1])
			qt.Assert(t, qt.IsNil(err))
			defer cmd.Process.Kill()
			for begun := time.Now(); ; time.Sleep(time.Millisecond) { // until the temporary file is there
				if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
					break
				}
				qt.Assert(t, qt.IsTrue(time.Since(begun) < time.Minute))
			}
			qt.Assert(t, qt.IsNil(cmd.Process.Signal(unix.SIGINT)))
			qt.Check(t, qt.IsNotNil(cmd.Wait()))
			qt.Check(t, qt.Equals(errs.String(), "ttmem: interrupted\n"))
			left, err := os.ReadDir(dir)
			qt.Assert(t, qt.IsNil(err))
			if f.folder {
				qt.Check(t, qt.HasLen(left, 0))
				return
			}
			qt.Check(t, qt.HasLen(left, 1))
			text, err := os.ReadFile(out)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(string(text), "before"))
		})
	}
}

// TestPprofOpensAMoment: the real `go tool pprof` shows what was live at a mark.
func TestPprofOpensAMoment(t *testing.T) {
	path := writeEvents(t, "model.ttmem", exportedEvents())
	out := filepath.Join(t.TempDir(), "x.pb.gz")
	qt.Assert(t, qt.IsNil(execute("export", path, "--to", "pprof", "--at", "one", "-o", out)))
	top := answerOf(t, "go", "tool", "pprof", "-top", out)
	qt.Check(t, qt.StringContains(top, "Type: dram_inuse_space\n"))
	qt.Check(t, qt.StringContains(top, "Showing nodes accounting for 12kB, 100% of 12kB total"))
	qt.Check(t, qt.Matches(top, `(?s).*12kB *100% *100% *12kB *100% *second\n.*`))
	qt.Check(t, qt.Equals(answerOf(t, "go", "tool", "pprof", "-comments", out), "Memory of Tenstorrent devices, by ttmem.\n"+
		"inuse is what was not given back explicitly, peak what was allocated when a region of a device was fullest.\n"+
		"Memory at the mark one, of model.ttmem.\n"))
}
