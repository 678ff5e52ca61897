package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/cmd/ttmem/top"
	"ttmem/tracer/host"
)

// A topOutput takes what a command writes, whose terminal is the view's.
type topOutput struct {
	write  *os.File // nil: there is no command
	null   *os.File
	copied chan struct{}
}

// newTopOutput has the view get what the source's command writes.
func newTopOutput(live *top.Live, source *source.Options) (*topOutput, error) {
	if len(source.Command) == 0 {
		return &topOutput{}, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	source.Console.Streams = host.Streams{In: null, Out: write, Err: write}
	t := &topOutput{write, null, make(chan struct{})}
	go func() {
		defer close(t.copied)
		defer read.Close()
		_, _ = io.Copy(live, read)
	}()
	return t, nil
}

// close waits for what was written to be with the view, but for what is written by
// processes that the command has left.
func (t *topOutput) close() {
	if t.write == nil {
		return
	}
	t.write.Close()
	t.null.Close()
	select {
	case <-t.copied:
	case <-time.After(200 * time.Millisecond):
	}
}

// toldLines is how much of a command's output is told after the view.
const toldLines = 20

// tellOutput prints what the command wrote last, which the view covered.
func tellOutput(live *top.Live) {
	lines := live.Present(0).Output
	if n := len(lines); n > toldLines {
		term.Warn(fmt.Sprintf("the last %d lines that the command wrote:", toldLines))
		lines = lines[n-toldLines:]
	}
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, line)
	}
}
