package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

const (
	// answerLimit is how long an answer may take, and a figure to be exact.
	answerLimit = time.Second
	// residentLimit is how much memory a tracer may take.
	residentLimit = 400 << 20
	// searchedLimit is how long root's answers may take that wait for the owners of very many buffers.
	searchedLimit = answerLimit + 15*time.Second
	// endLimit is how long a tracer may take to end.
	endLimit = 5 * time.Second
	// startPatience is how long after its start a service waits with answers for what it reads
	// from the memory of processes.
	startPatience = time.Second
)

// tracer is a ttmem that runs as root.
type tracer struct {
	*exec.Cmd
	name  string
	ended chan error
	// unread is true if it may end while it waits for a read of memory that does not return: it then
	// says so, and fails.
	unread bool

	mu      sync.Mutex
	log     bytes.Buffer
	logEnds string // how reading the log ends: "full" pipe, or reader "gone"
}

// errGone ends the reader of a log.
var errGone = errors.New("the reader is gone")

// Write takes what it says.
func (p *tracer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	for p.logEnds == "full" {
		p.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		p.mu.Lock()
	}
	if p.logEnds == "gone" {
		return 0, errGone
	}
	return len(b), nil
}

// endLog ends reading its log.
func (p *tracer) endLog(how string) error {
	p.mu.Lock()
	p.logEnds = how
	p.mu.Unlock()
	if how == "" {
		return nil
	}
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", p.Process.Pid), os.O_WRONLY|unix.O_NONBLOCK, 0)
	for err == nil {
		_, err = unix.Write(int(pipe.Fd()), bytes.Repeat([]byte("\n"), 4096))
		if how == "gone" {
			time.Sleep(10 * time.Millisecond)
		}
	}
	pipe.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

func (p *tracer) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// startTracer starts a ttmem, and waits until it says that it is ready.
func startTracer(dir, ready string, args ...string) (*tracer, error) {
	p := &tracer{Cmd: exec.Command(ttmem, args...), name: args[0], ended: make(chan error, 1)}
	p.Dir = dir
	p.Stderr, p.Stdout = p, io.Discard
	if err := start(p.Cmd); err != nil {
		return nil, err
	}
	go func() {
		err := p.Wait()
		if errors.Is(err, errGone) {
			err = nil
		}
		p.ended <- err
	}()
	for deadline := time.Now().Add(2 * time.Minute * patience); !strings.Contains(p.said(), ready); {
		select {
		case err := <-p.ended:
			return nil, fmt.Errorf("ttmem %s ended: %v: %s", p.name, err, p.said())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.Process.Kill()
			return nil, fmt.Errorf("ttmem %s is not ready: %s", p.name, p.said())
		}
	}
	return p, nil
}

// running returns "" if the tracer runs.
func (p *tracer) running() string {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Sprintf("%s ended: %v: %s", p.name, err, lastLines(p.said()))
	default:
		return ""
	}
}

// stop ends it, and reports if it does not end as it should.
func (p *tracer) stop() (failure string) {
	if failure := p.running(); failure != "" {
		return failure
	}
	p.Process.Signal(unix.SIGTERM)
	return p.end()
}

// end waits for its end, and reports if it does not end as it should.
func (p *tracer) end() (failure string) {
	defer p.endLog("")
	for began := time.Now(); !tracetest.IsLate(time.Since(began), endLimit); {
		if host.Ended(p.Process.Pid) {
			p.endLog("") // for which Wait waits
		}
		select {
		case err := <-p.ended:
			if err != nil && !(p.unread && strings.Contains(p.said(), "interrupted before the memory of processes was read")) {
				return fmt.Sprintf("%s: %v: %s", p.name, err, lastLines(p.said()))
			}
			return ""
		case <-time.After(20 * time.Millisecond):
		}
	}
	before := len(p.said())
	p.Process.Signal(unix.SIGQUIT) // Go prints where each goroutine is
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second * patience):
		p.Process.Kill()
	}
	return fmt.Sprintf("%s does not end within %v; it is in %s", p.name, endLimit, strings.Join(ownCalls(p.said()[before:]), ", "))
}

// ownCalls are the innermost calls of ttmem's own code in a list of goroutines.
func ownCalls(dump string) (calls []string) {
	for goroutine := range strings.SplitSeq(dump, "\n\n") {
		for line := range strings.Lines(goroutine) {
			if call, _, ok := strings.Cut(line, "("); ok && strings.HasPrefix(line, "ttmem/") {
				at, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(goroutine[strings.Index(goroutine, line)+len(line):], "\t")), " ")
				calls = append(calls, call+" "+filepath.Base(at))
				break
			}
		}
	}
	return calls
}

func lastLines(text string) string {
	return text[max(0, len(text)-2000):]
}

// endLogs ends reading the logs of both, lets some lines come, and checks how both end.
func (r *hostileRig) endLogs(how string, lines func()) (failures []string) {
	p := r.pair
	for _, one := range []*tracer{p.serve, p.attach} {
		if err := one.endLog(how); err != nil {
			return []string{err.Error()}
		}
	}
	lines()
	if how == "gone" { // which is a service's end
		if f := p.serve.end(); f != "" {
			failures = append(failures, f)
		}
	} else {
		failures = append(failures, r.check("with a log that is not read")...)
		if f := p.serve.stop(); f != "" {
			failures = append(failures, f)
		}
	}
	if _, err := os.Lstat(p.socket); err == nil {
		failures = append(failures, "serve leaves its socket")
	}
	_ = p.attach.endLog("") // a command waits for the reader of its report
	if f := p.attach.stop(); f != "" {
		failures = append(failures, f)
	}
	p.follower.file.Close()
	for _, file := range []string{"host.ttmem", "events.ttmem"} {
		out, err := exec.Command(ttmem, "report", filepath.Join(p.dir, file)).CombinedOutput()
		if err != nil || bytes.Contains(out, []byte("has no end")) {
			failures = append(failures, fmt.Sprintf("report of %s: %v: %s", file, err, lastLines(string(out))))
		}
	}
	r.pair = nil
	return failures
}

// resetPeak makes peakBytes begin again.
func (p *tracer) resetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Process.Pid), []byte("5"), 0)
}

// peakBytes is the most memory that it took since resetPeak.
func (p *tracer) peakBytes() (kib uint64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib << 10
}

// grows says which tracer takes clearly more memory during the second half of an attack than
// during the first one.
func (p *pair) grows(secondHalf func()) (failures []string) {
	tracers := []*tracer{p.serve, p.attach}
	var first []uint64
	for _, one := range tracers {
		first = append(first, one.peakBytes())
		one.resetPeak()
	}
	secondHalf()
	for i, one := range tracers {
		if n := one.peakBytes(); n > first[i]*9/8 {
			failures = append(failures, fmt.Sprintf("%s takes %d MiB in the second half of the attack, %d in the first", one.name, n>>20, first[i]>>20))
		}
	}
	return failures
}

// pair is a `ttmem serve` and a `ttmem attach` of the whole host, which is what attackers can
// reach most of.
type pair struct {
	serve, attach *tracer
	dir           string // theirs; what they write is in it
	socket        string
	http          string // HOST:PORT
	started       time.Time
	follower      *follower
	client        *http.Client
	viewed        int   // how many of liveViews were shown
	user          *user // the victim's
	// rootLimit is how long an answer about the whole host may take if it has owners.
	rootLimit time.Duration
}

// withoutOwners are those of liveViews that search no owners.
var withoutOwners = []string{"report", "map", "ops"}

// liveViews are the pages of a service that are shown in turn. Those that watch it end soon.
var liveViews = []string{"top --once", "dump -n 20", "report", "map", "oom", "ops", "leaks --duration 1ms", "peak --duration 1ms"}

// viewAll shows all of liveViews, and the end of the log.
func (p *pair) viewAll() (failures []string) {
	for range liveViews {
		failures = append(failures, p.nextView()...)
	}
	return append(failures, p.show(exec.Command(ttmem, "log", filepath.Join(p.dir, "host.ttmem"), "--stacks", "-n", "3000"), answerLimit)...)
}

// doctor checks what `ttmem doctor` says of the libraries that processes map.
func (p *pair) doctor() (failures []string) {
	cmd := exec.Command(ttmem, "doctor")
	limit := time.AfterFunc(60*answerLimit*patience, func() { cmd.Process.Kill() })
	defer limit.Stop()
	out, _ := cmd.CombinedOutput() // an attacker's library may have no layout
	if why := unclean(out); why != "" {
		failures = append(failures, "doctor prints "+why)
	}
	if !bytes.Contains(out, []byte("mapped by")) {
		failures = append(failures, "doctor names no libraries: "+lastLines(string(out)))
	}
	return failures
}

// nextView shows the next one of liveViews: what the victim's user sees, and what root sees.
func (p *pair) nextView() []string {
	p.viewed++
	args := append(strings.Fields(liveViews[p.viewed%len(liveViews)]), "--socket", p.socket)
	limit := p.rootLimit
	if slices.Contains(withoutOwners, args[0]) {
		limit = answerLimit
	}
	return append(p.show(p.user.command(ttmem, args...), answerLimit), p.show(exec.Command(ttmem, args...), limit)...)
}

func startPair(t *testing.T, v *victim) *pair {
	t.Helper()
	dir, err := os.MkdirTemp(public, "tracers-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &pair{dir: dir, user: v.user, rootLimit: answerLimit, started: time.Now(), socket: filepath.Join(dir, "ttmem.sock")}
	p.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", p.socket)
		},
	}}
	events := filepath.Join(dir, "events.ttmem")
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(secret+"0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.serve, err = startTracer(work, "every process", "serve", "--socket", p.socket, "-o", filepath.Join(dir, "host.ttmem"), "--http", "127.0.0.1:0", "--token-file", token)
	if err == nil {
		_, p.http, _ = strings.Cut(p.serve.said(), "https://")
		p.http, _, _ = strings.Cut(p.http, "\n")
		p.attach, err = startTracer(work, "every process", "attach", "--json", "-o", events)
	}
	if err == nil {
		p.follower, err = newFollower(events, v.Process.Pid, v.last)
	}
	if err == nil {
		err = p.caughtUp(v, 20*time.Second)
	}
	if err != nil {
		p.kill()
		t.Fatal(err)
	}
	return p
}

// caughtUp waits until both have read what the victim had before they were started.
func (p *pair) caughtUp(v *victim, limit time.Duration) error {
	want := v.last
	want.TimeNs = 1<<64 - 1
	for deadline := time.Now().Add(limit * patience); ; time.Sleep(20 * time.Millisecond) {
		if err := p.follower.read(); err != nil {
			return err
		}
		p.follower.apply(want.TimeNs)
		p.follower.allocs, p.follower.frees, p.follower.stackless = 0, 0, 0
		differences := p.follower.compare(want)
		if s, err := p.snapshot(); err == nil {
			differences = append(differences, compareSnapshot(s, v.Process.Pid, want)...)
		}
		if len(differences) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("what the victim had is not read: %q", differences)
		}
	}
}

// kill ends both without waiting.
func (p *pair) kill() {
	for _, one := range []*tracer{p.serve, p.attach} {
		if one != nil {
			one.Process.Kill()
		}
	}
}

// stop ends both.
func (p *pair) stop() (failures []string) {
	var stopping sync.WaitGroup
	var mu sync.Mutex
	for _, one := range []*tracer{p.serve, p.attach} {
		stopping.Go(func() {
			if f := one.stop(); f != "" {
				mu.Lock()
				failures = append(failures, f)
				mu.Unlock()
			}
		})
	}
	stopping.Wait()
	p.follower.file.Close()
	if left, _ := filepath.Glob(filepath.Join(p.dir, "work", "*")); len(left) > 0 {
		failures = append(failures, fmt.Sprintf("files in the tracers' working folder: %q", left))
	}
	return failures
}

// recover waits until both are right again after an attack that succeeded. What was lost is
// lost: it counts from here on. An error means that they are to be started again.
func (p *pair) recover(v *victim) error {
	if f := p.serve.running() + p.attach.running(); f != "" {
		return errors.New(f)
	}
	p.follower.base = v.last
	if err := p.caughtUp(v, 3*time.Second); err != nil {
		return err
	}
	p.follower.lost = nil
	for _, one := range []*tracer{p.serve, p.attach} {
		one.resetPeak()
		if n := one.peakBytes(); n > residentLimit*2/3 { // the next attack would be blamed for it
			return fmt.Errorf("%s still takes %d MiB", one.name, n>>20)
		}
	}
	return nil
}

// snapshot asks the service, as root.
func (p *pair) snapshot() (*memory.Snapshot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*answerLimit*patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://ttmem/v1/snapshot", nil)
	if err != nil {
		return nil, err
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(text), secret) {
		return nil, errors.New("the snapshot has what only root may read")
	}
	var s memory.Snapshot
	return &s, json.Unmarshal(text, &s)
}

// tries is how often in a row an answer has to be late: other programs of the host take the processors for
// a second, too.
const tries = 3

// show runs a viewing command, and checks how long it takes and what it prints.
func (p *pair) show(cmd *exec.Cmd, limit time.Duration) (failures []string) {
	for range tries {
		again, took := *cmd, time.Duration(0)
		if failures, took = p.showOnce(&again); len(failures) > 0 || !tracetest.IsLate(took, limit) {
			return failures
		}
		failures = []string{fmt.Sprintf("%v takes %v", cmd.Args[1:], took.Round(time.Millisecond))}
	}
	return failures
}

func (p *pair) showOnce(cmd *exec.Cmd) (failures []string, took time.Duration) {
	began, args := time.Now(), cmd.Args[1:]
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = filepath.Join(p.dir, "work")
	ctx := time.AfterFunc(60*answerLimit*patience, func() { cmd.Process.Kill() })
	err := cmd.Run()
	ctx.Stop()
	took = time.Since(began)
	if err != nil {
		failures = append(failures, fmt.Sprintf("%v: %v: %s", args, err, lastLines(out.String())))
	}
	if why := unclean(out.Bytes()); why != "" {
		failures = append(failures, fmt.Sprintf("%v prints %s", args, why))
	}
	return failures, took
}
