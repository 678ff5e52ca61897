package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// fill fills a pipe.
func fill(t *testing.T, w *os.File) int {
	t.Helper()
	fd := int(w.Fd()) // which makes it blocking
	qt.Assert(t, qt.IsNil(unix.SetNonblock(fd, true)))
	n := 0
	for {
		more, err := unix.Write(fd, make([]byte, 4096))
		if err != nil {
			break
		}
		n += more
	}
	qt.Assert(t, qt.IsNil(unix.SetNonblock(fd, false)))
	return n
}

// Nobody waits for a reader who stalls; lines beyond the bound are counted, and written once it reads.
func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	r, w := pipe(t)
	full := fill(t, w)
	var l lineLog
	added := make(chan struct{})
	const lines = 3*logLines + 1
	go func() {
		defer close(added)
		for n := range lines {
			l.add(w, fmt.Sprintf("line %d\n", n))
		}
	}()
	select {
	case <-added:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the reader")
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		l.flush(0)
	}()
	_, err := io.CopyN(io.Discard, r, int64(full))
	qt.Assert(t, qt.IsNil(err))
	<-flushed
	l.add(w, "afterwards\n")
	l.flush(0)
	w.Close()
	text, err := io.ReadAll(r)
	qt.Assert(t, qt.IsNil(err))
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	shown, dropped := 0, 0
	for _, line := range got {
		var n int
		if _, err := fmt.Sscanf(line, "ttmem: … %d more not shown", &n); err == nil {
			dropped += n
		} else {
			shown++
		}
	}
	qt.Check(t, qt.Equals(got[0], "line 0"))
	qt.Check(t, qt.Equals(got[len(got)-1], "afterwards"))
	qt.Check(t, qt.Equals(shown-1+dropped, lines))
	qt.Check(t, qt.IsTrue(dropped >= lines-2*logLines), qt.Commentf("%d", dropped))
}

func TestALogTellsThatItsReaderIsGone(t *testing.T) {
	r, w := pipe(t)
	r.Close()
	gone := make(chan struct{}, 1)
	l := lineLog{gone: func() { gone <- struct{}{} }}
	l.add(w, "line\n")
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("it does not tell")
	}
}

func TestALimiterShowsAMessageOnceAndCountsTheRest(t *testing.T) {
	var lines []string
	l := NewLimiter(func(text string) { lines = append(lines, text) })
	for pid := range 500 {
		l.Warn(1000, fmt.Sprintf("lib.so in process %d could not be traced", pid))
	}
	l.Warn(1000, "another")
	qt.Check(t, qt.DeepEquals(lines, []string{"lib.so in process 0 could not be traced", "another"}))
	l.End()
	qt.Check(t, qt.DeepEquals(lines[2:], []string{"… and 499 more: lib.so in process 499 could not be traced"}))
	l.Warn(1000, "another")
	qt.Check(t, qt.Equals(lines[len(lines)-1], "another"))
}

// Whatever names a user makes up, others' lines are shown.
func TestALimiterBoundsTheLinesOfAUser(t *testing.T) {
	var lines []string
	l := NewLimiter(func(text string) { lines = append(lines, text) })
	for n := range 1000 {
		l.Warn(1000, "unknown "+strings.Repeat("x", n))
		l.Line(1000, "PID ended")
	}
	qt.Check(t, qt.HasLen(lines, linesPerUser))
	l.Line(1001, "PID of another user ended")
	qt.Check(t, qt.HasLen(lines, linesPerUser+1))
	qt.Check(t, qt.IsTrue(len(l.shown) <= linesPerUser))
	l.End()
	qt.Check(t, qt.Equals(lines[len(lines)-1], "… and 1970 more lines about processes of user 1000"))
}
