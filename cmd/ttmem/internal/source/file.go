package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
)

// Open opens a recording; "-" is standard input.
func Open(path string) (*moment.File, error) {
	if path == "-" && term.IsTerminal(os.Stdin) {
		return nil, errors.New("-: standard input is a terminal: name a recording, or give it one")
	}
	return open(realName(path), shownName(path))
}

// open opens a recording with the given name in messages. Reading it shows progress.
func open(path, name string) (*moment.File, error) {
	f, err := moment.Open(path, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; `ttmem run -- COMMAND` makes a recording", err)
	}
	if err != nil {
		return nil, err
	}
	if f.Private() {
		output.Private.Store(true)
	}
	f.Lines = nativeLines.of
	f.Progress = func(size int64) moment.Progress { return term.NewProgress(size) }
	return f, nil
}

// realName returns the path by which a file is opened.
func realName(path string) string {
	if path == "-" {
		return "/dev/stdin"
	}
	return path
}

// shownName returns the name of a file in messages.
func shownName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// Clock relates the times of a file's events to the wall clock.
func Clock(f *moment.File) page.Clock { return page.NewClock(f.Created, f.BeganNs) }

// ReadOnce returns an error if a file, such as a pipe, can be read only once: for commands that
// read it again.
func ReadOnce(path string) error { return moment.ReadOnce(realName(path), shownName(path)) }

// AddOwners adds the owners that a recording has later than a state: of the buffers that are live in
// it. A pipe cannot be read again.
func AddOwners(path string, s *aggregate.State) error {
	if ReadOnce(path) != nil {
		return nil
	}
	f, err := Open(path)
	if err == nil {
		f.AddOwners(s)
		err = f.Close()
	}
	return err
}

// LossesAt returns the losses that make the figures of a file's processes doubtful at a moment before
// its end, up to which a state was brought. A loss is known only after it happened, so all of the file
// count. Without selected processes pids is empty.
func LossesAt(path string, pids []int, s *aggregate.State) (memory.AllLosses, error) {
	if ReadOnce(path) != nil {
		return s.Totals().Losses(false, pids), nil
	}
	end, _, err := (&Recording{Path: path, PIDs: pids, Quiet: true}).End()
	if err != nil {
		return memory.AllLosses{}, err
	}
	return end.Totals().Losses(false, pids), nil
}
