package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// program is a running program of e2e/programs that allocates and frees in rounds, on
// command.
type program struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a program, and runs a round to warm up.
func (b *bench) start(name string, args ...string) (*program, error) {
	cmd := b.env.Command(context.Background(), "n150",
		append([]string{filepath.Join(b.module, "e2e", "programs", name), "0", strconv.Itoa(1 << 30)}, args...)...)
	cmd.Dir = b.dir
	p := &program{cmd: cmd}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("%s did not start: %w", name, err)
		}
		if strings.TrimSpace(line) == "ready" {
			break
		}
	}
	if _, err := p.round(b.pairs); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// round runs one round and returns its duration.
func (p *program) round(pairs int) (time.Duration, error) {
	if _, err := fmt.Fprintln(p.in, pairs); err != nil {
		return 0, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the program ended: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Duration(ns), err
}

func (p *program) stop() {
	p.in.Close()
	_ = p.cmd.Wait() // its exit status does not matter
}
