package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/rig"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/layout"
)

// TestFirstAndLast: `ttmem run` has the very first allocation and every free up
// to the device's close, every time, also where it cannot know the library before
// the command maps it.
func TestFirstAndLast(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	runs := 10
	if *long {
		runs = 100
	}
	python := env.Command(context.Background(), "n150").Path
	for i := range runs {
		args := []string{python, program(t, "one.py")}
		if i%2 == 1 { // a shell tells nothing of what Python it will start
			args = []string{"sh", "-c", fmt.Sprintf("%s %s; true", python, program(t, "one.py"))}
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "events.jsonl")
		cmd := exec.Command(ttmem, append([]string{"run", "--events", file, "--"}, args...)...)
		cmd.Dir = dir
		cmd.Env = testEnviron(env.Command(context.Background(), "n150").Env, "n150", dir)
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		events := readEvents(t, file)
		var allocs []uint64
		for _, e := range events {
			if e.Kind == event.Alloc {
				allocs = append(allocs, e.BufferID)
			}
		}
		// the views that ttnn makes take the odd ids
		qt.Assert(t, qt.DeepEquals(allocs, []uint64{0, 2, 4, 6, 8}), qt.Commentf("run %d: %s", i, out))
		qt.Assert(t, qt.Equals(count(events, func(e *event.Event) bool { return e.Kind == event.Free }), 5))
		qt.Assert(t, qt.Equals(count(events, func(e *event.Event) bool { return e.Kind == event.DeviceOpen }), 1))
		assertEnded(t, events)
	}
}

// TestFailuresAreCaught: what the target catches without a tracer it catches
// under one, and each failure is told with the library's own figures.
func TestFailuresAreCaught(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.76.0"} {
		t.Run(version, func(t *testing.T) {
			run := traceRun(t, setup(t, version, "3.10"), "n150", program(t, "failures.py"))
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			assertEqual(t, run.events, readCheckpoints(t, run.dir))
			var reasons []event.Reason
			for _, e := range run.events {
				if e.Kind != event.AllocFailed {
					continue
				}
				reasons = append(reasons, e.Reason)
				qt.Check(t, qt.DeepEquals(e.Devices, []int{0}))
				if e.Reason == event.ReasonOutOfMemory {
					qt.Check(t, qt.Equals(e.Region, event.L1))
					want := fmt.Sprintf("allocate %d B L1 buffer across %d banks, where each bank needs to store %d B",
						e.SizeBytes, e.Banks, e.BytesPerBank)
					qt.Check(t, qt.StringContains(e.Message, want))
				} else {
					qt.Check(t, qt.Equals(e.Region, event.CB))
					want := fmt.Sprintf("buffer region ends at %d", staticEnd(run.events, e.ProgramID))
					qt.Check(t, qt.StringContains(e.Message, want))
				}
			}
			qt.Check(t, qt.DeepEquals(reasons, []event.Reason{
				event.ReasonOutOfMemory, event.ReasonOutOfMemory, event.ReasonStaticClash,
			}))
		})
	}
}

// staticEnd is where the highest static buffer of a program ends.
func staticEnd(events []event.Event, program uint64) (end uint64) {
	for _, e := range events {
		if e.Kind == event.CBAlloc && e.ProgramID == program {
			end = max(end, e.Address+e.SizeBytes)
		}
	}
	return end
}

// TestPrograms: each program is told with its circular or dataflow buffers and
// its kernels, and their end when the program cache is cleared or the device
// closed.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		version string
		board   rig.Board
		chips   int
		text    bool // the mock tells how large the kernels' text is
		global  bool // ops on shards use circular buffers, not dataflow buffers
	}{
		{"0.81.1", "n150", 1, true, false},
		{"0.81.1", "t3000", 8, true, false},
		{"0.76.0", "n150", 1, false, true},
	} {
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			run := traceRun(t, setup(t, c.version, "3.10"), c.board, program(t, "mix.py"))
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			buffers, kernels, kinds := map[uint64]int{}, map[uint64]int{}, map[event.StaticKind]int{}
			var cleared, compiledAgain uint64
			for _, p := range readCheckpoints(t, run.dir) {
				switch p.Name {
				case "program cache cleared":
					cleared = p.TimeNs
				case "compiled again":
					compiledAgain = p.TimeNs
				}
			}
			state := aggregate.New()
			seenCleared, global := false, 0
			for _, e := range run.events {
				if e.TimeNs > cleared && !seenCleared {
					seenCleared = true
					for _, d := range state.Snapshot().Devices {
						qt.Check(t, qt.Equals(d.Regions.CB.Programs, 0), qt.Commentf("chip %d", d.ID))
					}
				}
				state.Apply(&e)
				switch e.Kind {
				case event.CBAlloc:
					buffers[e.ProgramID]++
					kinds[e.StaticKind]++
					if e.Global {
						global++
						qt.Check(t, qt.IsTrue(inBuffer(state, e)), qt.Commentf("%+v", e))
					}
					qt.Check(t, qt.IsTrue(len(e.Cores) > 0 && e.SizeBytes > 0 && e.Address > 1<<16))
				case event.KernelLoad:
					kernels[e.ProgramID]++
					qt.Check(t, qt.HasLen(e.Devices, c.chips))
					qt.Check(t, qt.Equals(e.BytesPerBank > 0, c.text))
					qt.Check(t, qt.IsTrue(e.TimeNs < cleared || e.TimeNs < compiledAgain))
				case event.KernelUnload:
					kernels[e.ProgramID]--
				}
			}
			t.Logf("%d programs, static buffers by kind: %v", len(buffers), kinds)
			qt.Check(t, qt.IsTrue(len(buffers) >= 6), qt.Commentf("%d programs", len(buffers)))
			for id := range buffers { // a program may do without buffers, not without kernels
				qt.Check(t, qt.IsTrue(kernels[id] == 0), qt.Commentf("program %d: kernels are left", id))
				_, loaded := kernels[id]
				qt.Check(t, qt.IsTrue(loaded), qt.Commentf("program %d: no kernels", id))
			}
			qt.Check(t, qt.IsTrue(kinds[event.CircularBuffer] > 0))
			qt.Check(t, qt.Equals(global > 0, c.global))
			if c.version == "0.81.1" { // Metal 2.0's ops
				qt.Check(t, qt.IsTrue(kinds[event.DataflowBuffer] > 0))
			}
		})
	}
}

// inBuffer reports whether a circular buffer lies in a live L1 buffer.
func inBuffer(state *aggregate.State, cb event.Event) bool {
	for _, b := range state.HeldByProcess(cb.PID) {
		if b.Region == event.L1 && b.Address <= cb.Address && cb.Address+cb.SizeBytes <= b.Address+b.BytesPerBank {
			return true
		}
	}
	return false
}

// target is a program that runs by itself.
type target struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	env    *rig.Env
}

func startTarget(t *testing.T, env *rig.Env, board rig.Board, args ...string) *target {
	t.Helper()
	p := &target{Cmd: env.Command(context.Background(), board, args...), env: env}
	p.Dir = t.TempDir()
	p.Env = testEnviron(p.Env, board, p.Dir)
	p.start(t)
	return p
}

// start starts it with pipes, to be killed when the test ends.
func (p *target) start(t *testing.T) {
	t.Helper()
	p.Stderr = &p.stderr
	var err error
	p.stdin, err = p.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := p.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	p.stdout = bufio.NewReader(out)
	qt.Assert(t, qt.IsNil(p.Start()))
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
	})
}

// expect reads lines until one that begins so.
func (p *target) expect(t *testing.T, prefix string) string {
	t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %q: %v\n%s", prefix, err, p.stderr.String())
		}
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
}

// attachTo starts `ttmem attach` and waits until it is attached.
func attachTo(t *testing.T, file string, pids ...int) *exec.Cmd {
	t.Helper()
	args := []string{"attach", "--json", "--events", file}
	for _, pid := range pids {
		args = append(args, "-p", fmt.Sprint(pid))
	}
	cmd := exec.Command(ttmem, args...)
	stderr, err := cmd.StderrPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	r := bufio.NewReader(stderr)
	for {
		line, err := r.ReadString('\n')
		qt.Assert(t, qt.IsNil(err), qt.Commentf("attach ended: %s", line))
		if strings.Contains(line, "Ctrl-C") {
			break
		}
		t.Log(line)
	}
	go io.Copy(io.Discard, r)
	return cmd
}

// TestKilledTracer: SIGKILL of ttmem in the middle of 100,000 events changes
// nothing for the target and leaves no probe in it.
func TestKilledTracer(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	p := startTarget(t, env, "n150", program(t, "loop.py"), "50000", "2")
	p.expect(t, "ready")
	file := filepath.Join(t.TempDir(), "events.jsonl")
	tracer := attachTo(t, file, p.Process.Pid)
	placed := probesIn(t, p)
	qt.Assert(t, qt.IsTrue(placed > 10), qt.Commentf("%d probes are seen in the target", placed))

	fmt.Fprintln(p.stdin) // the first round
	waitForSize(t, file, 1<<20)
	qt.Assert(t, qt.IsNil(tracer.Process.Kill()))
	tracer.Wait()
	p.expect(t, "")
	qt.Check(t, qt.Equals(probesIn(t, p), 0))

	fmt.Fprintln(p.stdin) // the second
	p.expect(t, "")
	p.expect(t, "done")
	qt.Assert(t, qt.IsNil(p.Wait()))
	// what was written is whole lines
	text, err := os.ReadFile(file)
	qt.Assert(t, qt.IsNil(err))
	for _, line := range lines(string(text[:bytes.LastIndexByte(text, '\n')+1])) {
		qt.Assert(t, qt.IsTrue(strings.HasSuffix(line, "}")))
	}
}

// TestEndsDuringAttach: processes that end while they are attached to are told in a
// line, and nothing hangs.
func TestEndsDuringAttach(t *testing.T) {
	for range 20 {
		p := exec.Command("sleep", "0.02")
		qt.Assert(t, qt.IsNil(p.Start()))
		go p.Wait()
		_, stderr, status := runTtmem(t, nil, "attach", "-p", fmt.Sprint(p.Process.Pid))
		qt.Check(t, qt.Equals(status, 1))
		qt.Check(t, qt.HasLen(lines(stderr), 1), qt.Commentf("%s", stderr))
	}
}

// waitForSize waits until a file has grown to so many bytes.
func waitForSize(t *testing.T, file string, size int64) {
	t.Helper()
	for range 1000 {
		if info, err := os.Stat(file); err == nil && info.Size() >= size {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s does not grow to %d bytes", file, size)
}

// probesIn is how many of the library's probes stand in the target's memory: a
// placed probe is an int3 in the place of the instruction's first byte.
func probesIn(t *testing.T, p *target) (n int) {
	t.Helper()
	elf, err := symbolize.Open(p.env.Library)
	qt.Assert(t, qt.IsNil(err))
	defer elf.Close()
	l, err := layout.Derive(elf)
	qt.Assert(t, qt.IsNil(err))
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Process.Pid))
	qt.Assert(t, qt.IsNil(err))
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.Process.Pid))
	qt.Assert(t, qt.IsNil(err))
	defer mem.Close()
	for _, line := range lines(string(maps)) {
		if !strings.HasSuffix(line, filepath.Base(p.env.Library)) || !strings.Contains(line, "r-xp") {
			continue
		}
		var start, end, offset uint64
		_, err := fmt.Sscanf(line, "%x-%x r-xp %x", &start, &end, &offset)
		qt.Assert(t, qt.IsNil(err))
		for _, probe := range l.Probes {
			var b [1]byte
			if at := start + probe.FileOffset - offset; at < end {
				_, err := mem.ReadAt(b[:], int64(at))
				qt.Assert(t, qt.IsNil(err))
			}
			if b[0] == 0xcc {
				n++
			}
		}
	}
	return n
}

// TestTwoProcesses: processes on the same and on different library files are kept
// apart, and a killed one holds nothing any more.
func TestTwoProcesses(t *testing.T) {
	envs := []*rig.Env{setup(t, "0.81.1", "3.10"), setup(t, "0.81.1", "3.10"), setup(t, "0.76.0", "3.10")}
	var targets []*target
	var pids []int
	for i, env := range envs {
		p := startTarget(t, env, "n150", program(t, "hold.py"), fmt.Sprint(3+i), "512", "wait")
		p.expect(t, "opened")
		targets, pids = append(targets, p), append(pids, p.Process.Pid)
	}
	file := filepath.Join(t.TempDir(), "events.jsonl")
	tracer := attachTo(t, file, pids...)
	for _, p := range targets {
		fmt.Fprintln(p.stdin)
	}
	for _, p := range targets {
		p.expect(t, "holding")
	}
	const perBank = 45056 // 512×512 bfloat16 tiles: 256 pages on 12 banks
	for i, pid := range pids {
		held := waitForHeld(t, file, pid, uint64(3+i)*perBank)
		qt.Check(t, qt.Equals(held, uint64(3+i)*perBank))
	}
	total := func() uint64 {
		return regionOf(stateOf(t, file).Snapshot(), 0, event.DRAM).BytesPerBank
	}
	qt.Check(t, qt.Equals(total(), (3+4+5)*perBank))

	qt.Assert(t, qt.IsNil(targets[1].Process.Signal(syscall.SIGKILL)))
	targets[1].Wait()
	qt.Check(t, qt.Equals(waitForHeld(t, file, pids[1], 0), 0))
	qt.Check(t, qt.Equals(total(), (3+5)*perBank))
	killed := count(readEvents(t, file), func(e *event.Event) bool {
		return e.Kind == event.Free && e.PID == pids[1] && e.Reason == event.ReasonProcessExit
	})
	qt.Check(t, qt.Equals(killed, 4))

	for _, i := range []int{0, 2} {
		targets[i].stdin.Close()
		qt.Check(t, qt.IsNil(targets[i].Wait()))
	}
	qt.Check(t, qt.IsNil(tracer.Wait())) // all of them have ended
	qt.Check(t, qt.Equals(total(), 0))
}

// TestOtherNamespace: a process in its own mount namespace, with its own copy of
// the library, which is deleted before ttmem comes.
func TestOtherNamespace(t *testing.T) {
	env := setup(t, "0.76.0", "3.10")
	dir := t.TempDir()
	own := filepath.Join(dir, "own.so")
	library, err := os.ReadFile(env.Library)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(own, library, 0o755)))

	python := env.Command(context.Background(), "n150").Path
	p := &target{Cmd: exec.Command("unshare", "--mount", "sh", "-c",
		`mount --bind "$0" "$1" && shift && exec "$@"`, own, env.Library, python, program(t, "hold.py"), "6", "512", "wait"), env: env}
	p.Dir = dir
	p.Env = testEnviron(env.Command(context.Background(), "n150").Env, "n150", dir)
	p.start(t)
	p.expect(t, "opened")
	qt.Assert(t, qt.IsNil(os.Remove(own)))

	file := filepath.Join(dir, "events.jsonl")
	attachTo(t, file, p.Process.Pid)
	fmt.Fprintln(p.stdin)
	p.expect(t, "holding")
	const perBank = 45056
	qt.Check(t, qt.Equals(waitForHeld(t, file, p.Process.Pid, 6*perBank), 6*perBank))
	for _, e := range readEvents(t, file) {
		if e.Kind == event.ProcessStart {
			qt.Check(t, qt.Equals(e.Release, "0.76.0"))
		}
	}
	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()))
}

// TestOverwrittenLibrary: whoever writes to a library in place waits until its
// probes are gone; they would land in the middle of other instructions.
func TestOverwrittenLibrary(t *testing.T) {
	env := setup(t, "0.76.0", "3.10")
	dir := t.TempDir()
	own := filepath.Join(dir, "libtt_metal.so")
	library, err := os.ReadFile(env.Library)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(own, library, 0o755)))
	python := env.Command(context.Background(), "n150").Path
	p := &target{Cmd: exec.Command("unshare", "--mount", "sh", "-c",
		`mount --bind "$0" "$1" && shift && exec "$@"`, own, env.Library, python, program(t, "hold.py"), "6", "512"), env: env}
	p.Dir = dir
	p.Env = testEnviron(env.Command(context.Background(), "n150").Env, "n150", dir)
	p.start(t)
	p.expect(t, "holding")
	tracer := attachTo(t, filepath.Join(dir, "events.jsonl"), p.Process.Pid)
	qt.Assert(t, qt.IsTrue(probesIn(t, p) > 10))

	writer, err := os.OpenFile(own, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(probesIn(t, p), 0))
	qt.Assert(t, qt.IsNil(writer.Close()))

	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()))
	qt.Check(t, qt.IsNil(tracer.Wait()))
}

func stateOf(t *testing.T, file string) *aggregate.State {
	t.Helper()
	state := aggregate.New()
	for _, e := range readEvents(t, file) {
		state.Apply(&e)
	}
	return state
}

// waitForHeld waits up to two seconds until a process holds so much of each DRAM
// bank, and gives what it holds then.
func waitForHeld(t *testing.T, file string, pid int, want uint64) (held uint64) {
	t.Helper()
	for range 40 {
		held = 0
		for _, b := range stateOf(t, file).HeldByProcess(pid) {
			held += b.BytesPerBank
		}
		if held == want {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return held
}

// TestManyEvents: 200,000 events in a tight loop, and none is lost.
func TestManyEvents(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	run := traceRun(t, env, "n150", program(t, "loop.py"), "100000")
	qt.Assert(t, qt.Equals(run.status, 0))
	for kind, want := range map[event.Kind]int{event.Alloc: 100000, event.Free: 100000, event.Lost: 0} {
		qt.Check(t, qt.Equals(count(run.events, func(e *event.Event) bool { return e.Kind == kind }), want))
	}
}
