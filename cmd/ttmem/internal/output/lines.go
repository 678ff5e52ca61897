package output

import (
	"os"
	"sync"
	"time"
)

// linesDelay is how long a line may wait to be written together with others.
const linesDelay = 50 * time.Millisecond

// Lines writes lines soon after they come, and many at once. It is safe for concurrent use.
type Lines struct {
	f *os.File
	// over is true if the terminal may show a progress line
	over bool

	mu      sync.Mutex
	pending []byte
	waiting bool
	err     error
}

// NewLines writes to a file; over is true if the file may be a terminal with a progress line.
func NewLines(f *os.File, over bool) *Lines { return &Lines{f: f, over: over} }

// Write adds one or more lines.
func (o *Lines) Write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, b...)
	if len(o.pending) >= 64<<10 {
		o.flush()
	} else if !o.waiting {
		o.waiting = true
		time.AfterFunc(linesDelay, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.waiting = false
			o.flush()
		})
	}
}

// flush writes the pending lines. After an error nothing more is written.
func (o *Lines) flush() {
	if len(o.pending) == 0 || o.err != nil {
		o.pending = o.pending[:0]
		return
	}
	if o.over {
		_, o.err = o.f.WriteString("\r\x1b[K")
	}
	if o.err == nil {
		_, o.err = o.f.Write(o.pending)
	}
	o.pending = o.pending[:0]
}

// Close writes the pending lines, and returns the first error of writing.
func (o *Lines) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	return o.err
}
