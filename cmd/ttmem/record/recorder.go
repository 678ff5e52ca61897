package record

import (
	"fmt"
	"os"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// FlushInterval is the maximum time until an event is in the file.
const FlushInterval = 500 * time.Millisecond

// A Recorder writes a recording.
type Recorder struct {
	file   *recording.File
	path   string
	keep   int
	events uint64
	// flushed is when events were written, and written how many had been added then.
	flushed time.Time
	written uint64
}

// New begins a recording of the events that are applied to the state. It returns nil if nothing
// is recorded.
func New(o Options, state *aggregate.State) (*Recorder, error) {
	if o.Path == "" {
		return nil, nil
	}
	header := recording.NewHeader()
	header.Ttmem = o.version
	files := recording.FileOptions{
		Header: &header, MaxBytes: int64(o.MaxSize), Keep: o.Keep, Private: o.Private, Rotate: o.rotate, Replace: o.Force,
		Checkpoint: func() func() *event.Event { return state.Freeze(nil) },
	}
	file, err := recording.Create(o.Path, files)
	if err != nil {
		return nil, err
	}
	return &Recorder{file: file, path: o.Path, keep: o.Keep}, nil
}

// Add adds an event.
func (r *Recorder) Add(e *event.Event) {
	r.file.Add(e)
	r.events++
}

// Full reports whether it is time to write the added events.
func (r *Recorder) Full() bool { return r.file.Full() }

// Flush writes the added events if it is time.
func (r *Recorder) Flush() error {
	if time.Since(r.flushed) < FlushInterval && !r.file.Full() {
		return nil
	}
	if r.events != r.written {
		r.flushed, r.written = time.Now(), r.events
	}
	return r.file.Flush()
}

// Close ends the recording.
func (r *Recorder) Close(s *memory.Snapshot) error {
	end := recording.End{TimeNs: s.TimeNs}
	if k := s.Stacks; k != nil {
		end.HasStacks, end.Taken, end.Python = true, k.Taken, k.Python
		end.Incomplete, end.IncompletePython = k.Incomplete, k.IncompletePython
	}
	return r.file.Close(end)
}

// Remove removes the recording.
func (r *Recorder) Remove() error { return r.file.Remove() }

// Describe prints what was recorded and, with next, the commands to read it with.
func (r *Recorder) Describe(s *memory.Snapshot, next bool) {
	seen := len(s.Processes) > 0
	term.Warn(r.summary(seen))
	if !seen || !next || !r.isFile() {
		return
	}
	list, columns := r.Next(s), 0
	for _, one := range list {
		columns = max(columns, page.Width(one[0]))
	}
	for _, one := range list {
		fmt.Fprintf(os.Stderr, "  ttmem %s  # %s\n", page.Left(page.Clean(one[0]), columns), one[1])
	}
}

// summary describes the recording; seen is true if a process was seen.
func (r *Recorder) summary(seen bool) string {
	if !seen {
		return fmt.Sprintf("nothing was recorded to %s: no process that uses tt-metal was seen; `ttmem doctor` lists the libraries that processes have loaded", r.path)
	}
	paths := r.file.Paths()
	bytes := r.file.Size()
	for _, path := range paths[:len(paths)-1] {
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	size := page.Bytes(uint64(bytes))
	if n := len(paths); n > 1 {
		size = fmt.Sprintf("%d files up to %s, %s in all", n, paths[0], size)
		if n == r.keep {
			size += "; older ones are not kept"
		}
	}
	return fmt.Sprintf("recorded %s to %s (%s)", page.Count(r.events, "event"), r.path, size)
}

// isFile reports whether commands can read the recording, which they cannot if it is a pipe.
func (r *Recorder) isFile() bool {
	info, err := os.Stat(r.path)
	return err == nil && info.Mode().IsRegular()
}

// Next returns the commands that answer most questions about the recording, each with a
// description.
func (r *Recorder) Next(s *memory.Snapshot) [][2]string {
	list := [][2]string{
		{"leaks " + r.path, "what leaks, with call stacks"},
		{"peak " + r.path, "what each peak was made of"},
		{"top " + r.path, "browse it"},
	}
	if s.FailureCount > 0 {
		list = append([][2]string{{"oom " + r.path, "why allocations failed"}}, list[:2]...)
	}
	return list
}
