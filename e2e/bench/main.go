// Command bench measures what tracing costs the real ttnn: side by side in one
// run, on a loop that allocates and frees one buffer.
//
//	go run ./e2e/bench
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/e2e/rig"
	"ttmem/symbolize"
	"ttmem/tracer/layout"
)

func main() {
	pairs := flag.Int("pairs", 3000, "alloc+free pairs a round")
	rounds := flag.Int("rounds", 40, "rounds of each way")
	version := flag.String("version", rig.DefaultVersion, "release of ttnn")
	flag.Parse()
	if err := run(*version, *pairs, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// way is one way to trace the loop; begin returns what ends it.
type way struct {
	name  string
	begin func() (end func() error, err error)
	ns    []float64
}

func run(version string, pairs, rounds int) error {
	env, err := rig.Setup(context.Background(), rig.Options{Version: version, Progress: os.Stderr})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ttmem-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ttmem := filepath.Join(dir, "ttmem")
	build := exec.Command("go", "build", "-o", ttmem, "ttmem/cmd/ttmem")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building ttmem: %w", err)
	}
	loop, err := startLoop(env, dir, pairs, 1<<30)
	if err != nil {
		return err
	}
	defer loop.stop()

	var lost uint64
	attach := func(args ...string) func() (func() error, error) {
		return func() (func() error, error) {
			return attachTtmem(ttmem, loop.cmd.Process.Pid, &lost, args...)
		}
	}
	ways := []*way{
		{name: "nothing", begin: func() (func() error, error) { return func() error { return nil }, nil }},
		{name: "two empty uprobes", begin: func() (func() error, error) { return emptyProbes(env.Library, loop.cmd.Process.Pid) }},
		{name: "ttmem attach", begin: attach()},
		{name: "ttmem attach --events", begin: attach("--events", filepath.Join(dir, "events.jsonl"))},
	}
	if _, err := loop.round(); err != nil { // warm up
		return err
	}
	for i := range rounds {
		for _, w := range ways {
			fmt.Fprintf(os.Stderr, "\rround %d of %d: %-30s", i+1, rounds, w.name)
			end, err := w.begin()
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			ns, err := loop.round()
			if err := errors.Join(err, end()); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.ns = append(w.ns, float64(ns)/float64(pairs))
		}
	}
	fmt.Fprintf(os.Stderr, "\r%-60s\r", "")
	print(os.Stdout, version, pairs, rounds, ways, lost)
	return nil
}

func print(w io.Writer, version string, pairs, rounds int, ways []*way, lost uint64) {
	fmt.Fprintf(w, "ttnn %s, ttnn.empty + ttnn.deallocate, mock N150: %d rounds of %d pairs each way, in turn\n\n", version, rounds, pairs)
	fmt.Fprintf(w, "%-24s %12s %12s %12s %22s\n", "traced by", "best, µs", "median, µs", "adds, µs", "× two empty uprobes")
	base, floor := slices.Min(ways[0].ns), slices.Min(ways[1].ns)
	for _, way := range ways {
		sorted := slices.Sorted(slices.Values(way.ns))
		best := sorted[0]
		fmt.Fprintf(w, "%-24s %12.2f %12.2f %12.2f %22.2f\n", way.name, best/1e3, sorted[len(sorted)/2]/1e3,
			(best-base)/1e3, (best-base)/(floor-base))
	}
	fmt.Fprintf(w, "\nevents lost: %d of %d\n", lost, 4*pairs*rounds)
}

// loop is a program that allocates and frees in rounds, when told to.
type loop struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startLoop(env *rig.Env, dir string, pairs, rounds int) (*loop, error) {
	here, err := sourceDir()
	if err != nil {
		return nil, err
	}
	cmd := env.Command(context.Background(), "n150", filepath.Join(here, "e2e", "programs", "loop.py"),
		strconv.Itoa(pairs), strconv.Itoa(rounds))
	cmd.Dir = dir
	l := &loop{cmd: cmd}
	if l.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for {
		line, err := l.out.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("the loop did not start: %w", err)
		}
		if strings.TrimSpace(line) == "ready" {
			return l, nil
		}
	}
}

// sourceDir is the module's directory, which `go run` leaves as the working
// directory or above it.
func sourceDir() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// round has the loop run one round and gives the ns that it took.
func (l *loop) round() (int64, error) {
	if _, err := io.WriteString(l.in, "\n"); err != nil {
		return 0, err
	}
	line, err := l.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the loop ended: %w", err)
	}
	return strconv.ParseInt(strings.TrimSpace(line), 10, 64)
}

func (l *loop) stop() {
	l.in.Close()
	l.cmd.Wait()
}

// emptyProbes places two probes that do nothing where any tracer would have to:
// one on an allocation, one on a deallocation.
func emptyProbes(library string, pid int) (func() error, error) {
	elf, err := symbolize.Open(library)
	if err != nil {
		return nil, err
	}
	defer elf.Close()
	l, err := layout.Derive(elf)
	if err != nil {
		return nil, err
	}
	spec, err := bpf.LoadKernel()
	if err != nil {
		return nil, err
	}
	var objs struct {
		OnEmpty *ebpf.Program `ebpf:"on_empty"`
	}
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, err
	}
	exe, err := link.OpenExecutable(library)
	if err != nil {
		return nil, err
	}
	placed, err := exe.UprobeMulti(nil, objs.OnEmpty, &link.UprobeMultiOptions{
		Addresses: []uint64{l.Probes["buffer_allocated"].FileOffset, l.Probes["buffer_deallocate"].FileOffset},
		PID:       uint32(pid),
	})
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(placed.Close(), objs.OnEmpty.Close()) }, nil
}

// attachTtmem attaches the real command, and adds what it lost when it ends.
func attachTtmem(ttmem string, pid int, lost *uint64, args ...string) (func() error, error) {
	cmd := exec.Command(ttmem, append([]string{"attach", "--json", "-p", strconv.Itoa(pid)}, args...)...)
	var out strings.Builder
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
	}
	go io.Copy(io.Discard, stderr)
	return func() error {
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("ttmem: %w", err)
		}
		var report struct {
			Lost map[string]uint64 `json:"lost"`
		}
		if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
			return err
		}
		for _, n := range report.Lost {
			*lost += n
		}
		return nil
	}, nil
}
