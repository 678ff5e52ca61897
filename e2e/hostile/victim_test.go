package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// victim is a real ttnn program on the mock device, of an ordinary user.
type victim struct {
	*exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	stderr bytes.Buffer
	last   figures // after the last round
	user   *user
}

func startVictim(t *testing.T, env *rig.Env, u *user) *victim {
	program, err := filepath.Abs("programs/victim.py")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := filepath.Abs("../programs")
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{Cmd: u.ttnn(env, program), lines: make(chan string, 100), user: u}
	v.Env = append(v.Env, "PYTHONPATH="+shared)
	v.Stderr = &v.stderr
	if v.stdin, err = v.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(v.Cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Process.Kill(); v.Wait() })
	go func() {
		defer close(v.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			v.lines <- line
		}
	}()
	if _, err := v.next(time.Minute); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *victim) next(limit time.Duration) (string, error) {
	select {
	case line, ok := <-v.lines:
		if !ok {
			return "", fmt.Errorf("the victim has ended: %s", v.stderr.String())
		}
		return line, nil
	case <-time.After(limit * patience):
		return "", fmt.Errorf("the victim has not gone on within %v", limit)
	}
}

// figures are what the library's own allocator counts.
type figures struct {
	TimeNs  uint64                          `json:"time_ns"`
	Allocs  int                             `json:"allocs"`
	Frees   int                             `json:"frees"`
	Chips   []int                           `json:"chips"`
	Regions map[string]tracetest.MemoryView `json:"regions"`
}

// round plays a round of the victim.
func (v *victim) round() (f figures, err error) {
	if _, err := io.WriteString(v.stdin, "\n"); err != nil {
		return f, err
	}
	line, err := v.next(time.Minute)
	if err == nil {
		err = json.Unmarshal([]byte(line), &f)
	}
	v.last = f
	v.last.Allocs, v.last.Frees = f.Allocs+1, f.Frees+1 // what it does after the figures
	return f, err
}

// follower reads the events of the victim from a recording that `ttmem attach` writes.
type follower struct {
	pid           int
	file          *os.File
	state         *aggregate.State
	ahead         []event.Event // not applied yet
	newest        uint64
	base          figures  // of the victim when the tracer was started
	allocs, frees int      // seen by probes
	stackless     int      // allocations without a line of the victim
	lost          []string // of the victim, or of nobody in particular

	mu   sync.Mutex
	came []event.Event // and were not read yet
	err  error         // of the recording
}

func newFollower(path string, pid int, base figures) (*follower, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &follower{pid: pid, file: file, base: base, state: aggregate.New()}
	go f.follow()
	return f, nil
}

// Read waits for more at the end of the file.
func (f *follower) Read(b []byte) (n int, err error) {
	for n, err = f.file.Read(b); err == io.EOF; n, err = f.file.Read(b) {
		time.Sleep(10 * time.Millisecond)
	}
	return n, err
}

// follow takes the events of the victim until the file is closed.
func (f *follower) follow() {
	add := func(e *event.Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.came = append(f.came, *e)
	}
	take := aggregate.New().Completed(add)
	r, err := recording.NewReader(f)
	for err == nil {
		var e event.Event
		if err = r.Next(&e); err == nil && (e.PID == f.pid || e.Kind == event.Lost) {
			take(&e)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// read takes the events that came since the last call.
func (f *follower) read() error {
	f.mu.Lock()
	came, err := f.came, f.err
	f.came = nil
	f.mu.Unlock()
	for _, e := range came {
		if e.Kind == event.Lost && (e.PID == f.pid || e.PID == 0) {
			f.lost = append(f.lost, fmt.Sprintf("%d × %s", e.Count, e.Cause))
		}
		if e.PID == f.pid {
			f.newest = max(f.newest, e.TimeNs)
			f.ahead = append(f.ahead, e)
		}
	}
	return err
}

// apply applies the events up to a time.
func (f *follower) apply(until uint64) {
	for len(f.ahead) > 0 && f.ahead[0].TimeNs <= until {
		e := &f.ahead[0]
		switch {
		case e.Kind == event.Alloc && !e.BeforeAttach:
			f.allocs++
			if !strings.Contains(fmt.Sprint(e.Stack.Frames()), "victim.py") {
				f.stackless++
			}
		case e.Kind == event.Free:
			f.frees++
		}
		f.state.Apply(e)
		f.ahead = f.ahead[1:]
	}
}

// compare applies the events up to the figures' time, and compares.
func (f *follower) compare(want figures) (differences []string) {
	f.apply(want.TimeNs)
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	if f.allocs != want.Allocs-f.base.Allocs || f.frees != want.Frees-f.base.Frees {
		differ("events: %d allocations and %d frees, the victim made %d and %d",
			f.allocs, f.frees, want.Allocs-f.base.Allocs, want.Frees-f.base.Frees)
	}
	if f.stackless > 0 {
		differ("events: %d allocations without a call stack", f.stackless)
		f.stackless = 0
	}
	snapshot := f.state.Snapshot()
	for _, chip := range want.Chips {
		for name, w := range want.Regions {
			if w.BytesPerBank == 0 {
				continue
			}
			var got memory.Region
			for _, d := range snapshot.Devices {
				if d.ID == chip {
					got = *d.Regions.Banked(tracetest.Regions[name])
				}
			}
			for _, difference := range w.Differences(got, f.state.Space(chip, tracetest.Regions[name])) {
				differ("events: %s: %s", name, difference)
			}
		}
	}
	return differences
}

// compareSnapshot compares what the service says of the victim.
func compareSnapshot(s *memory.Snapshot, pid int, want figures) (differences []string) {
	i := slices.IndexFunc(s.Processes, func(p memory.Process) bool { return p.PID == pid && p.Exit == nil })
	if i < 0 {
		return []string{"serve: the victim is not in the snapshot"}
	}
	for name, w := range want.Regions {
		got := uint64(0)
		for _, d := range s.Processes[i].Devices {
			if slices.Contains(want.Chips, d.ID) {
				got += d.Regions.Banked(tracetest.Regions[name]).BytesPerBank
			}
		}
		if got != w.AllocatedPerBank {
			differences = append(differences, fmt.Sprintf("serve: %s: %d B in each bank, the library counts %d", name, got, w.AllocatedPerBank))
		}
	}
	return differences
}
