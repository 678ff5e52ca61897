// Package e2e tests ttmem on the real ttnn.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// ttmem is the binary under test: TTMEM_BINARY, or else built from this tree.
var ttmem string

func TestMain(m *testing.M) {
	os.Unsetenv("COLUMNS") // pages are as in a pipe, whoever runs the tests
	os.Unsetenv("GOGC")    // which make sets for tests, not for users
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ttmem-e2e-")
		if err == nil {
			defer os.RemoveAll(dir)
			ttmem = filepath.Join(dir, "ttmem")
			err = tracetest.Build(ttmem)
		}
		if err == nil {
			err = rig.Alone()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return tracetest.Run(m)
	}())
}

// setup sets up a release.
func setup(t testing.TB, version, python string) *rig.Env {
	t.Helper()
	env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: python, Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	return env
}

// program is the path of a test program.
func program(t testing.TB, name string) string {
	path, err := filepath.Abs(filepath.Join("programs", name))
	qt.Assert(t, qt.IsNil(err))
	return path
}

// traced is the result of a traced run.
type traced struct {
	events         []event.Event
	stdout, stderr string
	status         int
	dir, file      string
}

// sharedRuns are the runs at which several tests look, each a *sharedRun, by interpreter, board and program.
var sharedRuns sync.Map

type sharedRun struct {
	sync.Mutex
	run *traced
}

// traceOnce is traceRun for a program that other tests run in the same way: it runs once for all of them, and has to end well.
func traceOnce(t *testing.T, env *rig.Env, board rig.Board, args ...string) traced {
	t.Helper()
	found, _ := sharedRuns.LoadOrStore(fmt.Sprint(env.Python, board, args), new(sharedRun))
	shared := found.(*sharedRun)
	shared.Lock()
	defer shared.Unlock()
	if shared.run == nil { // or it failed in another test
		dir, err := os.MkdirTemp(filepath.Dir(ttmem), "run")
		qt.Assert(t, qt.IsNil(err))
		run := traceRunIn(t, dir, env, board, args...)
		qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
		shared.run = &run
	}
	run := *shared.run
	run.events = readEvents(t, run.file) // states keep parts of them
	return run
}

// traceRun runs a program under `ttmem run`.
func traceRun(t *testing.T, env *rig.Env, board rig.Board, args ...string) traced {
	t.Helper()
	return traceRunIn(t, t.TempDir(), env, board, args...)
}

// traceRunIn is traceRun with a folder for its files.
func traceRunIn(t *testing.T, dir string, env *rig.Env, board rig.Board, args ...string) traced {
	t.Helper()
	file := filepath.Join(dir, "events.ttmem")
	under := env.Command(context.Background(), board, args...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, ttmem, append([]string{"run", "-o", file, "--"}, under.Args...)...)
	cmd.Args[4+1] = under.Path
	cmd.Env = append(testEnviron(under.Env, board, dir), "TTMEM_LOG="+strings.Join([]string{ttmem, "log", file, "--json"}, " "))
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("nothing was recorded:\n%s", stderr.String())
	}
	events := readEvents(t, file)
	checkSamples(t, events)
	checkReplay(t, events)
	return traced{events, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), dir, file}
}

// pythonPackage is where ttmem's Python package is. `ttmem run` prepares for its marks there, which marks.py would add too late
// for a busy host.
var pythonPackage, _ = filepath.Abs("../python/ttmem")

func testEnviron(env []string, board rig.Board, dir string) []string {
	rows, cols := board.MeshShape()
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TT_METAL_SIMULATOR=") }) {
		env = append(env, "TT_METAL_LOGS_PATH="+dir) // TestChip reads them
	}
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "PYTHONPATH=") }) {
		env = append(env, "PYTHONPATH="+pythonPackage)
	}
	return append(env, fmt.Sprintf("TTMEM_MESH=%dx%d", rows, cols),
		"TTMEM_CHECKPOINTS="+filepath.Join(dir, "checkpoints.jsonl"), "PYTHONUNBUFFERED=1")
}

// readEvents reads a recording up to the last event that was written, with implied events.
func readEvents(t *testing.T, path string) (events []event.Event) {
	t.Helper()
	qt.Assert(t, qt.IsNil(tracetest.EachEvent(path, func(e *event.Event) { events = append(events, *e) })))
	return events
}

// checkpoint is the state of the library's own allocator at a time.
type checkpoint struct {
	Name    string `json:"name"`
	TimeNs  uint64 `json:"time_ns"`
	Devices []struct {
		Chips   []int                           `json:"chips"`
		Regions map[string]tracetest.MemoryView `json:"regions"`
	} `json:"devices"`
}

// readCheckpoints reads what a program has written so far.
func readCheckpoints(t *testing.T, dir string) []checkpoint {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "checkpoints.jsonl"))
	qt.Assert(t, qt.IsNil(err))
	var list []checkpoint
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			break
		}
		var c checkpoint
		qt.Assert(t, qt.IsNil(json.Unmarshal(line, &c)))
		list = append(list, c)
	}
	return list
}

// countCheckpoints counts what a busy program has written so far, which may be much to read.
func countCheckpoints(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "checkpoints.jsonl"))
	qt.Assert(t, qt.IsNil(err))
	return bytes.Count(text, []byte("\n"))
}

// assertEqual compares the state at each checkpoint with the library's own allocator.
func assertEqual(t *testing.T, events []event.Event, checkpoints []checkpoint) {
	t.Helper()
	compared, differences := compareCheckpoints(events, checkpoints)
	for _, d := range differences {
		t.Error(d)
	}
	t.Logf("%d checkpoints, %d figures compared", len(checkpoints), compared)
	qt.Assert(t, qt.IsTrue(compared > 0))
}

// compareCheckpoints returns how many regions it compared, and the differences.
func compareCheckpoints(events []event.Event, checkpoints []checkpoint) (compared int, differences []string) {
	state := aggregate.New()
	next := 0
	for _, c := range checkpoints {
		for ; next < len(events) && events[next].TimeNs <= c.TimeNs; next++ {
			state.Apply(&events[next])
		}
		s := state.Snapshot()
		for _, d := range c.Devices {
			for _, chip := range d.Chips {
				for name, want := range d.Regions {
					region := tracetest.Regions[name]
					for _, difference := range want.Differences(regionOf(s, chip, region), state.Space(chip, region)) {
						differences = append(differences, fmt.Sprintf("%s: chip %d %s: %s", c.Name, chip, name, difference))
					}
					compared++
				}
			}
		}
	}
	return compared, differences
}

func regionOf(s *memory.Snapshot, chip int, region event.Region) memory.Region {
	for _, d := range s.Devices {
		if d.ID == chip {
			return *d.Regions.Banked(region)
		}
	}
	return memory.Region{}
}

func count(events []event.Event, wanted func(*event.Event) bool) (n int) {
	for i := range events {
		if wanted(&events[i]) {
			n++
		}
	}
	return n
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
