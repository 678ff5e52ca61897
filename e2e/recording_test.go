package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/place"
	"ttmem/tracer/recording"
)

// recordRun records a program under `ttmem run`.
func recordRun(t *testing.T, dir, file string, args ...string) (stderr string, status int) {
	t.Helper()
	env := setup(t, "0.81.1", "3.10")
	under := env.Command(context.Background(), "n150", args...)
	cmd := exec.Command(ttmem, append([]string{"run", "-o", file, "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = testEnviron(under.Env, "n150", dir), dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return errs.String(), cmd.ProcessState.ExitCode()
}

// A recording equals the library's own allocator byte for byte, and `log --json` prints all of
// its events.
func TestRecording(t *testing.T) {
	t.Parallel()
	run, dir := traceOnce(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "mix.py")), t.TempDir()
	file, events := run.file, run.events
	qt.Check(t, qt.StringContains(run.stderr, "\n  ttmem leaks "+file))

	_, errs, status := runTtmem(t, nil, "export", file, "--to", "folded", "-o", filepath.Join(dir, "folded"))
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	assertEqual(t, events, readCheckpoints(t, run.dir))
	assertEnded(t, events)
	for i := range events {
		if e := &events[i]; e.Kind == event.Alloc {
			qt.Assert(t, qt.IsTrue(len(e.Stack.Frames()) > 5))
		}
	}
	folded, err := os.ReadFile(filepath.Join(dir, "folded"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(folded), "mix.py"))

	logged, errs, status := runTtmem(t, nil, "log", file, "--json")
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	printed := lines(logged)
	qt.Assert(t, qt.HasLen(printed, len(events)))
	for i := range events {
		assertPrinted(t, &events[i], printed[i])
	}
}

// TestARunTakesFewBytes: a recording grows by at most 4 bytes for each further run of a cached program.
func TestARunTakesFewBytes(t *testing.T) {
	t.Parallel()
	runs := tracetest.Many(10_000, 100_000)
	var sizes [2]int64
	for i, n := range []int{2000, 2000 + runs} {
		file, _ := recordProgram(t, "0.81.1", "cached.py", fmt.Sprint(n))
		ran := 0
		for _, e := range readEvents(t, file) {
			if e.Kind == event.ProgramRun && len(e.Uses.Arguments) == 2 {
				ran++
			}
		}
		qt.Assert(t, qt.Equals(ran, n+1)) // with the first one, which compiles it
		info, err := os.Stat(file)
		qt.Assert(t, qt.IsNil(err))
		sizes[i] = info.Size()
	}
	t.Logf("%d and %d bytes: %.2f for each run", sizes[0], sizes[1], float64(sizes[1]-sizes[0])/float64(runs))
	qt.Check(t, qt.IsTrue(sizes[1]-sizes[0] <= 4*int64(runs)))
}

// assertPrinted compares a line of `log --json` with its event.
func assertPrinted(t *testing.T, e *event.Event, line string) {
	t.Helper()
	about := qt.Commentf("%s", line)
	var got struct {
		TimeNs       uint64 `json:"time_ns"`
		Kind         string `json:"kind"`
		PID          int    `json:"pid"`
		TID          int    `json:"tid"`
		Devices      []int  `json:"devices"`
		Region       string `json:"region"`
		BufferID     uint64 `json:"buffer_id"`
		Object       uint64 `json:"object"`
		Address      uint64 `json:"address"`
		SizeBytes    uint64 `json:"size_bytes"`
		BytesPerBank uint64 `json:"bytes_per_bank"`
		Banks        uint32 `json:"banks"`
		ProgramID    uint64 `json:"program_id"`
		Reason       string `json:"reason"`
		Stack        []any  `json:"stack"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &got)), about)
	qt.Check(t, qt.Equals(got.TimeNs, e.TimeNs), about)
	qt.Check(t, qt.Equals(got.Kind, e.Kind.String()), about)
	qt.Check(t, qt.Equals(got.PID, e.PID), about)
	qt.Check(t, qt.Equals(got.TID, e.TID), about)
	qt.Check(t, qt.Equals(got.ProgramID, e.ProgramID), about)
	qt.Check(t, qt.Equals(got.Reason, e.Reason.String()), about)
	qt.Check(t, qt.IsTrue(len(got.Stack) >= len(e.Stack.Frames())), about) // debug information adds inlined calls
	if e.Kind != event.Alloc && e.Kind != event.Free {
		return
	}
	qt.Check(t, qt.DeepEquals(got.Devices, e.Devices), about)
	qt.Check(t, qt.Equals(got.Region, e.Region.String()), about)
	qt.Check(t, qt.Equals(got.BufferID, e.BufferID), about)
	qt.Check(t, qt.Equals(got.Object, e.Object), about)
	qt.Check(t, qt.Equals(got.Address, e.Address), about)
	qt.Check(t, qt.Equals(got.SizeBytes, e.SizeBytes), about)
	qt.Check(t, qt.Equals(got.BytesPerBank, e.BytesPerBank), about)
	qt.Check(t, qt.Equals(got.Banks, e.Banks), about)
}

// Whenever ttmem is killed, its recording has what was written while it ran. With little load that
// is everything up to the last second, which `make bench` measures.
func TestKilledRecorder(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "loop.py"), "3000000")
	p.expect(t, "ready")
	for range tracetest.Many(2, 20) {
		file := filepath.Join(t.TempDir(), "killed.ttmem")
		killRecorder(t, p, file)
		out, stderr, status := runTtmem(t, nil, "report", file)
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.StringContains(out, "Device memory over"))
		if !strings.Contains(stderr, "has no end") && !strings.Contains(stderr, "cut short") {
			t.Errorf("nothing is said of the missing end:\n%s", stderr)
		}
	}
}

// killRecorder records a busy program to a file and kills the recorder at some moment. It returns how
// much earlier the last recorded event was.
func killRecorder(t testing.TB, p *target, file string) (before time.Duration) {
	t.Helper()
	record := exec.Command(ttmem, "attach", "-o", file, "-p", fmt.Sprint(p.Process.Pid))
	qt.Assert(t, qt.IsNil(record.Start()))
	waitForSize(t, file, 4096)
	read := func() (n int, last uint64) {
		r, err := recording.Open(file)
		qt.Assert(t, qt.IsNil(err))
		defer r.Close()
		for e := (event.Event{}); r.Next(&e) == nil; n++ {
			last = e.TimeNs
		}
		return n, last
	}
	now := monotonicNs()
	waitFor(t, "the events of this moment to be written", func() bool { _, last := read(); return last > now })
	time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
	killed := monotonicNs()
	qt.Assert(t, qt.IsNil(record.Process.Kill()))
	record.Wait()
	n, last := read()
	t.Logf("%d events, the last %d ms before the end", n, (killed-last)/1e6)
	qt.Check(t, qt.IsTrue(last > now))
	return time.Duration(killed - last)
}

// BenchmarkKilledRecorder is part of `make bench`.
func BenchmarkKilledRecorder(b *testing.B) {
	p := startTarget(b, setup(b, "0.81.1", "3.10"), "n150", program(b, "loop.py"), "3000000")
	p.expect(b, "ready")
	most := time.Duration(0)
	for b.Loop() {
		for range 5 {
			most = max(most, killRecorder(b, p, filepath.Join(b.TempDir(), "killed.ttmem")))
		}
	}
	b.ReportMetric(most.Seconds()*1000, "unwritten-ms")
}

func monotonicNs() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// A recording of limited size keeps the newest files, and each can be read alone: it begins
// with what is allocated. All of them are the user's who called sudo, whose folder it is.
func TestRotation(t *testing.T) {
	const user = 54321
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Chown(dir, user, user)))
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o700)))
	file := filepath.Join(dir, "loop.ttmem")
	env := setup(t, "0.81.1", "3.10")
	p := startTarget(t, env, "n150", program(t, "late.py"), "40")
	p.expect(t, "ready")
	record := exec.Command(ttmem, "attach", "-o", file, "--max-size", "64KiB", "--keep", "3", "-p", fmt.Sprint(p.Process.Pid))
	record.Env = append(os.Environ(), fmt.Sprintf("SUDO_UID=%d", user), fmt.Sprintf("SUDO_GID=%d", user))
	qt.Assert(t, qt.IsNil(record.Start()))
	waitFor(t, "the third file", func() bool { _, err := os.Stat(file + ".2"); return err == nil })
	qt.Check(t, qt.Equals(capabilities(t, record.Process.Pid), tracingCapabilities(unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER)))
	// what the kept files cover depends on how fast the program is
	waitFor(t, "checkpoints in a file that is complete", func() bool {
		events, first, err := readRecording(file + ".1")
		return err == nil && len(within(readCheckpoints(t, p.Dir), events, first)) > 0 // no file while it is renamed
	})
	qt.Assert(t, qt.IsNil(record.Process.Signal(os.Interrupt)))
	waitEnd(t, record.Wait)
	files, err := filepath.Glob(file + "*")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(files, 3))
	compared := 0
	for _, name := range files {
		info, err := os.Stat(name)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(place.Owner(info), user))
		qt.Check(t, qt.IsTrue(info.Size() < 128<<10), qt.Commentf("%s: %d bytes", name, info.Size()))
		_, errs, status := runTtmem(t, nil, "report", name)
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.IsFalse(strings.Contains(errs, "has no end")), qt.Commentf("%s", errs))
		events, first, err := readRecording(name)
		qt.Assert(t, qt.IsNil(err))
		if covered := within(readCheckpoints(t, p.Dir), events, first); len(covered) > 0 {
			assertEqual(t, events, covered)
			compared += len(covered)
		}
	}
	qt.Check(t, qt.IsTrue(compared > 0))
}

// within are the checkpoints from a time on that events cover.
func within(all []checkpoint, events []event.Event, first uint64) (list []checkpoint) {
	for _, c := range all {
		if c.TimeNs > first && c.TimeNs < events[len(events)-1].TimeNs {
			list = append(list, c)
		}
	}
	return list
}

// readRecording reads a recording, and the time from which it is complete: the end of what
// it repeats of earlier files, or of reading existing buffers.
func readRecording(path string) (events []event.Event, firstNs uint64, err error) {
	r, err := recording.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for {
		var e event.Event
		if err := r.Next(&e); errors.Is(err, io.EOF) {
			return events, firstNs, nil
		} else if err != nil {
			return nil, 0, err
		}
		if e.Kind != event.Checkpoint && (firstNs == 0 || e.BeforeAttach && e.Kind == event.Alloc) {
			firstNs = e.TimeNs
		}
		events = append(events, e)
	}
}
