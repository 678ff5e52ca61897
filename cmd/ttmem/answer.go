package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
)

func newAnswer() *cobra.Command {
	return &cobra.Command{
		Use:    "answer FILE",
		Hidden: true, // the list of commands fits a terminal without it, and the Python package calls it
		Short:  "Answer questions about a recording, for the Python package",
		Long: `Answers questions about a recording: one after the other, each with the output of a command.

It reads lines from standard input, each a JSON object with the arguments of a command other than the file
and, if its document is to have columns, "columns", and "only" for some of these. It writes frames to standard output. The first one is
after the recording was opened.`,
		Example: `  echo '{"args":["peak","--json"]}' | ttmem answer model.ttmem`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("answer takes one recording: ttmem answer model.ttmem")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			widen(os.Stdout)
			return answerQuestions(args[0], os.Stdin, os.Stdout)
		},
	}
}

// The kinds of frames. Each has its kind as a byte, its length in 32 bits in little endian, and a text.
const (
	frameOpened = 'v' // the recording was opened: JSON about it
	frameOutput = 'o' // a part of the output
	frameSaid   = 'w' // a part of what was written to standard error
	frameEnd    = 'e' // the end of an answer: its exit status
)

// A question is a line of input.
type question struct {
	Args    []string `json:"args"`
	Columns bool     `json:"columns"`
	Only    []string `json:"only"`
}

// selects reports whether the answer has a column.
func (q *question) selects(key string) bool { return len(q.Only) == 0 || slices.Contains(q.Only, key) }

// ofFile reports whether the answer depends on the recording only, and not on another file.
func (q *question) ofFile() bool {
	return !slices.ContainsFunc(q.Args[1:], func(arg string) bool {
		return !strings.HasPrefix(arg, "--") || strings.HasPrefix(arg, "--"+flags.Rules)
	})
}

// opened describes the recording and the program. Its times are those of the beginning of the recording.
type opened struct {
	Version   string `json:"version"`
	Bytes     int64  `json:"bytes"`
	BeganNs   uint64 `json:"began_ns"`
	BeganWall int64  `json:"began_wall_ns"`
	FirstNs   uint64 `json:"first_ns"`
}

// frames writes frames, of several streams at once.
type frames struct {
	mu  sync.Mutex
	to  io.Writer
	err error
	// copied is what was written since the beginning of an answer; nil if that is too much to keep.
	copied []byte
	keep   bool
}

// The answers that are kept: those up to a size, and all of them together.
const (
	maxKept    = 4 << 20
	maxAllKept = 64 << 20
)

func (f *frames) write(kind byte, text []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(text)))
	if f.keep = f.keep && len(f.copied)+len(text) <= maxKept; f.keep {
		f.copied = append(append(f.copied, head...), text...)
	}
	for _, part := range [][]byte{head, text} { // a copy in one piece would cost more than a call
		if f.err == nil {
			_, f.err = f.to.Write(part)
		}
	}
}

// pipe returns a file that writes frames of a kind, and a function that closes it after all is written.
func (f *frames) pipe(kind byte) (*os.File, func(), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	widen(w)
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer r.Close()
		for b := make([]byte, 1<<20); ; {
			n, err := r.Read(b)
			if n > 0 {
				f.write(kind, b[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return w, func() { w.Close(); <-written }, nil
}

// widen makes a pipe larger, for fewer switches between its ends. Users may have less.
func widen(pipe *os.File) { _, _ = unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, 1<<20) }

// answerQuestions answers the questions until in ends.
func answerQuestions(path string, in io.Reader, out io.Writer) error {
	info, err := openRecording(path)
	if err != nil {
		return err
	}
	first, err := json.Marshal(info)
	if err != nil {
		return err
	}
	f := &frames{to: out}
	f.write(frameOpened, first)
	// what an answer is made of lives until it is written
	debug.SetGCPercent(source.PlayGarbage)
	kept, size, of := make(map[string][]byte), 0, fileID(path)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for f.err == nil && lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil || len(q.Args) == 0 {
			return fmt.Errorf("no question: %.100q", lines.Text())
		}
		if now := fileID(path); now != of { // it has grown
			of, size = now, 0
			clear(kept)
		}
		if known := kept[lines.Text()]; known != nil {
			_, f.err = out.Write(known)
			continue
		}
		f.copied, f.keep = nil, size < maxAllKept && q.ofFile()
		if err := f.answer(path, &q); err != nil {
			return err
		}
		if f.keep {
			kept[lines.Text()], size = slices.Clip(f.copied), size+len(f.copied)
		}
		debug.FreeOSMemory() // it may be a long time until the next one
	}
	return errors.Join(f.err, lines.Err())
}

// answer runs a command.
func (f *frames) answer(path string, q *question) error {
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr, output.Columns = stdout, stderr, nil }()
	said, closeSaid, err := f.pipe(frameSaid)
	if err != nil {
		return err
	}
	text, closeText, err := f.pipe(frameOutput)
	if err != nil {
		closeSaid()
		return err
	}
	os.Stdout, os.Stderr = text, said
	if q.Columns {
		output.Columns = q.selects
	}
	status := run(slices.Concat(q.Args[:1], []string{path}, q.Args[1:]))
	term.Flush()
	closeText()
	closeSaid()
	f.write(frameEnd, fmt.Append(nil, status))
	return nil
}

// openRecording returns an error if a file is no recording, or has no event.
func openRecording(path string) (*opened, error) {
	if err := source.ReadOnce(path); err != nil {
		return nil, err
	}
	f, err := source.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	begin, err := (&source.Recording{Path: path}).Begin()
	if err != nil {
		return nil, err
	}
	info := &opened{Version: buildVersion(), Bytes: fileID(path).Size, BeganNs: f.BeganNs, FirstNs: begin.TimeNs}
	if !f.Created.IsZero() {
		info.BeganWall = f.Created.UnixNano()
	}
	return info, nil
}

// fileID returns what differs if a file was written, or is another one.
func fileID(path string) (id unix.Stat_t) {
	if err := unix.Stat(path, &id); err != nil {
		return unix.Stat_t{}
	}
	id.Atim = unix.Timespec{}
	return id
}
