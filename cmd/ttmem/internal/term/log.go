package term

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// logLines is how many lines wait for a reader of standard error who stalls.
	logLines = 256
	// linePatience is how long a line waits to be written: what follows it on a terminal, or on
	// standard output, then comes after it.
	linePatience = 50 * time.Millisecond
)

// A lineLog writes lines in the background, so that nobody waits for a reader who stalls. Lines beyond
// logLines are counted instead.
type lineLog struct {
	mu      sync.Mutex
	to      io.Writer
	lines   []string
	dropped int
	written chan struct{} // closed when all lines are written; nil if none waits
	stalled bool
	gone    func() // called when the reader is gone
}

var stderr lineLog

// add adds a line, and waits a little until it is written, if the reader does not stall.
func (l *lineLog) add(to io.Writer, line string) {
	l.mu.Lock()
	l.to = to
	if len(l.lines) >= logLines {
		l.dropped++
		l.mu.Unlock()
		return
	}
	l.lines = append(l.lines, line)
	if l.written == nil {
		l.written = make(chan struct{})
		go l.write()
	}
	written, stalled := l.written, l.stalled
	l.mu.Unlock()
	if !stalled && !l.wait(written, time.After(linePatience)) {
		l.mu.Lock()
		l.stalled = l.written == written
		l.mu.Unlock()
	}
}

func (l *lineLog) wait(written <-chan struct{}, limit <-chan time.Time) bool {
	select {
	case <-written:
		return true
	case <-limit:
		return false
	}
}

// write writes what waits.
func (l *lineLog) write() {
	for {
		l.mu.Lock()
		if len(l.lines) == 0 && l.dropped == 0 {
			close(l.written)
			l.written, l.stalled = nil, false
			l.mu.Unlock()
			return
		}
		text := strings.Join(l.lines, "")
		if l.dropped > 0 {
			text += fmt.Sprintf("%s… %d more not shown: standard error was not read\n", warning, l.dropped)
		}
		l.lines, l.dropped = nil, 0
		to, gone := l.to, l.gone
		l.mu.Unlock()
		if _, err := io.WriteString(to, text); errors.Is(err, unix.EPIPE) && gone != nil {
			gone()
		}
	}
}

// flush waits until everything is written, for ever without a limit.
func (l *lineLog) flush(limit time.Duration) {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	l.wait(written, over)
}

// exitPatience is how long the end of this process waits for the reader of standard error; 0: for ever.
var exitPatience time.Duration

// Flush waits until warnings are written, at the end of this process.
func Flush() { stderr.flush(exitPatience) }

// OutliveReaders makes writing to a pipe without a reader an error, which otherwise ends this process. The
// programs that it executes keep their own handling of SIGPIPE.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// ServiceLog makes standard error the log of a service, whose end does not wait for a reader. gone is
// called when the reader is gone, except if it was systemd's journal, which comes back.
func ServiceLog(gone func()) {
	exitPatience = 500 * time.Millisecond
	var file unix.Stat_t
	if unix.Fstat(unix.Stderr, &file) == nil && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", file.Dev, file.Ino) {
		return
	}
	stderr.mu.Lock()
	stderr.gone = gone
	stderr.mu.Unlock()
}
