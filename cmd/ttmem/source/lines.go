package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// openLines opens a file that begins like JSON; it returns nil for any other file.
func openLines(path, name string) (*File, error) {
	f, err := os.Open(path)
	switch {
	case path == "":
		return nil, errors.New("the name of the file is empty: name a recording")
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no such file: %s; `ttmem run -- COMMAND` makes a recording", path)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return nil, fmt.Errorf("%s: permission denied; only the user who recorded it, or root with sudo, can read it", path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w; name a file that can be read", path, host.WithoutPath(err))
	}
	var first [1]byte
	info, err := f.Stat()
	if n, _ := f.ReadAt(first[:], 0); err != nil || n == 0 || first[0] != '{' {
		f.Close()
		return nil, nil
	}
	lines := event.NewReader(f)
	created, beganNs := firstTimes(f)
	return &File{
		Name: name, part: "line", Created: created, BeganNs: beganNs,
		next: func(e *event.Event) (err error) {
			if *e, err = lines.Next(); err == nil || errors.Is(err, io.EOF) {
				return err
			}
			return lineError(name, err)
		},
		close: f.Close, done: func() int64 { n, _ := f.Seek(0, io.SeekCurrent); return n }, size: info.Size(),
	}, nil
}

// firstTimes returns the times of the first line by the wall clock and by CLOCK_MONOTONIC; zero
// if it lacks one of them.
func firstTimes(f *os.File) (wall time.Time, monotonicNs uint64) {
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	var first struct {
		TimeNs uint64 `json:"time_ns"`
		WallNs int64  `json:"wall_ns"`
	}
	// the line may be longer, but begins with its times
	head, _, _ := bytes.Cut(b[:n], []byte(`,"kind":`))
	if json.Unmarshal(append(bytes.Clone(head), '}'), &first) != nil || first.WallNs == 0 {
		return time.Time{}, 0
	}
	return time.Unix(0, first.WallNs), first.TimeNs
}

// lineError returns an error of reading lines. It leaves out Go's own description of JSON errors.
func lineError(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return cutError(name + " is cut short in its last line: earlier events were read")
	}
	line, _, _ := strings.Cut(err.Error(), ":")
	if line == "line 1" {
		return fmt.Errorf("%s: line 1 is not an event record: name a recording, or a file of ttmem run --events", name)
	}
	var syntax *json.SyntaxError
	var types *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &types) {
		return fmt.Errorf("%s: %s is not an event record: later lines are not read", name, line)
	}
	return fmt.Errorf("%s: %w", name, err)
}
