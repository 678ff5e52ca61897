package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// perfWay is a way to take stacks with perf.
type perfWay struct {
	graph, script string
}

// perfWays are the default, which stores 8 KiB of each stack; the same without names of
// inlined functions; and with enough of the stack for all frames.
var perfWays = []perfWay{{"dwarf", ""}, {"dwarf", "--no-inline"}, {"dwarf,16384", ""}}

func (w perfWay) String() string {
	return strings.TrimSpace("perf record --call-graph " + w.graph + " + perf script " + w.script)
}

// perfCosts are the costs of these ways for the allocations of a program.
func (b *bench) perfCosts(p *program) ([]cost, error) {
	path, err := exec.LookPath("perf")
	if err != nil {
		return nil, errors.New("perf is not installed: `make bench` installs it on Debian and Ubuntu")
	}
	event, remove, err := b.tracepoint()
	if err != nil {
		return nil, err
	}
	defer remove()
	var costs []cost
	for _, w := range perfWays {
		few, err := b.perfRun(p, path, event, w, b.perfEvents/5)
		if err != nil {
			return nil, err
		}
		many, err := b.perfRun(p, path, event, w, b.perfEvents)
		if err != nil {
			return nil, err
		}
		costs = append(costs, split(few, many))
	}
	return costs, nil
}

func (b *bench) perfRun(p *program, perf, event string, w perfWay, n int) (cost, error) {
	data := filepath.Join(b.dir, "perf.data")
	defer os.Remove(data)
	progress("%d events with %v", n, w)
	defer progress("")
	recorded, err := record(p, perf, event, w.graph, data, n)
	if err != nil {
		return cost{}, fmt.Errorf("perf record: %w", err)
	}
	script := exec.Command(perf, "script", "-i", data)
	if w.script != "" {
		script.Args = append(script.Args, w.script)
	}
	out, err := script.StdoutPipe()
	if err != nil {
		return cost{}, err
	}
	if err := script.Start(); err != nil {
		return cost{}, err
	}
	samples, frames := countSamples(out)
	if err := script.Wait(); err != nil {
		return cost{}, fmt.Errorf("perf script: %w", err)
	}
	if samples == 0 {
		return cost{}, fmt.Errorf("perf lost all of %d events", n)
	}
	scripted := script.ProcessState.UserTime() + script.ProcessState.SystemTime()
	return cost{events: samples, lost: n - samples, frames: float64(frames) / float64(samples), all: recorded + scripted}, nil
}

// record records a round with perf, and returns perf's CPU time.
func record(p *program, perf, event, graph, data string, n int) (time.Duration, error) {
	// perf starts to record at a command on one pipe, and acknowledges it on the other
	control, tell, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer tell.Close()
	acknowledged, acknowledge, err := os.Pipe()
	if err != nil {
		control.Close()
		return 0, err
	}
	defer acknowledged.Close()
	cmd := exec.Command(perf, "record", "-q", "-e", event, "--call-graph", graph, "-p", strconv.Itoa(p.pid()),
		"-o", data, "--delay=-1", "--control=fd:3,4")
	cmd.ExtraFiles = []*os.File{control, acknowledge}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	err = cmd.Start()
	control.Close()
	acknowledge.Close()
	if err != nil {
		return 0, err
	}
	if _, err := io.WriteString(tell, "enable\n"); err != nil {
		return 0, err
	}
	if line, err := bufio.NewReader(acknowledged).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ack") {
		_ = cmd.Wait()
		return 0, errors.New(strings.TrimSpace(problems.String()))
	}
	_, err = p.round(n)
	if err := errors.Join(err, cmd.Process.Signal(unix.SIGINT)); err != nil {
		return 0, err
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) { // its status is the signal's
		return 0, err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// countSamples counts the samples and frames in the output of perf script: a line for each
// sample, and one with a tab for each of its frames. Inlined frames share another one.
func countSamples(r io.Reader) (samples, frames int) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // names of C++ functions
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.TrimSpace(line) == "":
		case strings.HasSuffix(line, "(inlined)"):
		case line[0] == '\t':
			frames++
		default:
			samples++
		}
	}
	_, _ = io.Copy(io.Discard, r) // perf must not wait for a reader
	return samples, frames
}

// tracefs is the file system with perf's events.
const tracefs = "/sys/kernel/tracing"

// tracepoint makes a tracefs event for allocations, which perf can record.
func (b *bench) tracepoint() (name string, remove func(), err error) {
	events := filepath.Join(tracefs, "uprobe_events")
	unmount := func() {}
	if _, err := os.Stat(events); err != nil {
		if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
			return "", nil, fmt.Errorf("mounting tracefs: %w", err)
		}
		unmount = func() { _ = unix.Unmount(tracefs, 0) }
	}
	group := fmt.Sprintf("ttmem_bench_%d", os.Getpid())
	if err := appendLine(events, fmt.Sprintf("p:%s/alloc %s:%#x", group, b.env.Library, b.alloc.FileOffset)); err != nil {
		unmount()
		return "", nil, fmt.Errorf("making a uprobe event: %w", err)
	}
	return group + ":alloc", func() {
		if err := appendLine(events, "-:"+group+"/alloc"); err != nil {
			b.printf("  a uprobe event is left: %v\n", err)
		}
		unmount()
	}, nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}
