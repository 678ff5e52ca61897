package tracer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// tracedMarks traces the calls of work in processes; count returns the number of their marks up
// to now.
func tracedMarks(t *testing.T, pids ...int) (warnings *tracetest.Lines, count func() int) {
	t.Helper()
	tracetest.NeedsRoot(t)
	warnings = new(tracetest.Lines)
	tr, err := New(Options{Processes: pids, Children: true, NoStacks: true, MarkAt: []string{"work"}, Warn: func(_ int, text string) { warnings.Add(text) }})
	qt.Assert(t, qt.IsNil(err))
	var mu sync.Mutex
	marks, last := 0, ""
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		qt.Check(t, qt.IsNil(tr.Run(ctx, func(e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e.Kind == event.Mark && e.PID == 0: // set by count
				last = e.Cause
			case e.Kind == event.Mark:
				marks++
			}
		}, func() {})))
	})
	t.Cleanup(func() { cancel(); running.Wait(); tr.Close() })
	return warnings, func() (n int) {
		t.Helper()
		awaitMark(t, tr, func(mark string) bool {
			mu.Lock()
			defer mu.Unlock()
			n = marks
			return last == mark
		})
		return n
	}
}

// awaitMark sets a mark and waits until it is reported: all that happened before is reported then.
func awaitMark(t *testing.T, tr *Tracer, reported func(mark string) bool) {
	t.Helper()
	mark := fmt.Sprint(host.Now())
	tr.Mark(mark, 0, 0)
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { return reported(mark) })))
}

// untilMarked makes the program load and call its library until a mark arrives. Each call
// must print the same as in an untraced process.
func untilMarked(t *testing.T, p *tracetest.Program, count func() int, want string) {
	t.Helper()
	before := count()
	for end := time.Now().Add(time.Minute); count() == before; time.Sleep(50 * time.Millisecond) {
		qt.Assert(t, qt.IsTrue(time.Now().Before(end)), qt.Commentf("no mark has come"))
		p.Tell(t, "load")
		qt.Assert(t, qt.Equals(p.Line(t), want))
	}
}

// untraced is the program's output in an untraced process.
func untraced(t *testing.T, program, lib string) string {
	t.Helper()
	cmd := exec.Command(program, lib)
	cmd.Stdin = strings.NewReader("load\n")
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err))
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "ready\n")
}

// The probes are removed before the first byte is written, so that no process runs one
// inside the new content. The new content is read and marked in turn.
func TestOverwritingAMarkedLibrary(t *testing.T) {
	lib, second, program := tracetest.MarkedLibraries(t)
	p := tracetest.Start(t, program, lib)
	warnings, count := tracedMarks(t, p.Process.Pid)
	untilMarked(t, p, count, "2 0")

	tracetest.Overwrite(t, lib, second)
	qt.Check(t, qt.Equals(untraced(t, program, lib), "2 64"))
	qt.Check(t, qt.StringContains(warnings.String(), lib+" is being overwritten: calls of work "))
	untilMarked(t, p, count, "2 64")
	qt.Check(t, qt.Equals(untraced(t, program, lib), "2 64"))

	// the second content's lease works as well
	content, err := os.ReadFile(second)
	qt.Assert(t, qt.IsNil(err))
	third := filepath.Join(t.TempDir(), "third")
	at := tracetest.MustOffset(t, second, "work")
	content = bytes.Clone(content)
	content[at+3]++ // lea 2(%rdi),%eax
	qt.Assert(t, qt.IsNil(os.WriteFile(third, content, 0o700)))
	tracetest.Overwrite(t, lib, third)
	qt.Check(t, qt.Equals(untraced(t, program, lib), "3 64"))
}

// A writer that has the file open already cannot be delayed. The file is marked once it is
// closed.
func TestLibraryOpenForWritingIsNotMarked(t *testing.T) {
	lib, second, program := tracetest.MarkedLibraries(t)
	p := tracetest.Start(t, program, lib)
	writer, err := os.OpenFile(lib, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	defer writer.Close()
	warnings, count := tracedMarks(t, p.Process.Pid)
	for end := time.Now().Add(time.Minute); !strings.Contains(warnings.String(), lib); time.Sleep(50 * time.Millisecond) {
		qt.Assert(t, qt.IsTrue(time.Now().Before(end)), qt.Commentf("no warning has come"))
		p.Tell(t, "load")
		qt.Assert(t, qt.Equals(p.Line(t), "2 0"))
	}
	qt.Check(t, qt.Equals(warnings.String(), fmt.Sprintf("calls of work (--mark-at) in %s are not seen: it is open for writing", lib)))

	content, err := os.Open(second)
	qt.Assert(t, qt.IsNil(err))
	defer content.Close()
	_, err = io.Copy(writer, content)
	qt.Assert(t, qt.IsNil(err))
	for range 10 {
		p.Tell(t, "load")
		qt.Check(t, qt.Equals(p.Line(t), "2 64"))
	}
	qt.Check(t, qt.Equals(count(), 0))
	writer.Close()
	untilMarked(t, p, count, "2 64")
	qt.Check(t, qt.Equals(strings.Count(warnings.String(), "\n"), 0), qt.Commentf("reported more than once: %s", warnings))
}

// On overlayfs the library appears as two files, but one inode carries the probes.
func TestFileSharedByContainersIsMarkedOnce(t *testing.T) {
	tracetest.NeedsRoot(t)
	lib, second, program := tracetest.MarkedLibraries(t)
	var libs [2]string
	for i := range libs {
		dir := t.TempDir()
		// the writable layer must not lie on an overlayfs, as this folder may
		qt.Assert(t, qt.IsNil(unix.Mount("tmpfs", dir, "tmpfs", 0, "")))
		t.Cleanup(func() { qt.Check(t, qt.IsNil(unix.Unmount(dir, unix.MNT_DETACH))) })
		for _, name := range []string{"upper", "work", "merged"} {
			qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(dir, name), 0o700)))
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%[2]s/work", filepath.Dir(lib), dir)
		merged := filepath.Join(dir, "merged")
		qt.Assert(t, qt.IsNil(unix.Mount("overlay", merged, "overlay", 0, options)))
		t.Cleanup(func() { qt.Check(t, qt.IsNil(unix.Unmount(merged, unix.MNT_DETACH))) })
		libs[i] = filepath.Join(merged, filepath.Base(lib))
	}
	a, b := tracetest.Start(t, program, libs[0]), tracetest.Start(t, program, libs[1])
	warnings, count := tracedMarks(t, a.Process.Pid, b.Process.Pid)
	untilMarked(t, a, count, "2 0")
	untilMarked(t, b, count, "2 0")
	before := count()
	b.Tell(t, "load")
	qt.Assert(t, qt.Equals(b.Line(t), "2 0"))
	qt.Check(t, qt.Equals(count()-before, 1))

	// a write copies the file in one container only
	tracetest.Overwrite(t, libs[0], second)
	qt.Check(t, qt.StringContains(warnings.String(), libs[0]+" is being overwritten"))
	untilMarked(t, a, count, "2 64")
	untilMarked(t, b, count, "2 0")
	qt.Check(t, qt.Equals(untraced(t, program, libs[0]), "2 64"))
}
