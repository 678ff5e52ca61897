package source

import (
	"fmt"
	"sync"
	"time"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/symbolize"
	"ttmem/symbolize/lines"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A lineFinder adds source lines and inlined calls to native frames of a recording. The tracer
// does not do that, because it is root and the files belong to users.
type lineFinder struct {
	mu    sync.Mutex
	files map[mappedFile]*lines.Names // nil if nothing is known about the file
	open  int
}

// nativeLines is the lineFinder of all recordings. A recording is read several times, or beside another
// one, and each file takes a process to read.
var nativeLines = new(lineFinder)

// mappedFile is a file that a process has mapped.
type mappedFile struct{ path, buildID string }

// maxLineFiles is the maximum number of files to read: each takes a process.
const maxLineFiles = 64

// find returns the names of a file; nil if nothing is known about it. Once a file does not answer,
// as on a network file system whose server is gone, no other one is read.
func (l *lineFinder) find(of mappedFile, open lines.Opener) *lines.Names {
	found := make(chan *lines.Names, 1)
	go func() { found <- lines.Find(of.path, of.buildID, open) }()
	select {
	case names := <-found:
		return names
	case <-time.After(host.ReadPatience):
		term.Warn(fmt.Sprintf("no more lines of native code: %s does not answer", page.Clean(of.path)))
		l.open = maxLineFiles
		return nil
	}
}

// of returns the calls at a frame, innermost first; only the frame itself if no more is known.
func (l *lineFinder) of(f event.Frame) []event.Frame {
	if f.Kind != event.Native || f.BuildID == "" || f.File != "" { // ttmem used to record lines
		return []event.Frame{f}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := mappedFile{f.Path, f.BuildID}
	names, known := l.files[of]
	if !known && l.open < maxLineFiles {
		if names = l.find(of, host.OpenPublic); names != nil {
			l.open++
		}
		if l.files == nil {
			l.files = make(map[mappedFile]*lines.Names)
		}
		l.files[of] = names
	}
	if names == nil || names.Err() != nil {
		return []event.Frame{f}
	}
	functions := names.At(f.Address)
	if err := names.Err(); err != nil {
		term.Warn(fmt.Sprintf("no lines of %s: reading its debug information: %v", page.Clean(f.Module), err))
	}
	full := f.Name != symbolize.ShortName(f.Symbol) // recorded with --full-stacks
	frames := make([]event.Frame, 0, 1)
	for _, fn := range functions {
		to := f
		to.File, to.Line, to.Inlined = fn.File, fn.Line, fn.Inlined
		if fn.Inlined || f.Name == "" { // otherwise the recording's name is better
			to.Name, to.Symbol = fn.Name, fn.Symbol
		}
		if full && fn.Inlined && fn.Symbol != "" {
			to.Name = symbolize.FullName(fn.Symbol)
		}
		frames = append(frames, to)
	}
	if len(frames) == 0 {
		return []event.Frame{f}
	}
	return frames
}
