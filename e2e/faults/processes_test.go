package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// endsWithinAttach ends programs while ttmem attaches to them, or to all.
func endsWithinAttach(s *scene) {
	times := 2
	if *tracetest.Long {
		times = 15
	}
	for i := range times {
		events := s.file(fmt.Sprintf("events%d.ttmem", i))
		p := s.start(0)
		p.await(0)
		args := []string{"attach", "--json", "-o", events}
		one := s.random.IntN(2) == 0
		if one {
			args = append(args, "-p", fmt.Sprint(p.pid))
		}
		tr := s.trace(nil, args...)
		after := s.sleep(s.random, time.Second)
		if s.random.IntN(2) == 0 {
			_ = unix.Kill(p.pid, unix.SIGKILL)
			p.wait()
		} else {
			p.ends()
		}
		s.t.Logf("ended after %v, attached: %v", after, tr.isReady())
		if !one {
			tr.ready()
			tr.ends()
		}
		status := tr.wait()
		said := tr.said()
		if one && status.ExitStatus() == 1 && strings.Count(said, "\n") == 1 &&
			(strings.Contains(said, "ended before it could be traced") || strings.Contains(said, "no process")) {
			continue
		}
		tr.exits(0)
	}
}

// as is how a program gets a process id; ids: with that of a container before it, if it is in one.
func (s *scene) as(ids string) []string {
	spawn, err := filepath.Abs("../programs/spawn_as.py")
	s.must(err)
	return []string{s.env.Python, spawn, ids}
}

// freeID is an id that no process has.
func (s *scene) freeID() int {
	free := exec.Command("true")
	s.must(free.Run())
	return free.Process.Pid
}

// startAs starts a program under a command that gives it a process id.
func (s *scene) startAs(pid int, under []string) (spawner int, p *program) {
	p = s.start(0, under...)
	spawner, p.pid = p.pid, pid
	tracetest.Eventually(endLimit, func() bool { return strings.Contains(p.output(), "ready") })
	return spawner, p
}

// ended waits for the end of a program that startAs has started.
func (p *program) ended(spawner int) {
	_, err := unix.Wait4(spawner, nil, 0, nil)
	p.must(err)
	p.status = new(unix.WaitStatus)
}

// reusedID gives the id of a program that is killed to another one at once. With stopped, ttmem reads
// neither what the first one did last nor its end before the second one allocates. In a container, both
// have the same id there as well.
func reusedID(stopped, inContainer bool) func(*scene) {
	return func(s *scene) {
		pid := s.freeID()
		under := s.as(fmt.Sprint(pid))
		if inContainer {
			enter, end := s.container()
			defer end()
			under = append(enter, s.as(fmt.Sprint("50,", pid))...)
		}
		events := s.file("events.ttmem")
		tr := s.trace(nil, "attach", "--json", "-o", events)
		tr.ready()
		spawner, first := s.startAs(pid, under)
		first.play(7)
		s.exact(first, events)
		if stopped {
			tr.signal(unix.SIGSTOP)
			first.play(2)
		}
		s.must(unix.Kill(pid, unix.SIGKILL))
		first.ended(spawner)
		spawner, second := s.startAs(pid, under)
		second.play(3)
		if stopped {
			tr.signal(unix.SIGCONT)
		}
		s.complete(second, events)
		second.in.Close()
		second.ended(spawner)
		second.printedAll()
		tr.ends()
		if dram, l1 := allocated(s.events(events, pid), pid); dram+l1 > 0 {
			s.fail("process %d has ended, and has %d B of DRAM and %d B of L1 in each bank", pid, dram, l1)
		}
	}
}

// container makes a namespace of processes, and returns a command that starts another one there.
func (s *scene) container() (enter []string, end func()) {
	cmd := exec.Command("unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "sleep", "infinity")
	s.must(cmd.Start())
	first := 0
	tracetest.Eventually(endLimit, func() bool {
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		n, _ := fmt.Sscan(string(list), &first)
		return n == 1
	})
	return []string{"nsenter", "--pid", "--mount", "--target", strconv.Itoa(first), "--"}, func() { cmd.Process.Kill(); cmd.Wait() }
}

// execs lets a program execute another one, which allocates with the same process id. With stopped, ttmem
// reads none of that before the second one allocates.
func execs(stopped bool) func(*scene) {
	return func(s *scene) {
		events := s.file("events.ttmem")
		tr := s.trace(nil, "attach", "--json", "-o", events)
		tr.ready()
		p := s.start(0)
		p.await(0)
		p.play(3)
		s.exact(p, events)
		if stopped {
			tr.signal(unix.SIGSTOP)
		}
		p.execute()
		_, err := io.WriteString(p.in, strings.Repeat("\n", 4)) // which leaves other figures than 3 rounds
		s.must(err)
		p.await(4)
		if stopped {
			tr.signal(unix.SIGCONT)
		}
		s.exact(p, events)
		ends := 0
		for _, e := range s.events(events, p.pid) {
			if e.Kind == event.ProcessExit {
				ends++
			}
		}
		if ends != 1 {
			s.fail("%d programs have ended in process %d", ends, p.pid)
		}
		s.must(unix.Kill(p.pid, unix.SIGKILL))
		p.wait()
		tr.ends()
	}
}

// execute lets a program execute itself.
func (p *program) execute() {
	p.write("exec\n")
	tracetest.Eventually(endLimit, func() bool { return strings.Count(p.output(), "\nready\n") == 2 })
}

// shiftedClock traces in a time namespace, whose clock is ahead or behind.
func shiftedClock(ahead bool) func(*scene) {
	return func(s *scene) {
		if _, err := os.Stat("/proc/self/ns/time"); err != nil {
			s.skip("this kernel has no time namespaces")
		}
		shift := int(host.Now() / 2e9)
		if !ahead {
			shift = -shift
		}
		p := s.attached()
		events := s.file("events.ttmem")
		beganNs := host.Now()
		tr := s.trace([]string{"unshare", "--time", "--monotonic", strconv.Itoa(shift), "--fork"},
			"attach", "--json", "-o", events, "-p", fmt.Sprint(p.pid))
		tr.ready()
		p.play(3)
		s.complete(p, events)
		all, _ := host.PIDs()
		for _, pid := range all {
			if host.Parent(pid) == tr.cmd.Process.Pid {
				s.must(unix.Kill(pid, unix.SIGTERM))
			}
		}
		tr.exits(0)
		for _, e := range s.events(events, p.pid) {
			if e.TimeNs < beganNs || e.TimeNs > host.Now() {
				s.fail("a %s of %.1f s, not between %.1f s and now", e.Kind, float64(e.TimeNs)/1e9, float64(beganNs)/1e9)
				break
			}
		}
	}
}

// processorComes takes a processor away and gives it back before and while ttmem traces. On that, programs
// map libraries that nobody has mapped before.
func processorComes(s *scene) {
	const online = "/sys/devices/system/cpu/cpu1/online"
	set := func(state string) {
		if err := os.WriteFile(online, []byte(state), 0); err != nil {
			s.skip(fmt.Sprint("no processor can go here: ", err))
		}
	}
	set("1") // fails where none can go
	s.t.Cleanup(func() { _ = os.WriteFile(online, []byte("1"), 0) })
	library, err := os.ReadFile(s.env.Library)
	s.must(err)
	events := s.file("events.ttmem")
	set("0")
	tr := s.trace(nil, "attach", "--json", "-o", events)
	tr.ready()
	for i := range 3 {
		if i == 2 { // it goes and comes while ttmem does not look
			set("1")
			time.Sleep(time.Second * tracetest.Patience)
			tr.signal(unix.SIGSTOP)
			set("0")
		}
		set("1")
		if i == 2 {
			tr.signal(unix.SIGCONT)
		}
		own := s.file(fmt.Sprintf("own%d.so", i))
		s.must(os.WriteFile(own, library, 0o755))
		time.Sleep(time.Second * tracetest.Patience) // all mappings are read again at once, which would find it
		p := s.start(0, "unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && exec taskset --cpu-list 1 "$@"`, own, s.env.Library)
		p.await(0)
		p.play(3)
		s.complete(p, events)
		p.ends()
		set("0")
	}
	tr.ends()
}

// anotherKilled kills one of two that trace the same program.
func anotherKilled(s *scene) {
	p := s.attached()
	events, recording := s.file("events.ttmem"), s.file("program.ttmem")
	stays := s.trace(nil, "attach", "--json", "-o", events, "-p", fmt.Sprint(p.pid))
	other := s.trace(nil, "attach", "-o", recording, "-p", fmt.Sprint(p.pid))
	stays.ready()
	other.ready()
	p.play(3)
	tracetest.Eventually(endLimit, func() bool { return len(s.events(recording, p.pid)) > 0 })
	other.signal(unix.SIGKILL)
	other.wait()
	p.play(5)
	s.complete(p, events)
	stays.ends()
	s.readable(recording, false)
}

// overwritten writes into a library that is traced. ttmem gives it up, and says so, or goes
// on with right figures.
func overwritten(s *scene) {
	own := s.file("own.so")
	library, err := os.ReadFile(s.env.Library)
	s.must(err)
	s.must(os.WriteFile(own, library, 0o755))
	p := s.start(0, "unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, own, s.env.Library)
	p.await(0)
	recording := s.file("host.ttmem")
	tr := s.trace(nil, "attach", "-o", recording)
	tr.ready()
	p.play(2)
	tracetest.Overwrite(s.t, own, s.env.Library)
	p.play(2)
	if *tracetest.Long { // until ttmem has looked at all processes: it might attach again
		other := s.start(0)
		other.await(0)
		other.play(2)
		if !tracetest.Eventually(endLimit, func() bool {
			return slices.ContainsFunc(s.events(recording, other.pid), func(e event.Event) bool { return e.PID == other.pid })
		}) {
			s.fail("another program is not traced")
		}
		other.ends()
	}
	p.play(2)
	tr.ends()
	s.readable(recording, true)
	if len(lost(s.events(recording, p.pid))) == 0 {
		s.exact(p, recording)
	}
	p.ends()
}

// debugger is a gdb that has attached to a program.
type debugger struct {
	*scene
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (s *scene) debug(p *program, setting string) *debugger {
	if _, err := exec.LookPath("gdb"); err != nil {
		s.skip("no gdb here")
	}
	d := &debugger{scene: s, cmd: exec.Command("gdb", "-nx", "-q", "-iex", setting,
		"-ex", "set pagination off", "-ex", "set confirm off", "-p", strconv.Itoa(p.pid))}
	d.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	var err error
	d.in, err = d.cmd.StdinPipe()
	s.must(err)
	out, err := d.cmd.StdoutPipe()
	s.must(err)
	d.out = bufio.NewReader(out)
	s.must(d.cmd.Start())
	s.t.Cleanup(func() { d.cmd.Process.Kill(); d.cmd.Wait() })
	d.do("echo attached\\n\n", "attached")
	return d
}

// do gives it commands, and waits for a text.
func (d *debugger) do(commands, text string) {
	_, err := io.WriteString(d.in, commands)
	d.must(err)
	d.await(text)
}

func (d *debugger) await(text string) {
	limit := time.AfterFunc(2*endLimit*tracetest.Patience, func() { d.cmd.Process.Kill() })
	defer limit.Stop()
	for said := ""; ; {
		line, err := d.out.ReadString('\n')
		if said += line; err != nil {
			d.stop("gdb does not say %q: %s", text, lastPart(said))
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// breakOn sets breakpoints on all instructions that have probes, and lets the program run.
func (d *debugger) breakOn(places []uint64) {
	var commands strings.Builder
	for _, place := range places {
		fmt.Fprintf(&commands, "break *%#x\n", place)
	}
	d.do(commands.String()+"echo go on\\n\ncontinue\n", "go on")
}

// isStopped reports whether a debugger has stopped the program.
func (p *program) isStopped() bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	return strings.Contains(string(status), "tracing stop")
}

// interrupt stops the program.
func (d *debugger) interrupt(p *program) {
	d.must(unix.Kill(p.pid, unix.SIGINT))
	d.await("received signal SIGINT")
}

// leave removes the breakpoints, and lets the program go.
func (d *debugger) leave() {
	d.do("delete\ndetach\necho left\\n\n", "left")
	d.in.Close()
	d.cmd.Wait()
}

// breakpointAfter has a debugger set its breakpoints on ttmem's, which ends first.
func breakpointAfter(setting string) func(*scene) {
	return func(s *scene) {
		p := s.start(0)
		p.await(0)
		tr := s.trace(nil, "attach", "-o", s.file("program.ttmem"), "-p", fmt.Sprint(p.pid))
		tr.ready()
		places := p.probes()
		d := s.debug(p, setting)
		d.breakOn(places)
		if !tracetest.Eventually(endLimit, func() bool { return !p.isStopped() }) { // breakpoints are there
			s.stop("gdb does not let the program go on")
		}
		tr.ends()
		tr.saysOnce("they do nothing now, and stay until it detaches")
		p.play(3)
		d.interrupt(p)
		d.leave() // gdb restores the code that it saw
		if !tracetest.Eventually(endLimit, func() bool { return len(p.probes()) == 0 }) {
			s.fail("%d probes are left in the program", len(p.probes()))
		}
		p.play(3)
		p.ends()
	}
}

// breakpointBefore has ttmem place probes on a debugger's breakpoints, and end first.
func breakpointBefore(s *scene) {
	p := s.start(0)
	p.await(0)
	trace := func() *tracer {
		tr := s.trace(nil, "attach", "--no-record", "--json", "-p", fmt.Sprint(p.pid))
		tr.ready()
		return tr
	}
	tr := trace()
	places := p.probes()
	tr.ends()
	d := s.debug(p, "set auto-solib-add off")
	d.breakOn(places)
	tr = trace()
	tr.ends()
	d.interrupt(p)
	d.leave()
	p.play(3)
	p.ends()
}

// other runs another program of e2e/programs or this package to its end.
func (s *scene) other(env []string, program string, args ...string) {
	path, err := filepath.Abs(program)
	s.must(err)
	cmd := s.env.Command(context.Background(), rig.N150, append([]string{path}, args...)...)
	cmd.Env = append(append(cmd.Env, "TTMEM_MESH=1x1"), env...)
	cmd.Dir = s.t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.stop("%s: %v: %s", program, err, lastPart(string(out)))
	}
}

// ringFills stops ttmem until a loud program has filled its part of the kernel's buffer. Its
// figures are to be right again, and a quiet program loses nothing.
func ringFills(s *scene) {
	quiet, loud := s.attached(), s.start(0)
	loud.await(0)
	events := s.file("events.ttmem")
	tr := s.trace(nil, "attach", "--json", "-o", events)
	tr.ready()
	quiet.play(2)
	tr.signal(unix.SIGSTOP)
	loud.rounds++
	_, err := io.WriteString(loud.in, "200000\n")
	s.must(err)
	loud.await(1)
	quiet.play(10)
	tr.signal(unix.SIGCONT)
	if !tracetest.Eventually(endLimit, func() bool { return len(lost(s.events(events, loud.pid))) > 0 }) {
		s.fail("nothing was lost")
	}
	s.exact(loud, events)
	s.complete(quiet, events)
	tr.ends()
}

// moreStacks fills the table of call stacks. New ones of other programs are to be there.
func moreStacks(s *scene) {
	p := s.attached()
	events := s.file("events.ttmem")
	tr := s.trace(nil, "attach", "--json", "-o", events)
	tr.ready()
	s.other(nil, "programs/paths.py", "600000")
	fresh := s.start(0)
	fresh.await(0)
	fresh.play(5)
	p.play(5)
	tr.ends()
	for _, one := range []*program{p, fresh} {
		list := s.events(events, one.pid)
		allocs, without := 0, 0
		for i := range list {
			if e := &list[i]; e.Kind == event.Alloc && e.PID == one.pid && !e.BeforeAttach {
				allocs++
				if e.Stack == nil || len(e.Stack.Frames()) == 0 {
					without++
				}
			}
		}
		if without > 0 {
			s.fail("%d of %d allocations of process %d have no call stack", without, allocs, one.pid)
		}
		if allocs == 0 {
			s.fail("process %d has no allocations", one.pid)
		}
	}
	fresh.ends()
}

// muchCode starts and ends programs whose unwind tables are large, beside another one.
func muchCode(s *scene) {
	libraries := tracetest.MuchCode(s.t, 3, ".")
	p := s.attached()
	events := s.file("events.ttmem")
	tr := s.trace(nil, "attach", "--json", "-o", events)
	tr.ready()
	p.play(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			_, _ = io.WriteString(p.in, "\n")
		}
	}()
	for range 2 {
		s.other([]string{"LD_PRELOAD=" + strings.Join(libraries, ":")}, "../programs/one.py")
	}
	<-done
	p.rounds += 40
	p.await(p.rounds)
	printed := time.Now()
	s.complete(p, events)
	if late := time.Since(printed); tracetest.IsLate(late, 2*time.Second) {
		s.fail("the events of the last round came after %v", late)
	}
	tr.ends()
}
