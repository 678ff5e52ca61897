package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
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

// attached is a `ttmem attach` that traces a program.
type attached struct {
	cmd *exec.Cmd
	out bytes.Buffer
	// recording is the file that it writes; "": none.
	recording string
	// exe is another build of ttmem, and env is added to its environment.
	exe string
	env []string
	// took is the time from the start of the command until it reports that it traces, and
	// busy its CPU time until then.
	took, busy time.Duration
}

// outcome is the result of a `ttmem attach`.
type outcome struct {
	lost map[string]uint64
	// cpu is the CPU time of the whole command, traced the part after it was attached.
	cpu, traced time.Duration
}

func (o outcome) lostEvents() (n uint64) {
	for _, k := range o.lost {
		n += k
	}
	return n
}

// attach attaches the real command to a program.
func (b *bench) attach(p *program, args ...string) (*attached, error) {
	return b.trace(&attached{}, attachArgs(p, args...)...)
}

func attachArgs(p *program, args ...string) []string {
	return append([]string{"attach", "--no-record", "--json", "-p", strconv.Itoa(p.pid())}, args...)
}

// record records a program with a build of ttmem.
func (b *bench) record(p *program, path, exe string) (*attached, error) {
	return b.trace(&attached{recording: path, exe: exe}, "attach", "--json", "-o", path, "-p", strconv.Itoa(p.pid()))
}

func (b *bench) trace(a *attached, args ...string) (*attached, error) {
	a.cmd = exec.Command(cmp.Or(a.exe, b.ttmem), args...)
	a.cmd.Env = append(os.Environ(), a.env...)
	a.cmd.Stdout = &a.out
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	said := ""
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ctrl-C") {
			a.took, a.busy = time.Since(start), cpuTime(a.pid())
			go io.Copy(os.Stderr, stderr) // show warnings
			return a, nil
		}
		said = lines.Text()
	}
	return nil, fmt.Errorf("ttmem %s: %s (%w)", args[0], said, a.cmd.Wait())
}

func (a *attached) pid() int { return a.cmd.Process.Pid }

// end stops it like Ctrl-C.
func (a *attached) end() (outcome, error) {
	if err := a.cmd.Process.Signal(unix.SIGINT); err != nil {
		return outcome{}, err
	}
	if err := a.cmd.Wait(); err != nil {
		return outcome{}, fmt.Errorf("ttmem: %w", err)
	}
	var report struct {
		Lost map[string]uint64 `json:"lost"`
	}
	if err := json.Unmarshal(a.out.Bytes(), &report); err != nil {
		return outcome{}, fmt.Errorf("ttmem's report: %w", err)
	}
	cpu := a.cmd.ProcessState.UserTime() + a.cmd.ProcessState.SystemTime()
	return outcome{report.Lost, cpu, cpu - a.busy}, nil
}

// cpuTime returns the CPU time of a process's threads: the first number of each one's
// schedstat, in ns. /proc/PID/stat has ticks of 10 ms.
func cpuTime(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // fails only on a bad pattern
	for _, file := range files {
		var ns int64
		if text, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(text), &ns)
		}
		sum += time.Duration(ns)
	}
	return sum
}
