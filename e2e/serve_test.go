package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/service"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// server is a running `ttmem serve`.
type server struct {
	*exec.Cmd
	*service.Client
	socket string
	notify *net.UnixConn // what systemd would receive

	mu  sync.Mutex
	log bytes.Buffer
}

// startServer starts it and waits until it answers.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{socket: filepath.Join(t.TempDir(), "ttmem.sock")}
	for dir := s.socket; dir != os.TempDir() && dir != "/"; { // all users must be able to reach it
		dir = filepath.Dir(dir)
		if dir != os.TempDir() {
			qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
		}
	}
	s.start(t, exec.Command(ttmem, append([]string{"serve", "--socket", s.socket}, args...)...))
	return s
}

// start starts a service with a command, and waits until it answers.
func (s *server) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	s.Cmd, cmd.Stderr = cmd, s
	var err error
	notify := filepath.Join(t.TempDir(), "notify")
	s.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.Chmod(notify, 0o777))) // as systemd's is
	t.Cleanup(func() { s.notify.Close() })
	s.Cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify)
	qt.Assert(t, qt.IsNil(s.Start()))
	t.Cleanup(func() {
		if t.Failed() && s.Client != nil {
			if snapshot, err := s.Snapshot(context.Background()); err == nil {
				text, _ := json.Marshal(snapshot)
				t.Logf("%s", text)
			}
		}
		s.Process.Kill()
		s.Wait()
		if t.Failed() {
			t.Logf("%s", s.said())
		}
	})
	waitFor(t, "serve is ready", func() bool { return strings.Contains(s.said(), "listening at") })
	s.Client, err = service.Dial(s.socket)
	qt.Assert(t, qt.IsNil(err))
	s.expectNotified(t, "READY=1")
}

func (s *server) expectNotified(t *testing.T, want string) {
	t.Helper()
	b := make([]byte, 100)
	qt.Assert(t, qt.IsNil(s.notify.SetReadDeadline(time.Now().Add(time.Minute*patience))))
	n, err := s.notify.Read(b)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(b[:n]), want))
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

// said is the log so far.
func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// stop ends it and checks that it leaves nothing behind.
func (s *server) stop(t *testing.T) {
	t.Helper()
	objects := objectsOf(t, s.Process.Pid)
	qt.Check(t, qt.IsTrue(len(objects.links) > 3 && len(objects.programs) > 3 && len(objects.maps) > 3))
	qt.Assert(t, qt.IsNil(s.Process.Signal(unix.SIGTERM)))
	qt.Check(t, qt.IsNil(s.Wait()), qt.Commentf("%s", s.said()))
	s.expectNotified(t, "STOPPING=1")
	log := lines(s.said())
	qt.Check(t, qt.Matches(log[len(log)-1], `ttmem: ended after .*: \d+ process.* traced, \d+ events? lost`))
	left, err := os.ReadDir(filepath.Dir(s.socket))
	qt.Assert(t, qt.IsNil(err))
	for _, file := range left {
		qt.Check(t, qt.Not(qt.StringContains(file.Name(), ".sock")))
	}
	objects.expectFreed(t)
}

func (s *server) snapshot(t *testing.T) *memory.Snapshot {
	t.Helper()
	snapshot, err := s.Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	return snapshot
}

// allocated is what a process that runs has in DRAM.
func (s *server) allocated(t *testing.T, pid int) uint64 {
	t.Helper()
	for _, p := range s.snapshot(t).Processes {
		for _, l := range p.Live {
			if p.PID == pid && p.Exit == nil && l.Region == "DRAM" {
				return l.AllocatedBytes
			}
		}
	}
	return 0
}

// knows reports whether it traces a process.
func (s *server) knows(t *testing.T, pid int) bool {
	t.Helper()
	return slices.ContainsFunc(s.snapshot(t).Processes, func(p memory.Process) bool { return p.PID == pid })
}

// descriptors is the number of files that a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	qt.Assert(t, qt.IsNil(err))
	return len(list)
}

// A service's answers equal the memory of its processes, of one release and of two, in a snapshot, on a
// stream and in its recording, and the log reports their ends.
func TestServe(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.76.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) { assertServes(t, setup(t, "0.81.1", "3.10"), setup(t, version, "3.10")) })
	}
}

func assertServes(t *testing.T, envs ...*rig.Env) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "host.ttmem")
	s := startServer(t, "-o", file)
	for _, env := range envs {
		s.discover(t, env)
	}
	const banks = 12
	var targets []*target
	for i, env := range envs {
		p := startTarget(t, env, "n150", program(t, "hold.py"), fmt.Sprint(3+i), "512", "wait")
		p.expect(t, "opened")
		targets = append(targets, p)
	}
	for _, p := range targets {
		waitFor(t, "the service to discover it", func() bool { return s.knows(t, p.Process.Pid) })
		p.next()
		p.expect(t, "holding")
	}
	holds := func(i int) func() bool {
		return func() bool {
			return s.allocated(t, targets[i].Process.Pid) == uint64(3+i)*heldPerBank*banks
		}
	}
	for i := range targets {
		waitFor(t, "the snapshot has what is live", holds(i))
	}
	_, stderr, status := runTtmem(t, nil, "serve", "--socket", s.socket)
	qt.Check(t, qt.Equals(status, 1))
	qt.Check(t, qt.Matches(stderr, `ttmem: another ttmem serves on .* \(PID \d+\): .*\n`))

	qt.Assert(t, qt.IsNil(s.Process.Signal(unix.SIGHUP))) // which does nothing
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := s.Stream(ctx)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(targets[0].Process.Signal(unix.SIGKILL)))
	targets[1].stdin.Close()
	qt.Check(t, qt.IsNil(targets[1].Wait()))
	followed, ends, withStack := aggregate.New(), 0, 0
	for e := (event.Event{}); ends < len(targets); {
		qt.Assert(t, qt.IsNil(stream.Next(&e)))
		followed.Apply(&e)
		for _, p := range targets {
			if e.Kind == event.Checkpoint {
				for _, b := range followed.BuffersOf(p.Process.Pid) {
					if len(b.Stack.Frames()) > 3 {
						withStack++
					}
				}
			}
			if e.PID == p.Process.Pid && e.Kind == event.ProcessExit {
				ends++
			}
		}
	}
	qt.Check(t, qt.IsTrue(withStack > 0)) // of what was there when the stream began
	for i, p := range targets {
		qt.Check(t, qt.HasLen(followed.BuffersOf(p.Process.Pid), 0))
		qt.Check(t, qt.Equals(s.allocated(t, p.Process.Pid), 0))
		met := fmt.Sprintf("tracing PID %d of user 0: ", p.Process.Pid)
		qt.Check(t, qt.Equals(strings.Count(s.said(), met), 1))
		end := []string{" ended by SIGKILL; unfreed: 1.5 MiB of DRAM\n", " ended; freed by closing the device: 2.1 MiB of DRAM\n"}[i]
		qt.Check(t, qt.StringContains(s.said(), fmt.Sprintf("ttmem: PID %d%s", p.Process.Pid, end)))
	}
	s.stop(t)
	// the stream ends with the service, as a complete recording
	for e := (event.Event{}); err == nil; err = stream.Next(&e) {
	}
	qt.Check(t, qt.ErrorIs(err, io.EOF))

	f, err := os.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	recorded, err := recording.NewReader(f)
	qt.Assert(t, qt.IsNil(err))
	allocs, recordedWithStack := 0, 0
	for e := (event.Event{}); recorded.Next(&e) == nil; {
		if e.Kind == event.Alloc && (e.PID == targets[0].Process.Pid || e.PID == targets[1].Process.Pid) {
			allocs++
			if len(e.Stack.Frames()) > 3 {
				recordedWithStack++
			}
		}
	}
	_, complete := recorded.End()
	qt.Check(t, qt.IsTrue(complete))
	qt.Check(t, qt.Equals(allocs, 3+4))
	qt.Check(t, qt.Equals(recordedWithStack, withStack))
}

// discover makes the service discover a release: a process that ends while its library is seen
// for the first time is lost, and reported so, and its allocations have no stacks. The service knows
// all of its code once a process has complete stacks.
func (s *server) discover(t *testing.T, env *rig.Env) {
	t.Helper()
	const tries = 10
	for range tries {
		before := s.notKnownYet(t)
		p := startTarget(t, env, "n150", program(t, "hold.py"), "1", "32")
		p.expect(t, "holding")
		if !eventually(2*time.Minute, func() bool { return s.allocated(t, p.Process.Pid) > 0 }) {
			t.Fatalf("the process was not traced; it has %d probes", probesIn(t, p))
		}
		p.stdin.Close()
		qt.Assert(t, qt.IsNil(p.Wait()))
		if s.notKnownYet(t) == before {
			return
		}
	}
	t.Logf("beside each of %d processes, call stacks were incomplete", tries)
}

// notKnownYet is the number of call stacks on the host that were taken before the service had read the process's code.
func (s *server) notKnownYet(t *testing.T) uint64 {
	t.Helper()
	stacks := s.snapshot(t).Stacks
	if stacks == nil { // none was taken
		return 0
	}
	return stacks.Incomplete["process not known yet"]
}

// assertTotals checks that the memory of the chips equals that of the running processes:
// nothing, if there are none.
func assertTotals(t *testing.T, s *memory.Snapshot) {
	t.Helper()
	for cause, n := range s.Lost {
		// a process of another test, which ended while it loaded the library
		if cause != "process ended before its library was traced" {
			t.Errorf("%d events were lost: %s", n, cause)
		}
	}
	for _, chip := range s.Devices {
		for region := range event.Region(event.BankedRegions) {
			held := uint64(0)
			for i := range s.Processes {
				for j := range s.Processes[i].Devices {
					if d := &s.Processes[i].Devices[j]; d.ID == chip.ID && s.Processes[i].Exit == nil {
						held += d.Regions.Banked(region).AllocatedBytes
					}
				}
			}
			qt.Check(t, qt.Equals(chip.Regions.Banked(region).AllocatedBytes, held), qt.Commentf("chip %d %s", chip.ID, region))
		}
		running := slices.ContainsFunc(s.Processes, func(p memory.Process) bool { return p.Exit == nil })
		if !running {
			qt.Check(t, qt.Equals(chip.Regions.CB.Bytes, 0))
			qt.Check(t, qt.Equals(chip.Regions.Kernel.DRAMBytes, 0))
		}
	}
}

// dialAs connects as another user: the kernel takes the user of the thread.
func dialAs(t *testing.T, path string, uid int) net.Conn {
	t.Helper()
	type dialed struct {
		c   net.Conn
		err error
	}
	done := make(chan dialed)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				err = errno
			} else {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
		}
		if err != nil {
			done <- dialed{err: err}
			return
		}
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		c, err := net.FileConn(f)
		done <- dialed{c, err}
	}()
	d := <-done
	qt.Assert(t, qt.IsNil(d.err))
	t.Cleanup(func() { d.c.Close() })
	return d.c
}

// getAs sends a request as another user. A stream has no end; reading stops after a minute.
func getAs(t *testing.T, path string, uid int, what string) io.Reader {
	t.Helper()
	c := dialAs(t, path, uid)
	qt.Assert(t, qt.IsNil(c.SetDeadline(time.Now().Add(time.Minute*patience))))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", what)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(answer.StatusCode, 200))
	return answer.Body
}

func snapshotAs(t *testing.T, path string, uid int) string {
	t.Helper()
	text, err := io.ReadAll(getAs(t, path, uid, "/v1/snapshot"))
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

// nobody is a user without privileges.
const nobody = 65534

// A user gets no byte of another user's command or stacks, and all of their own processes.
func TestServeShowsUsersTheirOwn(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	s := startServer(t)
	s.discover(t, env)
	theirs := startTarget(t, env, "n150", program(t, "hold.py"), "3", "512", "wait", "secret-of-root")
	one := env.Command(context.Background(), "n150", program(t, "one.py"), "secret-of-nobody")
	mine := &target{env: env, Cmd: exec.Command("sh", append([]string{"-c", `exec "$0" "$@"`, one.Path}, one.Args[1:]...)...)}
	mine.Dir, mine.Env = "/", testEnviron(one.Env, "n150", t.TempDir())
	mine.SysProcAttr = &syscall.SysProcAttr{ // the rig may lie in root's home; the shell's exec has the capability
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: []uintptr{unix.CAP_DAC_OVERRIDE},
	}
	theirs.expect(t, "opened")
	stream, err := recording.NewReader(getAs(t, s.socket, nobody, "/v1/stream"))
	qt.Assert(t, qt.IsNil(err))
	mine.start(t)
	theirs.next()
	theirs.expect(t, "holding")
	qt.Assert(t, qt.IsNil(mine.Wait()), qt.Commentf("%s", mine.stderr.String()))

	var events strings.Builder
	allocs := 0
	for e := (event.Event{}); e.Kind != event.ProcessExit; {
		qt.Assert(t, qt.IsNil(stream.Next(&e)))
		line, err := event.MarshalJSON(e.Record())
		qt.Assert(t, qt.IsNil(err))
		events.Write(append(line, '\n'))
		if e.Kind == event.Alloc {
			allocs++
			qt.Check(t, qt.Equals(e.PID, mine.Process.Pid))
		}
	}
	qt.Check(t, qt.Equals(allocs, 5))
	for _, text := range []string{events.String(), snapshotAs(t, s.socket, nobody)} {
		qt.Check(t, qt.StringContains(text, "secret-of-nobody"))
		qt.Check(t, qt.Not(qt.StringContains(text, "secret-of-root")))
		qt.Check(t, qt.Not(qt.StringContains(text, "hold.py")))
		qt.Check(t, qt.Not(qt.StringContains(text, fmt.Sprintf(`"pid":%d`, theirs.Process.Pid))))
	}
	// the same requests by root
	qt.Check(t, qt.StringContains(snapshotAs(t, s.socket, 0), "secret-of-root"))
	qt.Check(t, qt.Equals(s.allocated(t, theirs.Process.Pid), 3*heldPerBank*12))
}

// Whatever clients send, do not send or do not read, the service continues to trace and to
// answer others, and needs little memory for it.
func TestServeHostileClients(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	s := startServer(t)
	p := startTarget(t, env, "n150", program(t, "loop.py"), "30000", "2")
	p.expect(t, "ready")
	before, err := s.Health(context.Background())
	qt.Assert(t, qt.IsNil(err))

	for range 4 { // clients that do not read
		fmt.Fprint(dialAs(t, s.socket, 0), "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	for i := range 4 {
		fmt.Fprint(dialAs(t, s.socket, nobody), []string{"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/sn"}[i%2])
	}
	dice := rand.New(rand.NewPCG(5, 6))
	for range 50 { // garbage
		b := make([]byte, 64<<10)
		for i := range b {
			b[i] = byte(dice.Uint32())
		}
		c := dialAs(t, s.socket, nobody)
		c.Write(b)
		c.Close()
	}
	endless := dialAs(t, s.socket, nobody)
	endlessEnds := make(chan error)
	go func() {
		_, err := io.WriteString(endless, "GET /v1/health HTTP/1.1\r\n")
		for err == nil {
			_, err = io.WriteString(endless, "X: "+strings.Repeat("x", 1000)+"\r\n")
		}
		endlessEnds <- err
	}()
	var idle []net.Conn
	for range 1000 {
		idle = append(idle, dialAs(t, s.socket, nobody))
	}
	waitFor(t, "most idle connections to be refused", func() bool {
		idle = slices.DeleteFunc(idle, func(c net.Conn) bool {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			b := make([]byte, 1000)
			n, _ := c.Read(b)
			refused := bytes.Contains(b[:n], []byte("too many connections"))
			if refused {
				c.Close()
			}
			return refused
		})
		return len(idle) < 500
	})
	qt.Check(t, qt.IsTrue(descriptors(t, s.Process.Pid) < 400))

	fmt.Fprintln(p.stdin) // the first round: while all clients are connected
	p.expect(t, "")
	select {
	case err := <-endlessEnds:
		qt.Check(t, qt.IsNotNil(err))
	case <-time.After(2 * time.Minute * patience):
		t.Error("a header without end is read for ever")
	}
	after, err := s.Health(context.Background())
	qt.Assert(t, qt.IsNil(err))
	t.Logf("%.1f MiB before, %.1f MiB after", float64(before.ResidentBytes)/(1<<20), float64(after.ResidentBytes)/(1<<20))
	qt.Check(t, qt.IsTrue(after.ResidentBytes < before.ResidentBytes+200<<20))

	// and its figures are still right
	fmt.Fprintln(p.stdin)
	p.expect(t, "done")
	qt.Assert(t, qt.IsNil(p.Wait()))
	waitFor(t, "the end is reported", func() bool {
		return strings.Contains(s.said(), fmt.Sprintf("PID %d ended; everything was freed", p.Process.Pid))
	})
	assertTotals(t, s.snapshot(t))
	s.stop(t)
}
