package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak runs")
	soakSeed = flag.Uint64("seed", 1, "which programs TestSoak runs, and when it kills them; 0: others each time")
)

// soakPrograms end by themselves. SEED is a number.
var soakPrograms = []struct {
	line  string
	board rig.Board
}{
	{"serve_crowd.py SEED exit", rig.N150}, {"serve_crowd.py SEED crash", rig.N150}, {"serve_crowd.py SEED wait", rig.N150},
	{"mix.py", rig.N150}, {"failures.py", rig.N150}, {"reopen.py", rig.N150}, {"one.py", rig.N150}, {"story_leak.py 20", rig.N150},
	{"story_cache.py", rig.N150}, {"story_fragments.py", rig.N150}, {"leak_clean.py again", rig.N150}, {"leak_planted.py", rig.N150},
	{"loop.py 3000", rig.N150}, {"stacks_new.py 500", rig.N150}, {"submesh.py", rig.T3000}, {"one.py", rig.T3000},
}

// soakAtOnce is how many programs run at a time.
const soakAtOnce = 3

// TestSoak runs random programs of two releases under a service with a recording that rotates,
// a top, and users who ask it. Some programs are killed. Now and then it lets all of them end:
// then no byte remains on any chip, and nothing was lost. At the end of a longer run, no
// figure may have grown.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("no -soak DURATION")
	}
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64N(1e6)
	}
	t.Logf("%v of random programs: -seed %d repeats their order", *soakFor, seed)
	s := &soak{t: t, dice: rand.New(rand.NewPCG(seed, 0)), pids: make(map[int]bool)}
	s.envs = []*rig.Env{setup(t, "0.81.1", "3.10"), setup(t, "0.76.0", "3.10")}
	file := filepath.Join(t.TempDir(), "host.ttmem")
	s.server = startServer(t, "--record", file, "--max-size", "64KiB", "--keep", "3")
	for _, env := range s.envs {
		s.discover(t, env)
	}
	s.top = startTerminal(t, 120, 40, os.Environ(), ttmem, "top", "--socket", s.socket, "--interval", "300ms")
	s.top.expect("chip 0")

	round := max(5*time.Second, min(*soakFor/9, time.Minute))
	for began := time.Now(); time.Since(began) < *soakFor || len(s.samples) < 6; {
		s.round(round)
		s.sample(time.Since(began))
	}
	s.judge()

	for _, key := range []string{"Escape", "q", "q"} { // leaves what is typed, a page, and top
		s.top.press(key)
		time.Sleep(time.Second) // an Escape right before another key is Alt
	}
	s.top.end("0")
	s.stop(t)
	files, err := filepath.Glob(file + "*")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(files, 3))
	for _, file := range files {
		_, stderr, status := runTtmem(t, nil, "report", file)
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s: %s", file, stderr))
	}
}

// soak is the state of TestSoak.
type soak struct {
	*server
	t    *testing.T
	envs []*rig.Env
	top  *terminal

	mu     sync.Mutex // for what follows, up to killed
	dice   *rand.Rand
	pids   map[int]bool // the programs of this test: there may be others on the host
	killed int

	samples []soakSample
}

func (s *soak) choose(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dice.IntN(n)
}

// round runs programs for a while, and asks for everything meanwhile. It returns when all
// have ended.
func (s *soak) round(d time.Duration) {
	end := time.Now().Add(d)
	var programs sync.WaitGroup
	for range soakAtOnce {
		programs.Go(func() {
			for time.Now().Before(end) {
				s.program()
			}
		})
	}
	for n := 0; time.Now().Before(end); n++ {
		s.ask(n)
		time.Sleep(time.Duration(s.choose(500)) * time.Millisecond)
	}
	programs.Wait()
	waitFor(s.t, "the ends of all programs are reported", func() bool {
		return !slices.ContainsFunc(s.snapshot(s.t).Processes, func(p memory.Process) bool { return p.Exit == nil && s.pids[p.PID] })
	})
}

// program runs a program to its end, or kills it.
func (s *soak) program() {
	p := soakPrograms[s.choose(len(soakPrograms))]
	words := strings.Fields(strings.ReplaceAll(p.line, "SEED", strconv.Itoa(s.choose(1e9))))
	env := s.envs[s.choose(len(s.envs))]
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute*patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "ttmem-soak-")
	if !qt.Check(s.t, qt.IsNil(err)) {
		return
	}
	defer os.RemoveAll(dir)
	cmd := env.Command(ctx, p.board, append([]string{program(s.t, words[0])}, words[1:]...)...)
	cmd.Dir, cmd.Env = dir, testEnviron(cmd.Env, p.board, dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if !qt.Check(s.t, qt.IsNil(cmd.Start())) {
		return
	}
	last := words[len(words)-1]
	kill := last == "wait" || s.choose(4) == 0
	if kill {
		signal := []os.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV}[s.choose(3)]
		after := time.AfterFunc(time.Duration(s.choose(8000))*time.Millisecond, func() { cmd.Process.Signal(signal) })
		defer after.Stop()
	}
	err = cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[cmd.Process.Pid] = true
	if kill {
		s.killed++
	} else if last != "crash" {
		qt.Check(s.t, qt.IsNil(err), qt.Commentf("%s: %s", p.line, &out))
	}
}

// soakViews are commands that ask the service.
var soakViews = []string{"dump --by op", "dump --json", "map", "top --once", "oom", "peak --duration 1s", "leaks --duration 1s"}

// soakKeys are keys of top that change what it shows.
var soakKeys = []string{"Down", "Up", "Enter", "Escape", "s", "S", "c", "g", "r", "p", "f", "m", "M", "?", "]", "space", "home"}

// ask does one thing of many that users do.
func (s *soak) ask(n int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute*patience)
	defer cancel()
	switch s.choose(5) {
	case 0:
		qt.Check(s.t, qt.IsNil(s.Mark(ctx, fmt.Sprint("soak ", n))))
	case 1:
		h, err := s.Health(ctx)
		qt.Assert(s.t, qt.IsNil(err))
		qt.Check(s.t, qt.Equals(h.Recording, "ok"))
	case 2:
		args := append(strings.Fields(soakViews[s.choose(len(soakViews))]), "--socket", s.socket)
		_, stderr, status := runTtmem(s.t, nil, args...)
		qt.Check(s.t, qt.Equals(status, 0), qt.Commentf("%v: %s", args, stderr))
	case 3: // followers end in the middle
		ctx, cancel := context.WithTimeout(ctx, time.Duration(s.choose(1000))*time.Millisecond)
		defer cancel()
		if r, err := s.Stream(ctx); err == nil {
			for e := (event.Event{}); r.Next(&e) == nil; {
			}
		}
	default:
		s.top.press(soakKeys[s.choose(len(soakKeys))])
	}
}
