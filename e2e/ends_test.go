package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// When a process is killed or crashes, all its buffers are freed at once, each by an event
// with the buffer's data but no stack, since no line of the program freed it. The log adds the
// allocation's stack, and the report names the buffers.
func TestEnds(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	for name, c := range map[string]struct {
		signal syscall.Signal
		end    func(*target)
	}{
		"SIGKILL": {syscall.SIGKILL, func(p *target) { p.Process.Kill() }},
		"SIGSEGV": {syscall.SIGSEGV, (*target).next},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "events.ttmem")
			under := env.Command(context.Background(), "n150", program(t, "host.py"), "crash")
			p := &target{env: env, Cmd: exec.Command(ttmem, append([]string{"run", "-o", file, "--", under.Path}, under.Args[1:]...)...)}
			p.Dir, p.Env = dir, testEnviron(under.Env, "n150", dir)
			p.start(t)
			p.expect(t, "holding")
			var pid int
			eventually(2*time.Minute, func() bool {
				events := readEvents(t, file)
				if len(events) == 0 || kinds(events, event.Alloc) != 4 {
					return false
				}
				pid = events[0].PID
				return true
			})
			if c.signal == syscall.SIGKILL {
				qt.Assert(t, qt.IsNil(syscall.Kill(pid, c.signal)))
			} else {
				p.next()
			}
			p.Wait()
			qt.Check(t, qt.Equals(p.ProcessState.ExitCode(), 128+int(c.signal)))

			allocs := map[uint64]event.Event{}
			events := readEvents(t, file)
			for _, e := range events {
				switch e.Kind {
				case event.Alloc:
					allocs[e.BufferID] = e
				case event.Free:
					a, known := allocs[e.BufferID]
					qt.Assert(t, qt.IsTrue(known))
					qt.Check(t, qt.Equals(e.Reason, event.ReasonProcessExit))
					qt.Check(t, qt.DeepEquals(e.Devices, []int{0}))
					qt.Check(t, qt.Equals(e.SizeBytes, a.SizeBytes))
					qt.Check(t, qt.Equals(e.Region, a.Region))
					qt.Check(t, qt.Equals(e.BytesPerBank, heldPerBank))
					qt.Check(t, qt.Equals(e.Banks, a.Banks))
					qt.Check(t, qt.HasLen(e.Stack.Frames(), 0))
				}
			}
			qt.Check(t, qt.Equals(dropped(events), 4))
			stacks, logged := map[uint64][]event.Frame{}, 0
			for _, e := range logLines(t, file) {
				switch e.Kind {
				case "alloc":
					stacks[e.BufferID] = e.Stack
				case "free":
					logged++
					stack := stacks[e.BufferID]
					qt.Check(t, qt.IsTrue(len(stack) > 0 && slices.Equal(e.Note.AllocatedBy, stack)), qt.Commentf("%d frames, %d at the allocation", len(e.Note.AllocatedBy), len(stack)))
				}
			}
			qt.Check(t, qt.Equals(logged, 4))
			status := syscall.WaitStatus(events[len(events)-1].ExitStatus)
			qt.Check(t, qt.Equals(status.Signal(), c.signal))
			report := p.stderr.String()
			qt.Check(t, qt.StringContains(report, name))
			qt.Check(t, qt.StringContains(report, "when it ended"))
			qt.Check(t, qt.StringContains(report, "4 buffers"))
		})
	}
}

// A process that reuses the id of an ended one is another process.
func TestReusedPID(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	free := exec.Command("true")
	qt.Assert(t, qt.IsNil(free.Run()))
	pid := free.Process.Pid
	h := traceHost(t)
	start := func(buffers string) *target {
		hold := env.Command(context.Background(), "n150", program(t, "hold.py"), buffers, "512")
		p := startTarget(t, env, "n150", append([]string{program(t, "spawn_as.py"), strconv.Itoa(pid), hold.Path}, hold.Args[1:]...)...)
		p.expect(t, "holding")
		return p
	}
	first := start("3")
	h.holds(t, pid, 3)
	qt.Assert(t, qt.IsNil(syscall.Kill(pid, syscall.SIGKILL)))
	first.Wait()

	second := start("2")
	h.holds(t, pid, 2)
	second.stdin.Close()
	second.Wait()
	events := h.ended(t, pid, 2)
	var order []event.Kind
	for _, e := range events {
		if (e.Kind == event.ProcessStart || e.Kind == event.ProcessExit) && !isLateName(&e) {
			order = append(order, e.Kind)
		}
	}
	qt.Check(t, qt.DeepEquals(order, []event.Kind{event.ProcessStart, event.ProcessExit, event.ProcessStart, event.ProcessExit}))
	qt.Check(t, qt.Equals(dropped(events), 3))
	qt.Check(t, qt.Equals(kinds(events, event.Alloc), 5))
}

// kernelObjects are the ids of a process's BPF objects. Ids are not reused for a long time.
type kernelObjects struct {
	links    []link.ID
	programs []ebpf.ProgramID
	maps     []ebpf.MapID
}

func objectsOf(t *testing.T, pid int) (o kernelObjects) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	qt.Assert(t, qt.IsNil(err))
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue // closed meanwhile
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ":")
			id, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			switch name {
			case "link_id":
				o.links = append(o.links, link.ID(id))
			case "prog_id":
				o.programs = append(o.programs, ebpf.ProgramID(id))
			case "map_id":
				o.maps = append(o.maps, ebpf.MapID(id))
			}
		}
		f.Close()
	}
	for _, id := range slices.Clone(o.maps) {
		o.maps = append(o.maps, mapsIn(t, id)...)
	}
	return o
}

// mapsIn are the inner maps of a map of maps.
func mapsIn(t *testing.T, id ebpf.MapID) (inner []ebpf.MapID) {
	t.Helper()
	m, err := ebpf.NewMapFromID(id)
	qt.Assert(t, qt.IsNil(err))
	defer m.Close()
	if m.Type() != ebpf.ArrayOfMaps {
		return nil
	}
	// Before Linux 6.8 each look-up in a map of maps waits for a grace period, so the many
	// empty slots cannot all be read.
	empty := 0
	for i := uint32(0); i < m.MaxEntries() && empty < 32; i++ {
		var id ebpf.MapID
		if m.Lookup(i, &id) == nil {
			inner, empty = append(inner, id), 0
		} else {
			empty++
		}
	}
	return inner
}

// left are the objects that the kernel still has.
func (o kernelObjects) left() (left []string) {
	note := func(what string, id any, c interface{ Close() error }, err error) {
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, os.ErrNotExist) {
			left = append(left, fmt.Sprint(what, " ", id))
		}
	}
	for _, id := range o.links {
		l, err := link.NewFromID(id)
		note("link", id, l, err)
	}
	for _, id := range o.programs {
		p, err := ebpf.NewProgramFromID(id)
		note("program", id, p, err)
	}
	for _, id := range o.maps {
		// Not by opening it: with each close of a map for tail calls, the kernel takes a
		// reference for work to be done later, and gives back one of several if it is busy.
		if next, err := ebpf.MapGetNextID(id - 1); next == id || err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, fmt.Sprint("map ", id))
		}
	}
	return left
}

// expectFreed waits until the kernel has freed all objects. It does so after several grace
// periods, one after the other, which take minutes if other work keeps all processors busy.
func (o kernelObjects) expectFreed(t *testing.T) {
	t.Helper()
	if !eventually(5*time.Minute, func() bool { return len(o.left()) == 0 }) {
		t.Errorf("left in the kernel: %q", o.left())
	}
}

// However ttmem ends, its links, programs and maps are gone from the kernel, and its probes
// from the target.
func TestNothingLeft(t *testing.T) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "hold.py"), "3", "512")
	p.expect(t, "holding")
	others := probesIn(t, p) // of other tracers on this host
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		tracer := attachTo(t, filepath.Join(t.TempDir(), "events.ttmem"))
		objects := objectsOf(t, tracer.Process.Pid)
		t.Logf("%v: %d links, %d programs, %d maps", signal, len(objects.links), len(objects.programs), len(objects.maps))
		qt.Assert(t, qt.IsTrue(len(objects.links) > 3 && len(objects.programs) > 3 && len(objects.maps) > 20))
		left := strings.Join(objects.left(), "\n") // so the check can fail, for each kind
		for kind, atLeast := range map[string]int{"link ": 3, "program ": 3, "map ": 20} {
			qt.Check(t, qt.IsTrue(strings.Count(left, kind) > atLeast), qt.Commentf("%s", left))
		}
		qt.Check(t, qt.IsTrue(probesIn(t, p) > 10))
		qt.Assert(t, qt.IsNil(tracer.Process.Signal(signal)))
		tracer.Wait()
		objects.expectFreed(t)
		qt.Check(t, qt.Equals(probesIn(t, p), others))
	}
}

// Processes that come and go leave nothing behind in ttmem.
func TestManyProcesses(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	load := env.Command(context.Background(), "n150", "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('loaded', flush=True); input()", env.Library)
	file := filepath.Join(t.TempDir(), "events.ttmem")
	shell := under(t, env, load, ttmem, "run", "-o", file, "--", "sh", "-c", `while read line; do "$@"; done`, "sh")
	processes := 0
	reported := func(kind event.Kind) {
		waitFor(t, fmt.Sprintf("the %v of %d processes", kind, processes), func() bool {
			return kinds(readEvents(t, file), kind) == processes
		})
	}
	come := func() {
		processes++
		shell.next()
		shell.expect(t, "loaded")
		reported(event.ProcessStart)
		shell.next()
		reported(event.ProcessExit)
	}
	left := func() (descriptors, maps int) {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", shell.Process.Pid))
		qt.Assert(t, qt.IsNil(err))
		return len(files), len(objectsOf(t, shell.Process.Pid).maps)
	}
	for range 3 {
		come()
	}
	// Files are read in the background, so the first figures may be too low. What processes
	// leave behind grows each time.
	for last := 3; last >= 0; last-- {
		files, maps := left()
		for range 10 {
			come()
		}
		var f, m int
		if eventually(time.Minute, func() bool {
			f, m = left()
			return f <= files && m <= maps
		}) {
			break
		}
		if last == 0 {
			t.Errorf("%d descriptors and %d maps, %d and %d ten processes before", f, m, files, maps)
		}
	}
}
