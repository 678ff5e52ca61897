package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// lastRound is how many rounds of a program are compared; few on an emulated machine.
var lastRound = 300

// endLimit is how long a program or ttmem may take to end on a busy machine.
const endLimit = 30 * time.Second

// script is what the untraced program prints.
type script struct {
	lines []string
	// after is the number of lines up to the end of each round.
	after []int
}

// clock is what differs in each run.
var clock = regexp.MustCompile(`^\d{4}-\d\d-\d\d [0-9:.]+`)

func newScript(output string) *script {
	s := new(script)
	s.lines = strings.Split(clocked(output), "\n")
	for i, line := range s.lines {
		if strings.HasPrefix(line, "round ") || line == "ready" {
			s.after = append(s.after, i+1)
		}
	}
	return s
}

func clocked(output string) string {
	lines := strings.Split(output, "\n")
	for i := range lines {
		lines[i] = clock.ReplaceAllString(lines[i], "")
	}
	return strings.Join(lines, "\n")
}

// whole is what the program prints if it ends by itself after some rounds.
func (s script) whole(rounds int) string {
	return strings.Join(append(s.lines[:s.after[rounds]:s.after[rounds]], s.lines[s.after[lastRound]:]...), "\n")
}

// begins reports whether the program may have printed this, up to its last complete line, if it
// was asked to play some rounds.
func (s script) begins(output string, rounds int) bool {
	output = clocked(output[:strings.LastIndexByte(output, '\n')+1])
	return strings.HasPrefix(s.whole(rounds), output)
}

// program is work.py, which runs.
type program struct {
	*scene
	pid    int
	in     io.WriteCloser
	dir    string
	rounds int // that it was asked to play
	// status is its end, if it is known.
	status *unix.WaitStatus
}

// command is the program with its files.
func (s *scene) command(under []string, rounds int) (*exec.Cmd, *program) {
	work, err := filepath.Abs("programs/work.py")
	s.must(err)
	p := &program{scene: s, dir: s.t.TempDir()}
	cmd := s.env.Command(context.Background(), rig.N150, work, filepath.Join(p.dir, "errors"))
	if len(under) > 0 {
		path, err := exec.LookPath(under[0])
		s.must(err)
		cmd.Path, cmd.Args = path, append(under[:len(under):len(under)], append([]string{cmd.Path}, cmd.Args[1:]...)...)
	}
	cmd.Env = append(cmd.Env, "TTMEM_MESH=1x1")
	cmd.Dir = s.dir
	out, err := os.Create(filepath.Join(p.dir, "output"))
	s.must(err)
	s.t.Cleanup(func() { out.Close() })
	cmd.Stdout = out
	in, write, err := os.Pipe() // not cmd.StdinPipe: Wait closes that, and the program may outlive ttmem
	s.must(err)
	s.t.Cleanup(func() { in.Close(); write.Close() })
	cmd.Stdin, p.in = in, write
	p.tell(rounds)
	// a terminal's signals and those to a process group are not what is tested
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	return cmd, p
}

// start starts the program untraced.
func (s *scene) start(rounds int, under ...string) *program {
	cmd, p := s.command(under, rounds)
	s.must(cmd.Start())
	p.pid = cmd.Process.Pid
	s.programs = append(s.programs, p)
	return p
}

// tell makes it play rounds.
func (p *program) tell(rounds int) {
	p.rounds += rounds
	_, err := io.WriteString(p.in, strings.Repeat("\n", rounds))
	p.must(err)
}

// write writes to its input.
func (p *program) write(text string) {
	_, err := io.WriteString(p.in, text)
	p.must(err)
}

// says waits for a text in its output, and scans what follows.
func (p *program) says(text string, values ...any) {
	if !tracetest.Eventually(endLimit, func() bool {
		_, after, _ := strings.Cut(p.output(), text)
		line, _, whole := strings.Cut(after, "\n")
		n, _ := fmt.Sscan(line, values...)
		return whole && n == len(values)
	}) {
		p.stop("the program does not say %q: %s", text, p.errors())
	}
}

// play makes it play rounds, and waits for them.
func (p *program) play(rounds int) {
	p.tell(rounds)
	p.await(p.rounds)
}

// playUntil makes it play rounds until something has happened.
func (p *program) playUntil(happened func() bool) {
	tracetest.Eventually(endLimit, func() bool {
		if happened() {
			return true
		}
		p.play(3)
		return false
	})
}

// await waits until it has played some rounds, 0: until it is ready.
func (p *program) await(rounds int) {
	want := []byte(fmt.Sprintf("\nround %d ", rounds))
	if rounds == 0 {
		want = []byte("\nready\n")
	}
	if !tracetest.Eventually(endLimit, func() bool {
		text, _ := os.ReadFile(filepath.Join(p.dir, "output"))
		return bytes.Contains(text, want) || host.Ended(p.pid)
	}) || host.Ended(p.pid) {
		p.stop("the program does not play round %d: %s", rounds, p.errors())
	}
}

func (p *program) output() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "output"))
	p.must(err)
	return string(text)
}

// errors is the end of what it wrote to standard error.
func (p *program) errors() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "errors"))
	return lastPart(string(text))
}

func lastPart(text string) string { return text[max(0, len(text)-2000):] }

// wait waits for its end. It is a child of this process, if only because ttmem has ended.
func (p *program) wait() unix.WaitStatus {
	if p.status != nil {
		return *p.status
	}
	var status unix.WaitStatus
	if !tracetest.Eventually(2*endLimit, func() bool {
		pid, err := unix.Wait4(p.pid, &status, unix.WNOHANG, nil)
		return pid == p.pid || err == unix.ECHILD
	}) {
		unix.Kill(p.pid, unix.SIGKILL)
		p.fail("the program does not end: %s", p.errors())
		_, _ = unix.Wait4(p.pid, &status, 0, nil)
	}
	p.status = &status
	return status
}

// ends expects that it ends as untraced once its input has ended.
func (p *program) ends() {
	p.in.Close()
	if status := p.wait(); !status.Exited() || status.ExitStatus() != 3 {
		p.fail("the program ended with %s, untraced with status 3: %s", describe(status), p.errors())
	}
	p.printedAll()
}

// printedAll checks the output of a program that ended by itself.
func (p *program) printedAll() {
	if got, want := clocked(p.output()), p.reference().whole(p.rounds); got != want {
		p.fail("the program printed %q, untraced %q", difference(got, want), difference(want, got))
	}
	if said := p.errors(); said != "" {
		p.fail("the program wrote to standard error: %s", said)
	}
}

// printedPart checks the output of a program that did not reach its end.
func (p *program) printedPart() {
	if got := p.output(); !p.reference().begins(got, p.rounds) {
		want := p.reference().whole(p.rounds)
		p.fail("the program printed %q, untraced %q", difference(clocked(got), want), difference(want, clocked(got)))
	}
}

// difference is the part of a text where it differs from another one.
func difference(text, other string) string {
	at := 0
	for at < min(len(text), len(other)) && text[at] == other[at] {
		at++
	}
	return text[max(0, at-20):min(len(text), at+200)]
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("status %d", status.ExitStatus())
}

// probes are the addresses in the library's code where its memory differs from the file.
func (p *program) probes() (places []uint64) {
	mappings, err := new(host.Proc).CodeMappings(p.pid)
	p.must(err)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.pid))
	p.must(err)
	defer mem.Close()
	for _, m := range mappings {
		if filepath.Base(m.Path) != filepath.Base(p.env.Library) {
			continue
		}
		file, err := new(host.Proc).OpenMapped(p.pid, m.Start, m.End)
		p.must(err)
		in, of := make([]byte, m.End-m.Start), make([]byte, m.End-m.Start)
		_, err = mem.ReadAt(in, int64(m.Start))
		p.must(err)
		_, _ = file.ReadAt(of, int64(m.Offset)) // its last page is longer than it
		file.Close()
		for i := range in {
			if in[i] != of[i] {
				places = append(places, m.Start+uint64(i))
			}
		}
	}
	return places
}
