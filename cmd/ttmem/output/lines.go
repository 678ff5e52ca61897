package output

import (
	"os"
	"sync"
	"time"
)

// logDelay is how long a line may wait for others to be written with.
const logDelay = 50 * time.Millisecond

// Lines writes lines soon after they come, and many at once. It may be used by
// several goroutines at once.
type Lines struct {
	f *os.File
	// over is true where a line of progress may be in the way on the terminal.
	over bool

	mu      sync.Mutex
	pending []byte
	waiting bool
	err     error
}

func NewLines(f *os.File, over bool) *Lines { return &Lines{f: f, over: over} }

func (o *Lines) Write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, b...)
	if len(o.pending) >= 64<<10 {
		o.flush()
	} else if !o.waiting {
		o.waiting = true
		time.AfterFunc(logDelay, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.waiting = false
			o.flush()
		})
	}
}

// flush writes what waits. After an error nothing more is written.
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

// Close writes what waits, and tells what could not be written.
func (o *Lines) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	return o.err
}
