package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// scene is where a fault happens.
type scene struct {
	*stage
	t      *testing.T
	random *rand.Rand
	// dir is the folder in which ttmem and programs run. What they leave there has to be
	// wanted.
	dir    string
	wanted []string
	others int // probes of other tracers on this host
	// what was started
	programs []*program
	tracers  []*tracer
	failures []string
	skipped  string // why the fault cannot happen on this host
}

// errStop ends a fault, after a failure or to skip it.
var errStop = errors.New("the fault cannot go on")

func (s *scene) fail(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *scene) stop(format string, args ...any) {
	s.fail(format, args...)
	panic(errStop)
}

// skip ends a fault that this host cannot have.
func (s *scene) skip(why string) {
	s.skipped = why
	panic(errStop)
}

func (s *scene) must(err error) {
	if err != nil {
		s.stop("%v", err)
	}
}

// file is the path of a file that is to be written.
func (s *scene) file(name string) string {
	s.wanted = append(s.wanted, name)
	return filepath.Join(s.dir, name)
}

// tracer is a ttmem that runs.
type tracer struct {
	*scene
	cmd    *exec.Cmd
	log    string
	status *unix.WaitStatus
}

// trace starts ttmem; under is a command that starts it, such as prlimit.
func (s *scene) trace(under []string, args ...string) *tracer { return s.traceTo(nil, under, args...) }

// traceTo starts ttmem with a standard output.
func (s *scene) traceTo(out *os.File, under []string, args ...string) *tracer {
	all := append(append(under[:len(under):len(under)], ttmem), args...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "TMPDIR="+s.dir)
	if out != nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	return s.begin(cmd)
}

// run starts the program under `ttmem run` or `record`.
func (s *scene) run(under []string, rounds int, args ...string) (*tracer, *program) {
	cmd, p := s.command(append(append(append(under[:len(under):len(under)], ttmem), args...), "--"), rounds)
	s.programs = append(s.programs, p)
	return s.begin(cmd), p
}

func (s *scene) begin(cmd *exec.Cmd) *tracer {
	tr := &tracer{scene: s, cmd: cmd, log: filepath.Join(s.t.TempDir(), "log")}
	if cmd.Stderr == nil {
		log, err := os.Create(tr.log)
		s.must(err)
		defer log.Close()
		cmd.Stderr = log
	}
	s.must(cmd.Start())
	s.tracers = append(s.tracers, tr)
	return tr
}

// said is what it wrote to standard error.
func (tr *tracer) said() string {
	text, _ := os.ReadFile(tr.log)
	return string(text)
}

// isReady reports whether it has attached.
func (tr *tracer) isReady() bool {
	said := tr.said()
	return strings.Contains(said, "Ctrl-C ends") || strings.Contains(said, "listening at")
}

// ready waits until it has attached.
func (tr *tracer) ready() {
	if !tracetest.Eventually(endLimit, func() bool { return tr.isReady() || host.Ended(tr.cmd.Process.Pid) }) || !tr.isReady() {
		tr.stop("%v does not attach: %s", tr.cmd.Args, tr.said())
	}
}

func (tr *tracer) signal(signals ...unix.Signal) {
	for _, signal := range signals {
		_ = tr.cmd.Process.Signal(signal)
	}
}

// wait waits for its end.
func (tr *tracer) wait() unix.WaitStatus {
	if tr.status != nil {
		return *tr.status
	}
	ended := make(chan struct{})
	go func() { tr.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * endLimit * tracetest.Patience):
		tr.signal(unix.SIGQUIT) // Go prints where each goroutine is
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			tr.signal(unix.SIGKILL)
			<-ended
		}
		tr.fail("%v does not end: %s", tr.cmd.Args[1:], lastPart(tr.said()))
	}
	status := unix.WaitStatus(tr.cmd.ProcessState.Sys().(syscall.WaitStatus))
	tr.status = &status
	return status
}

// child is the command that it runs; 0 if there is none. Others of its children have its name, or
// read memory.
func (tr *tracer) child() int {
	all, _ := host.PIDs()
	for _, pid := range all {
		if host.Parent(pid) != tr.cmd.Process.Pid {
			continue
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		name, _, _ := strings.Cut(string(command), "\x00")
		if name != "" && name != ttmem && !strings.HasPrefix(name, "ttmem-") {
			return pid
		}
	}
	return 0
}

// ends ends it, and expects that it ends well.
func (tr *tracer) ends() {
	tr.signal(unix.SIGTERM)
	tr.exits(0)
}

// exits expects that it ends with this status.
func (tr *tracer) exits(status int) {
	if got := tr.wait(); !got.Exited() || got.ExitStatus() != status {
		tr.fail("%v ended with %s, not status %d: %s", tr.cmd.Args[1:], describe(got), status, lastPart(tr.said()))
	}
	tr.calm()
}

// calm checks that it did not crash.
func (tr *tracer) calm() {
	for _, sign := range []string{"goroutine ", "panic:", "fatal error:"} {
		if said := tr.said(); strings.Contains(said, sign) {
			tr.fail("%v crashed: %s", tr.cmd.Args[1:], said[:min(len(said), 3000)])
			return
		}
	}
}

// saysOnce expects one line with a text.
func (tr *tracer) saysOnce(text string) {
	n := 0
	for line := range strings.Lines(tr.said()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	if n != 1 {
		tr.fail("%v says %q %d times, not once: %s", tr.cmd.Args[1:], text, n, lastPart(tr.said()))
	}
}

// readable expects that a recording can be read, and that it has an end or not.
func (s *scene) readable(file string, hasEnd bool) {
	if cut := s.isCut(file); cut == hasEnd {
		s.fail("the recording %s (complete: %v) is said to be cut: %v", filepath.Base(file), hasEnd, cut)
	}
}

// isCut reads a recording, and reports whether it is said to have no end.
func (s *scene) isCut(file string) bool {
	cmd := exec.Command(ttmem, "report", file)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Dir = s.dir
	err := cmd.Run()
	if err != nil && strings.Contains(errs.String(), "it has no allocation so far") {
		return true // its writer was killed before that
	}
	if err != nil {
		s.fail("ttmem report %s: %v: %s", filepath.Base(file), err, errs.String())
	}
	if out.Len() == 0 {
		s.fail("ttmem report %s shows nothing", filepath.Base(file))
	}
	return strings.Contains(errs.String(), "has no end") || strings.Contains(errs.String(), "cut short")
}

// attached is a program that is attached to again and again.
func (s *scene) attached() *program {
	if s.shared != nil && s.shared.rounds > lastRound*2/3 {
		s.endShared()
	}
	if s.shared == nil {
		in := &scene{stage: s.stage, t: s.stage.t, dir: s.stage.dir} // which lives longer than s
		s.shared = in.start(0)
		s.shared.await(0)
	}
	s.shared.scene = s // whose failure it is
	s.others = len(s.shared.probes())
	return s.shared
}

// endShared ends that program.
func (s *scene) endShared() {
	p := s.shared
	s.stage.shared = nil
	p.scene = s
	p.ends()
}

// finish ends what was started, and checks what is left.
func (s *scene) finish() {
	for _, tr := range s.tracers {
		if tr.status != nil {
			continue
		}
		tr.signal(unix.SIGKILL)
		tr.wait()
	}
	for _, p := range s.programs {
		if p.pid != 0 && p.status == nil {
			unix.Kill(p.pid, unix.SIGKILL)
			p.wait()
		}
	}
	if p := s.shared; p != nil && p.scene == s {
		s.checkShared(p)
	}
	for _, pid := range children() {
		if s.shared != nil && pid == s.shared.pid {
			continue
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if !tracetest.Eventually(endLimit, func() bool { return host.Ended(pid) }) {
			s.fail("process %d is left: %q", pid, command)
			unix.Kill(pid, unix.SIGKILL)
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		s.fail("%v", err)
	}
	for _, file := range files {
		if !slices.Contains(s.wanted, file.Name()) {
			s.fail("the file %s is left", file.Name())
		}
	}
}

// checkShared checks the program that was attached to.
func (s *scene) checkShared(p *program) {
	defer func() {
		if recover() != nil { // with a failure
			s.stage.shared = nil
			unix.Kill(p.pid, unix.SIGKILL)
			_, _ = unix.Wait4(p.pid, nil, 0, nil)
		}
	}()
	p.await(p.rounds)
	p.printedPart()
	n := 0
	if !tracetest.Eventually(endLimit, func() bool { // a child may have to exec or to end first
		n = len(p.probes())
		return n <= s.others
	}) {
		s.fail("%d probes are left in the program", n-s.others)
	}
}
