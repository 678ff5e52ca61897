package tracer

import (
	"bytes"
	"context"
	"fmt"
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

// tracedMarks traces the moments that processes name. They map no tt-metal library, so place does what the
// discovery of a mapping does in one that does: it places the probe in the file that a process is about to
// map. count returns the number of their marks up to now.
func tracedMarks(t *testing.T, pids ...int) (warnings *tracetest.Lines, place func(path string, pid int), count func() int) {
	t.Helper()
	tracetest.NeedsRoot(t)
	warnings = new(tracetest.Lines)
	tr, err := New(Options{Processes: pids, Children: true, NoStacks: true, Warn: func(_ int, text string) { warnings.Add(text) }})
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
				qt.Check(t, qt.Equals(e.Cause, "step"))
				marks++
			}
		}, func() {})))
	})
	t.Cleanup(func() { cancel(); running.Wait(); tr.Close() })
	place = func(path string, pid int) {
		t.Helper()
		file, err := os.Open(path)
		qt.Assert(t, qt.IsNil(err))
		id, err := host.FileIDOf(file)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(tr.libraries.OpenBeside(file, id, path, pid, 0)))
	}
	return warnings, place, func() (n int) {
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

// mark makes the program load and call its library, which has a probe, and checks that one mark arrives
// and that the call does the same as in an untraced process.
func mark(t *testing.T, p *tracetest.Program, count func() int, want string) {
	t.Helper()
	before := count()
	p.Tell(t, "load")
	qt.Assert(t, qt.Equals(p.Line(t), want))
	qt.Check(t, qt.Equals(count()-before, 1))
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
	warnings, place, count := tracedMarks(t, p.Process.Pid)
	place(lib, p.Process.Pid)
	mark(t, p, count, "2 0")

	tracetest.Overwrite(t, lib, second)
	qt.Check(t, qt.Equals(untraced(t, program, lib), "2 64"))
	qt.Check(t, qt.StringContains(warnings.String(), lib+" is being overwritten: marks are no longer seen "))
	place(lib, p.Process.Pid)
	mark(t, p, count, "2 64")
	qt.Check(t, qt.Equals(untraced(t, program, lib), "2 64"))

	// the second content's lease works as well
	content, err := os.ReadFile(second)
	qt.Assert(t, qt.IsNil(err))
	third := filepath.Join(t.TempDir(), "third")
	at := tracetest.MustOffset(t, second, "ttmem_mark")
	content = bytes.Clone(content)
	content[at+3]++ // lea 2(%rdi),%eax
	qt.Assert(t, qt.IsNil(os.WriteFile(third, content, 0o700)))
	tracetest.Overwrite(t, lib, third)
	qt.Check(t, qt.Equals(untraced(t, program, lib), "3 64"))
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
	warnings, place, count := tracedMarks(t, a.Process.Pid, b.Process.Pid)
	place(libs[0], a.Process.Pid)
	place(libs[1], b.Process.Pid)
	mark(t, a, count, "2 0")
	mark(t, b, count, "2 0")

	// a write copies the file in one container only
	tracetest.Overwrite(t, libs[0], second)
	qt.Check(t, qt.StringContains(warnings.String(), libs[0]+" is being overwritten"))
	place(libs[0], a.Process.Pid)
	place(libs[1], b.Process.Pid)
	mark(t, a, count, "2 64")
	mark(t, b, count, "2 0")
	qt.Check(t, qt.Equals(untraced(t, program, libs[0]), "2 64"))
}
