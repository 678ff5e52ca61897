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

	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/tracetest"
)

// The two contents of a library. Where work begins in the first one the second one has
// data, among its code: 64 bytes of 1, with what may be taken for functions beside it.
const (
	markedFirst = `asm(".text\n .p2align 6\n .globl work\n .type work,@function\n"
		"work: push %rbp\n lea 1(%rdi),%eax\n pop %rbp\n ret\n .size work,.-work\n .skip 200,0x90\n");`
	markedSecond = `asm(".text\n .p2align 6\n .globl table\n .type table,@object\n"
		"table: .fill 64,1,1\n .size table,64\n"
		".globl work\n .type work,@function\n"
		"work: push %rbp\n lea 1(%rdi),%eax\n pop %rbp\n ret\n .size work,.-work\n"
		".globl bare\n .type bare,@function\n bare: ret\n"
		".globl chosen\n .type chosen,@gnu_indirect_function\n"
		"chosen: mov work@GOTPCREL(%rip),%rax\n ret\n .size chosen,.-chosen\n");`
	// markedMain loads the library anew for each line of its input, calls work(1) and
	// adds up table. It keeps it for long enough to be met.
	markedMain = `#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char line[80];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		void *lib = dlopen(argv[1], RTLD_NOW);
		int (*work)(int) = lib ? dlsym(lib, "work") : 0;
		unsigned char *table = lib ? dlsym(lib, "table") : 0;
		int sum = 0;
		if (!work)
			return 1;
		for (int i = 0; table && i < 64; i++)
			sum += table[i];
		printf("%d %d\n", work(1), sum);
		fflush(stdout);
		usleep(50000);
		dlclose(lib);
	}
	return 0;
}`
)

// markedLibraries are libraries of the two contents, and the program that loads one.
func markedLibraries(t *testing.T) (first, second, program string) {
	t.Helper()
	dir := t.TempDir()
	build := func(name, source string, args ...string) string {
		from, to := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.WriteFile(from, []byte(source), 0o600)))
		tracetest.Compile(t, "", "cc", to, append([]string{from}, args...)...)
		return to
	}
	library := []string{"-shared", "-nostdlib", "-fPIC"}
	first, second = build("first.so", markedFirst, library...), build("second.so", markedSecond, library...)
	program = build("program", markedMain, "-ldl")

	// or nothing below could fail
	was, is := mustOffset(t, first, "work"), mustOffset(t, second, "table")
	qt.Assert(t, qt.IsTrue(is <= was && was < is+64), qt.Commentf("work is at %#x, table at %#x", was, is))
	return first, second, program
}

func mustOffset(t *testing.T, path, symbol string) uint64 {
	t.Helper()
	e, err := symbolize.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	s, ok := e.Lookup(symbol)
	qt.Assert(t, qt.IsTrue(ok))
	offset, ok := e.FileOffset(s.Addr)
	qt.Assert(t, qt.IsTrue(ok))
	return offset
}

// lines are what a Warn was told.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.list, "\n")
}

// takeNamed has a file looked at by its name.
func takeNamed(t *testing.T, c *callMarks, path string) {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	c.take(file)
	c.wait()
}

// unplaced looks at files, but has no program that it could place.
func unplaced(t *testing.T, names ...string) (*callMarks, *lines) {
	var told lines
	c := newCallMarks(names, nil, uprobes{}, told.add)
	t.Cleanup(c.close)
	return c, &told
}

func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s takes longer than %v", what, limit)
	}
}

// TestMarksAreOfFunctionsOnly: not of data among the code, of what chooses a function, nor
// of a symbol that may be the end of something.
func TestMarksAreOfFunctionsOnly(t *testing.T) {
	_, second, _ := markedLibraries(t)
	e, err := symbolize.Open(second)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	offsets, numbers := functionsNamed(e, []string{"table", "work", "chosen", "bare"})
	qt.Check(t, qt.DeepEquals(numbers, []uint64{1}))
	qt.Check(t, qt.DeepEquals(offsets, []uint64{mustOffset(t, second, "work")}))
}

// tracedMarks traces the calls of work in processes; count tells how many there were.
func tracedMarks(t *testing.T, pids ...int) (told *lines, count func() int) {
	t.Helper()
	tracetest.NeedsRoot(t)
	told = new(lines)
	tr, err := New(Options{Processes: pids, Children: true, NoStacks: true, MarkAt: []string{"work"}, Warn: told.add})
	qt.Assert(t, qt.IsNil(err))
	var mu sync.Mutex
	marks := 0
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		qt.Check(t, qt.IsNil(tr.Run(ctx, func(e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == event.Mark {
				marks++
			}
		}, func() {})))
	})
	t.Cleanup(func() { cancel(); running.Wait(); tr.Close() })
	return told, func() int {
		mu.Lock()
		defer mu.Unlock()
		return marks
	}
}

// untilMarked has the program load and call its library until a mark comes of it. Each
// time it has to print the same as where nothing is traced.
func untilMarked(t *testing.T, p *tracetest.Program, count func() int, want string) {
	t.Helper()
	before := count()
	for end := time.Now().Add(20 * time.Second); count() == before; time.Sleep(50 * time.Millisecond) {
		qt.Assert(t, qt.IsTrue(time.Now().Before(end)), qt.Commentf("no mark has come"))
		p.Tell(t, "load")
		qt.Assert(t, qt.Equals(p.Line(t), want))
	}
}

// overwrite writes into a file in place, as cp does, and fails where it is held up.
func overwrite(t *testing.T, path, content string) {
	t.Helper()
	within(t, 20*time.Second, "overwriting a library", func() {
		out, err := exec.Command("dd", "if="+content, "of="+path, "conv=notrunc").CombinedOutput()
		qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
	})
}

// untraced is what the program prints in a process that is not traced.
func untraced(t *testing.T, program, lib string) string {
	t.Helper()
	cmd := exec.Command(program, lib)
	cmd.Stdin = strings.NewReader("load\n")
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err))
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "ready\n")
}

// TestOverwritingAMarkedLibrary: the probes are gone before the first byte is written, so
// that no process finds one among the new content; which is read, and marked, in its turn.
func TestOverwritingAMarkedLibrary(t *testing.T) {
	lib, second, program := markedLibraries(t)
	p := tracetest.Start(t, program, lib)
	told, count := tracedMarks(t, p.Process.Pid)
	untilMarked(t, p, count, "2 0")

	overwrite(t, lib, second)
	qt.Check(t, qt.Equals(untraced(t, program, lib), "2 64"))
	qt.Check(t, qt.StringContains(told.String(), lib+" is being overwritten: calls of work "))
	untilMarked(t, p, count, "2 64")
	qt.Check(t, qt.Equals(untraced(t, program, lib), "2 64"))

	// and once more: the second content's lease holds as well
	content, err := os.ReadFile(second)
	qt.Assert(t, qt.IsNil(err))
	third := filepath.Join(t.TempDir(), "third")
	at := mustOffset(t, second, "work")
	content = bytes.Clone(content)
	content[at+3]++ // lea 2(%rdi),%eax
	qt.Assert(t, qt.IsNil(os.WriteFile(third, content, 0o700)))
	overwrite(t, lib, third)
	qt.Check(t, qt.Equals(untraced(t, program, lib), "3 64"))
}

// TestALibraryThatIsOpenForWritingIsNotMarked: nobody could hold the writer up. It is as
// soon as he is done.
func TestALibraryThatIsOpenForWritingIsNotMarked(t *testing.T) {
	lib, second, program := markedLibraries(t)
	p := tracetest.Start(t, program, lib)
	writer, err := os.OpenFile(lib, os.O_WRONLY, 0)
	qt.Assert(t, qt.IsNil(err))
	defer writer.Close()
	told, count := tracedMarks(t, p.Process.Pid)
	for end := time.Now().Add(20 * time.Second); !strings.Contains(told.String(), lib); time.Sleep(50 * time.Millisecond) {
		qt.Assert(t, qt.IsTrue(time.Now().Before(end)), qt.Commentf("no warning has come"))
		p.Tell(t, "load")
		qt.Assert(t, qt.Equals(p.Line(t), "2 0"))
	}
	qt.Check(t, qt.Equals(told.String(), fmt.Sprintf("--mark-at: calls of work in %s are not marked: it is open for writing", lib)))

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
	qt.Check(t, qt.Equals(strings.Count(told.String(), "\n"), 0), qt.Commentf("told more than once: %s", told))
}

// TestAFileOfTwoContainersIsMarkedOnce: on overlayfs it is two files to look at, and one
// that has the probes.
func TestAFileOfTwoContainersIsMarkedOnce(t *testing.T) {
	tracetest.NeedsRoot(t)
	lib, second, program := markedLibraries(t)
	var libs [2]string
	for i := range libs {
		dir := t.TempDir()
		// what a container writes to may not lie on an overlayfs, as the folder here may
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
	told, count := tracedMarks(t, a.Process.Pid, b.Process.Pid)
	untilMarked(t, a, count, "2 0")
	untilMarked(t, b, count, "2 0")
	time.Sleep(300 * time.Millisecond) // what was called is told of by then
	before := count()
	b.Tell(t, "load")
	qt.Assert(t, qt.Equals(b.Line(t), "2 0"))
	time.Sleep(300 * time.Millisecond)
	qt.Check(t, qt.Equals(count()-before, 1))

	// a write makes a copy, in the one container
	overwrite(t, libs[0], second)
	qt.Check(t, qt.StringContains(told.String(), libs[0]+" is being overwritten"))
	untilMarked(t, a, count, "2 64")
	untilMarked(t, b, count, "2 0")
	qt.Check(t, qt.Equals(untraced(t, program, libs[0]), "2 64"))
}

// TestFilesAreNotOpenedByTheirNamesAgain: in the name's place there may be a FIFO by then,
// which would never open.
func TestFilesAreNotOpenedByTheirNamesAgain(t *testing.T) {
	lib, _, _ := markedLibraries(t)
	c, _ := unplaced(t, "wrk")
	takeNamed(t, c, lib)
	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	qt.Assert(t, qt.IsNil(unix.Mkfifo(lib, 0o600)))
	var unfound []error
	within(t, 10*time.Second, "telling what was not found", func() { unfound = c.unfound() })
	qt.Assert(t, qt.HasLen(unfound, 1))
	qt.Check(t, qt.ErrorMatches(unfound[0], "--mark-at wrk: no native function of that name .*; there is work(, .*)?"))
}

// TestAFIFOAmongTheLibraries: what is installed beside a library is opened by name.
func TestAFIFOAmongTheLibraries(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.so")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(fifo, 0o600)))
	c, _ := unplaced(t, "work")
	within(t, 10*time.Second, "preparing", func() { c.prepare([]string{fifo}) })
}

// TestAnotherContentOfAnInodeIsReadAgain: written in place, or another file that has got
// the number of one that was deleted.
func TestAnotherContentOfAnInodeIsReadAgain(t *testing.T) {
	lib, second, _ := markedLibraries(t)
	path := filepath.Join(t.TempDir(), "lib.so")
	first, err := os.ReadFile(lib)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(path, bytes.ReplaceAll(first, []byte("work"), []byte("idle")), 0o600)))
	c, told := unplaced(t, "work")
	takeNamed(t, c, path)
	takeNamed(t, c, path)
	qt.Assert(t, qt.Equals(told.String(), "")) // there is none

	overwrite(t, path, second)
	takeNamed(t, c, path)
	// no probe can be placed, and that is told: work was found
	qt.Check(t, qt.StringContains(told.String(), "--mark-at: calls of work in "+path+" are not seen"))
	said := told.String()
	takeNamed(t, c, path)
	qt.Check(t, qt.Equals(told.String(), said)) // the same content is read once
	qt.Check(t, qt.HasLen(c.files, 1))
}

// TestTtmemItselfIsNotMarked: a command is it until it begins.
func TestTtmemItselfIsNotMarked(t *testing.T) {
	c, told := unplaced(t, "runtime.main")
	takeNamed(t, c, "/proc/self/exe")
	qt.Check(t, qt.HasLen(c.files, 0))
	qt.Check(t, qt.Equals(told.String(), ""))
}
