package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
)

// randomSignals are n signals, or sequences of signals, to ttmem or to a program that it
// traces, at random moments.
func randomSignals(seed uint64, n int) (faults []fault) {
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(list ...func(*scene, *rand.Rand)) func(*scene, *rand.Rand) { return list[random.IntN(len(list))] }
	for i := range n {
		do := pick(signalAttached, signalAttached, signalAttached, signalRun, signalTarget)
		faults = append(faults, fault{name: fmt.Sprintf("signal %d", i+1), do: func(s *scene) { do(s, s.random) }})
	}
	return faults
}

// signals are what is sent, one after the other.
func signals(random *rand.Rand, of ...[]unix.Signal) []unix.Signal { return of[random.IntN(len(of))] }

// one is a list of lists of one signal.
func one(signals ...unix.Signal) (lists [][]unix.Signal) {
	for _, s := range signals {
		lists = append(lists, []unix.Signal{s})
	}
	return lists
}

// send sends signals, with a pause between them.
func send(pid int, signals []unix.Signal) {
	for i, signal := range signals {
		if i > 0 {
			time.Sleep(50 * time.Millisecond)
		}
		_ = unix.Kill(pid, signal)
	}
}

// until a random moment.
func (s *scene) sleep(random *rand.Rand, most time.Duration) time.Duration {
	d := time.Duration(random.Int64N(int64(most)))
	time.Sleep(d)
	return d
}

// died reports whether a signal ended ttmem before it handled signals, when there was nothing
// to report.
func (tr *tracer) died(signals []unix.Signal) bool {
	return tr.status.Signaled() && contains(signals, tr.status.Signal()) && !tr.isReady() && tr.said() == ""
}

func contains(signals []unix.Signal, signal unix.Signal) bool {
	for _, s := range signals {
		if s == signal {
			return true
		}
	}
	return false
}

// signalAttached signals a ttmem that attaches to a program, or has attached.
func signalAttached(s *scene, random *rand.Rand) {
	sent := signals(random, append(one(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL, unix.SIGKILL, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGUSR1), []unix.Signal{unix.SIGSTOP, unix.SIGCONT}, []unix.Signal{unix.SIGTERM, unix.SIGKILL},
		[]unix.Signal{unix.SIGINT, unix.SIGINT, unix.SIGTERM}, []unix.Signal{unix.SIGSTOP, unix.SIGTERM, unix.SIGCONT})...)
	p := s.attached()
	var args []string
	var recording string
	mode := []string{"attach", "attach -o", "serve"}[random.IntN(3)]
	switch mode {
	case "attach":
		args = []string{"attach", "--no-record", "--json", "-p", fmt.Sprint(p.pid)}
	case "attach -o":
		recording = s.file("program.ttmem")
		args = []string{"attach", "-o", recording, "-p", fmt.Sprint(p.pid)}
	case "serve":
		recording = s.file("host.ttmem")
		args = []string{"serve", "--socket", filepath.Join(s.dir, "ttmem.sock"), "-o", recording, "--max-size", "64KiB", "--keep", "2"}
		s.wanted = append(s.wanted, "host.ttmem.1", "host.ttmem.new")
	}
	tr := s.trace(nil, args...)
	p.tell(10 + random.IntN(30))
	if random.IntN(3) > 0 { // in its steady state, not while it starts
		tr.ready()
	}
	after := s.sleep(random, 1500*time.Millisecond)
	ready := tr.isReady()
	send(tr.cmd.Process.Pid, sent)
	s.t.Logf("%v to %s after %v, ready: %v", sent, mode, after, ready)

	ending := contains(sent, unix.SIGINT) || contains(sent, unix.SIGTERM) || contains(sent, unix.SIGHUP) && mode != "serve"
	killed := contains(sent, unix.SIGKILL) || contains(sent, unix.SIGQUIT)
	if !ending && !killed {
		time.Sleep(300 * time.Millisecond)
		tr.signal(unix.SIGTERM)
	}
	status, again := tr.wait(), false
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		tr.calm()
	case tr.died(append(sent, unix.SIGTERM)): // if the end came too early, too
		ready = false
	case !ready && strings.Contains(tr.said(), "interrupted before tracing began: nothing was traced"):
	case status.Exited() && contains(sent, unix.Signal(status.ExitStatus()-128)): // the second ends it at once
		again = true
		tr.saysOnce("interrupted again")
		tr.calm()
	case contains(sent, unix.SIGKILL) && status.Signal() == unix.SIGKILL:
		again = len(sent) > 1
	case contains(sent, unix.SIGQUIT) && status.Exited() && status.ExitStatus() == 2: // as every Go program
	default:
		tr.fail("%v ended with %s: %s", tr.cmd.Args[1:], describe(status), lastPart(tr.said()))
	}
	clean := status.Exited() && status.ExitStatus() == 0
	if !clean {
		s.wanted = append(s.wanted, "ttmem.sock", "ttmem.sock.lock") // which the next one replaces
	}
	_, err := os.Stat(recording)
	if recording != "" && err != nil && !clean { // killed while it renamed
		recording += ".1"
		_, err = os.Stat(recording)
	}
	switch {
	case again && recording != "" && err == nil:
		s.isCut(recording)
	case recording != "" && err == nil && (ready || clean):
		s.readable(recording, clean)
	case recording != "" && (ready || clean):
		s.fail("there is no recording: %v", err)
	}
}

// signalRun signals a `ttmem run` of a command, from before it starts the
// command to after its end.
func signalRun(s *scene, random *rand.Rand) {
	sent := signals(random, append(one(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGKILL, unix.SIGKILL, unix.SIGPIPE, unix.SIGUSR1),
		[]unix.Signal{unix.SIGSTOP, unix.SIGCONT}, []unix.Signal{unix.SIGTERM, unix.SIGTERM})...)
	args, recording := []string{"run", "--no-record"}, ""
	if random.IntN(2) == 0 {
		recording = s.file("program.ttmem")
		args = []string{"run", "-o", recording}
	}
	tr, p := s.run(nil, 20+random.IntN(60), args...)
	p.in.Close()
	after := s.sleep(random, 4*time.Second)
	p.pid = tr.child()
	s.t.Logf("%v to %s after %v; the command is process %d", sent, args[0], after, p.pid)
	send(tr.cmd.Process.Pid, sent)
	status := tr.wait()
	quit := contains(sent, unix.SIGQUIT) && status.Exited() && status.ExitStatus() == 2 // as every Go program
	clean := status.Exited() && !quit
	switch {
	case status.Signaled() && status.Signal() == unix.SIGKILL: // the command goes on alone
		if p.pid == 0 {
			break
		}
		if end := p.wait(); end.ExitStatus() == 125 && p.output() == "" {
			break // it was never started
		}
		p.ends()
	case quit && p.output() != "": // the command had ended before
		p.printedAll()
	case quit, tr.died(sent):
		if out := p.output(); out != "" {
			s.fail("ttmem ended with %s, and its command has printed %q", describe(status), out)
		}
	case status.Exited() && status.ExitStatus() == 3:
		p.printedAll()
		tr.calm()
	case status.Exited() && contains(sent, unix.Signal(status.ExitStatus()-128)), // passed on
		contains(sent, unix.SIGINT) && status.Exited() && strings.Contains(p.errors(), "KeyboardInterrupt"):
		p.printedPart()
		tr.calm()
	case contains(sent, unix.SIGINT) && (status.ExitStatus() == 128+int(unix.SIGSEGV) || status.ExitStatus() == 128+int(unix.SIGABRT)) &&
		!strings.Contains(p.output(), "ready"): // ttnn's import crashes when it is interrupted, also without ttmem
		tr.calm()
	default:
		s.fail("%v ended with %s: %s; %s", args, describe(status), lastPart(tr.said()), p.errors())
	}
	if _, err := os.Stat(recording); recording != "" && err == nil && (clean || strings.Contains(p.output(), "ready")) {
		s.readable(recording, clean)
	}
}

// signalTarget signals a traced program between its start and its end.
func signalTarget(s *scene, random *rand.Rand) {
	sent := signals(random, append(one(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGKILL, unix.SIGSEGV, unix.SIGBUS, unix.SIGABRT,
		unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGTRAP), []unix.Signal{unix.SIGSTOP, unix.SIGCONT})...)
	want := s.untraced(sent)
	const rounds = 200
	recording := s.file("program.ttmem")
	var tr *tracer
	var p *program
	mode := []string{"run", "attach"}[random.IntN(2)]
	if mode == "run" {
		tr, p = s.run(nil, rounds, "run", "-o", recording)
		tracetest.Eventually(endLimit, func() bool { p.pid = tr.child(); return p.pid != 0 })
		p.await(0)
	} else {
		p = s.start(rounds)
		p.await(0)
		tr = s.trace(nil, "attach", "-o", recording, "-p", fmt.Sprint(p.pid))
	}
	after := s.sleep(random, 1500*time.Millisecond)
	s.t.Logf("%v to a program that was traced by %s, after %v", sent, mode, after)
	send(p.pid, sent)
	if !want.Signaled() { // else it is not to end otherwise
		p.in.Close()
	}
	early := "ended before it could be traced"
	if mode == "attach" {
		if status := p.wait(); status != want {
			s.fail("the program ended with %s, untraced with %s", describe(status), describe(want))
		}
		if status := tr.wait(); status.ExitStatus() == 1 && (strings.Contains(tr.said(), early) || strings.Contains(tr.said(), "no process")) {
			s.wanted = nil
		} else {
			tr.exits(0)
			s.readable(recording, true)
		}
	} else {
		status := want.ExitStatus()
		if want.Signaled() {
			status = 128 + int(want.Signal())
		}
		tr.exits(status)
		s.readable(recording, true)
	}
	if want.Signaled() {
		p.printedPart()
	} else {
		p.printedAll()
	}
}

// untraced is how an untraced program ends after signals.
func (s *scene) untraced(sent []unix.Signal) unix.WaitStatus {
	key := fmt.Sprint(sent)
	if status, known := s.statuses[key]; known {
		return status
	}
	p := s.start(5)
	p.await(5)
	send(p.pid, sent)
	time.Sleep(100 * time.Millisecond)
	p.in.Close()
	s.statuses[key] = p.wait()
	return *p.status
}

// hungUp takes the terminal away from a ttmem that was started to survive that.
func hungUp(s *scene) {
	p := s.attached()
	events := s.file("events.ttmem")
	tr := s.trace([]string{"nohup"}, "attach", "--json", "-o", events, "-p", fmt.Sprint(p.pid))
	tr.ready()
	tr.signal(unix.SIGHUP)
	p.play(2)
	s.complete(p, events)
	tr.ends()
}
