package tracer

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestStackOfC: all calls of a C program without frame pointers, in main and in
// a thread.
func TestStackOfC(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "p.c")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(`
#include <pthread.h>
#include <stdio.h>
__attribute__((noinline)) void probed(int n) { __asm__ volatile("" :: "r"(n) : "memory"); }
__attribute__((noinline)) int inner(int n) { char b[300]; b[0] = n; probed(n); __asm__ volatile("" :: "r"(b) : "memory"); return n + 1; }
__attribute__((noinline)) int outer(int n) { return n ? outer(n - 1) + 1 : inner(n) + 1; }
static void *start(void *p) { outer(3); return 0; }
int main(void) {
	pthread_t t;
	puts("ready"); fflush(stdout); getchar();
	outer(5);
	pthread_create(&t, 0, start, 0);
	pthread_join(t, 0);
	return 0;
}`), 0o644)))
	exe := filepath.Join(dir, "p")
	out, err := exec.Command("clang-19", "-O1", "-fno-optimize-sibling-calls", "-fomit-frame-pointer", "-pthread", "-o", exe, source).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	cmd := exec.Command(exe)
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	ready, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	_, err = bufio.NewReader(ready).ReadString('\n')
	qt.Assert(t, qt.IsNil(err))

	trace := traceStacks(t, cmd.Process.Pid, exe, "probed", Options{})
	_, err = io.WriteString(in, "\n")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Wait()))
	calls := trace.stop()
	qt.Assert(t, qt.HasLen(calls, 2))
	names := func(frames []event.Frame) (list []string) {
		for i := range frames {
			list = append(list, text(&frames[i]))
		}
		return list
	}
	for _, c := range calls {
		t.Log(names(c.stack.Frames()))
	}
	t.Log(trace.StackEnds())
}
