// Command bench measures what tracing costs the real ttnn and ttmem itself. All measurements
// are taken side by side in one run, and printed with their goals.
//
//	go run ./e2e/bench
//	go run ./e2e/bench -parts loop,new -rounds 10
//
// A missed goal is printed and is no failure: the exit status tells whether everything could
// be measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"ttmem/e2e/rig"
	"ttmem/symbolize"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
)

// options say how much to measure.
type options struct {
	parts      string
	version    string
	python     string
	pairs      int
	rounds     int
	events     int
	cpuEvents  int
	perfEvents int
	attaches   int
	beside     string

	scaleLive, scaleEvents, adviceRuns int
}

// bench is shared by all parts.
type bench struct {
	options
	*report
	env    *rig.Env
	dir    string // for temporary files
	module string // the sources
	ttmem  string // the command, built from them
	// uprobes is the best method of this kernel to place probes.
	uprobes kernel.Uprobes
	// where any tracer of buffers has to place its probes, and all places where ttmem has them
	alloc, free layout.Probe
	places      []layout.Probe
}

// parts are the measurements, in order.
var parts = []struct {
	name, title string
	measure     func(*bench) error
}{
	{"loop", "what tracing adds to a loop, where stacks repeat", (*bench).loop},
	{"fallbacks", "the cost of missing kernel features", (*bench).fallbacks},
	{"runs", "what tracing adds to the run of a cached program", (*bench).cachedRuns},
	{"new", "what tracing adds where every stack is new", (*bench).newStacks},
	{"frees", "what the call stacks of frees add", (*bench).freeStacks},
	{"events", "events in a tight loop", (*bench).manyEvents},
	{"cpu", "processor time from an event to its symbolized stack", (*bench).processorTime},
	{"attach", "attaching to a running process", (*bench).attaching},
	{"start", "the processor time of short commands", (*bench).starting},
	{"others", "the cost for programs that do not use tt-metal", (*bench).others},
	{"exceptions", "the cost of exceptions that are not the library's", (*bench).exceptions},
	{"owners", "who holds the buffers of a running process", (*bench).owners},
	{"views", "how fast pages and the live view react", (*bench).views},
	{"advice", "advice about a million runs of programs", (*bench).advice},
	{"python", "a million live buffers in Python", (*bench).pythonPackage},
	{"scale", "a million live buffers, a hundred million events", (*bench).scale},
}

func main() {
	var o options
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	flag.StringVar(&o.parts, "parts", strings.Join(names, ","), "what to measure")
	flag.StringVar(&o.version, "version", rig.DefaultVersion, "release of ttnn")
	flag.StringVar(&o.python, "python", "", "version of Python (3.10 or 3.12)")
	flag.IntVar(&o.pairs, "pairs", 2000, "alloc+free pairs a turn")
	flag.IntVar(&o.rounds, "rounds", 8, "rounds of each way to trace")
	flag.IntVar(&o.events, "events", 200000, "events with stacks in the tight loop")
	flag.IntVar(&o.cpuEvents, "cpu-events", 50000, "events for ttmem's processor time")
	flag.IntVar(&o.perfEvents, "perf-events", 10000, "events for perf's processor time")
	flag.IntVar(&o.scaleLive, "scale-live", 1_000_000, "buffers that live in a large recording")
	flag.IntVar(&o.scaleEvents, "scale-events", 100_000_000, "events in a large recording")
	flag.IntVar(&o.adviceRuns, "advice-runs", 1_000_000, "runs of programs in a recording that is to be advised on")
	flag.IntVar(&o.attaches, "attaches", 7, "times to attach, and to start")
	flag.StringVar(&o.beside, "beside", "", "another build of ttmem, a `FILE`, to measure in turn with this one")
	flag.Parse()
	if err := run(o, names); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options, names []string) error {
	wanted := strings.Split(o.parts, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-parts %s: no part %q; available: %s", o.parts, name, strings.Join(names, ", "))
		}
	}
	if err := o.checkBeside(); err != nil {
		return err
	}
	b, err := setup(o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.printf("ttnn %s, Python %s, mock N150\n", b.env.Version, b.env.PythonVersion)
	for _, p := range parts {
		if !slices.Contains(wanted, p.name) {
			continue
		}
		b.title(p.title)
		if err := p.measure(b); err != nil {
			b.unmeasured(p.name, err)
		}
	}
	return b.close()
}

func setup(o options) (_ *bench, err error) {
	if err := kernel.Check(); err != nil {
		return nil, err
	}
	support, err := kernel.Detect()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, report: newReport(os.Stdout), uprobes: support.Uprobes}
	b.env, err = rig.Setup(context.Background(), rig.Options{Version: o.version, Python: o.python, Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	if err := b.findProbes(); err != nil {
		return nil, err
	}
	if b.module, err = moduleDir(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "ttmem-bench-"); err != nil {
		return nil, err
	}
	b.ttmem = filepath.Join(b.dir, "ttmem")
	build := exec.Command("go", "build", "-o", b.ttmem, "ttmem/cmd/ttmem")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("building ttmem: %w", err), os.RemoveAll(b.dir))
	}
	return b, nil
}

// findProbes locates ttmem's probes, for other tracers and for empty ones.
func (b *bench) findProbes() error {
	elf, err := symbolize.Open(b.env.Library)
	if err != nil {
		return err
	}
	defer elf.Close()
	l, err := layout.Derive(elf)
	if err != nil {
		return err
	}
	b.alloc, b.free = l.Probes["buffer_allocated"], l.Probes["buffer_deallocate"]
	for _, known := range []string{"buffer_allocate", "bank_allocate"} { // for the layout, not to be probed
		delete(l.Probes, known)
	}
	b.places = slices.Collect(maps.Values(l.Probes))
	return nil
}

// moduleDir is the module's directory: with `go run` the working directory or one above it.
func moduleDir() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
