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

// as is how a program gets a process id.
func (s *scene) as(pid int) []string {
	spawn, err := filepath.Abs("../programs/spawn_as.py")
	s.must(err)
	return []string{s.env.Python, spawn, strconv.Itoa(pid)}
}

// reusedID gives the id of a program that is killed to another one at once. With stopped, ttmem reads
// neither what the first one did last nor its end before the second one allocates.
func reusedID(stopped bool) func(*scene) { return func(s *scene) { reuseID(s, stopped) } }

func reuseID(s *scene, stopped bool) {
	free := exec.Command("true")
	s.must(free.Run())
	pid := free.Process.Pid
	events := s.file("events.ttmem")
	tr := s.trace(nil, "attach", "--json", "-o", events)
	tr.ready()
	start := func(rounds int) (spawner int, p *program) {
		p = s.start(0, s.as(pid)...)
		spawner, p.pid = p.pid, pid
		tracetest.Eventually(endLimit, func() bool { return strings.Contains(p.output(), "ready") })
		p.play(rounds)
		return spawner, p
	}
	end := func(spawner int, p *program) {
		_, err := unix.Wait4(spawner, nil, 0, nil)
		s.must(err)
		p.status = new(unix.WaitStatus)
	}
	spawner, first := start(7)
	s.exact(first, events)
	if stopped {
		tr.signal(unix.SIGSTOP)
		first.play(2)
	}
	s.must(unix.Kill(pid, unix.SIGKILL))
	end(spawner, first)
	spawner, second := start(3)
	if stopped {
		tr.signal(unix.SIGCONT)
	}
	s.complete(second, events)
	second.in.Close()
	end(spawner, second)
	second.printedAll()
	tr.ends()
	if dram, l1 := allocated(s.events(events, pid), pid); dram+l1 > 0 {
		s.fail("process %d has ended, and has %d B of DRAM and %d B of L1 in each bank", pid, dram, l1)
	}
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
		_, err := io.WriteString(p.in, "exec\n")
		s.must(err)
		tracetest.Eventually(endLimit, func() bool { return strings.Count(p.output(), "\nready\n") == 2 })
		_, err = io.WriteString(p.in, strings.Repeat("\n", 4)) // which leaves other figures than 3 rounds
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
