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
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/rig"
	"ttmem/symbolize"
	"ttmem/tracer/layout"
)

// target is a running program.
type target struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
	env    *rig.Env
}

func startTarget(t testing.TB, env *rig.Env, board rig.Board, args ...string) *target {
	t.Helper()
	p := &target{Cmd: env.Command(context.Background(), board, args...), env: env}
	p.Dir = t.TempDir()
	p.Env = testEnviron(p.Env, board, p.Dir)
	p.start(t)
	return p
}

// start starts it with pipes. It is killed when the test ends.
func (p *target) start(t testing.TB) {
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

// startWithOwnLibrary starts a program in its own mount namespace, in which its own copy of
// the library replaces the library.
func startWithOwnLibrary(t *testing.T, env *rig.Env, dir string, args ...string) (p *target, own string) {
	t.Helper()
	own = filepath.Join(dir, "libtt_metal.so")
	library, err := os.ReadFile(env.Library)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(own, library, 0o755)))
	under := env.Command(context.Background(), "n150", args...)
	p = &target{env: env, Cmd: exec.Command("unshare", append([]string{"--mount", "sh", "-c",
		`mount --bind "$0" "$1" && shift && exec "$@"`, own, env.Library, under.Path}, args...)...)}
	p.Dir, p.Env = dir, testEnviron(under.Env, "n150", dir)
	p.start(t)
	return p, own
}

// expect reads lines until one with this prefix.
func (p *target) expect(t testing.TB, prefix string) string {
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

// attachTo starts a `ttmem attach` that records, and waits until it is attached.
func attachTo(t *testing.T, file string, pids ...int) *exec.Cmd {
	t.Helper()
	cmd, _ := attachReading(t, file, pids...)
	return cmd
}

// attachReading is attachTo, and returns what attach has written to standard error so far, too.
func attachReading(t *testing.T, file string, pids ...int) (cmd *exec.Cmd, said func() string) {
	t.Helper()
	args := []string{"attach", "--json", "-o", file}
	for _, pid := range pids {
		args = append(args, "-p", fmt.Sprint(pid))
	}
	cmd = exec.Command(ttmem, args...)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = stderr
	said = func() string {
		text, _ := os.ReadFile(stderr.Name())
		return string(text)
	}
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		stderr.Close()
		t.Logf("attach: %s", said())
	})
	waitFor(t, "attach", func() bool { return strings.Contains(said(), "Ctrl-C") })
	return cmd, said
}

// waitForSize waits until a file has this size.
func waitForSize(t testing.TB, file string, size int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s to grow to %d bytes", file, size), func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() >= size
	})
}

// probesIn counts the library's probes in the target's memory: a placed probe is an int3 in
// the place of the instruction's first byte.
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

func stateOf(t *testing.T, file string) *aggregate.State {
	t.Helper()
	state := aggregate.New()
	for _, e := range readEvents(t, file) {
		state.Apply(&e)
	}
	return state
}

// waitForHeld waits until a process has this much live in each DRAM bank, and returns what it has then.
func waitForHeld(t *testing.T, file string, pid int, want uint64) (held uint64) {
	t.Helper()
	eventually(2*time.Minute, func() bool {
		held = 0
		for _, b := range stateOf(t, file).BuffersOf(pid) {
			held += b.BytesPerBank
		}
		return held == want
	})
	return held
}
