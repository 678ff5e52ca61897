package tracetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// The two contents of a library. Where its function begins in the first, the second has data in its
// code: 64 bytes of 1.
const (
	markedFirst = `asm(".text\n .p2align 6\n .globl ttmem_mark\n .type ttmem_mark,@function\n"
		"ttmem_mark: push %rbp\n lea 1(%rdi),%eax\n pop %rbp\n ret\n .size ttmem_mark,.-ttmem_mark\n .skip 200,0x90\n");`
	markedSecond = `asm(".text\n .p2align 6\n .globl table\n .type table,@object\n"
		"table: .fill 64,1,1\n .size table,64\n"
		".globl ttmem_mark\n .type ttmem_mark,@function\n"
		"ttmem_mark: push %rbp\n lea 1(%rdi),%eax\n pop %rbp\n ret\n .size ttmem_mark,.-ttmem_mark\n");`
	// markedMain loads the library again for each line of its input, marks a step, and adds up table: it
	// prints 2, as the function adds 1 to its argument, and the sum.
	markedMain = `#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char line[80], *step = "step";
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		void *lib = dlopen(argv[1], RTLD_NOW);
		int (*mark)(const char *) = lib ? dlsym(lib, "ttmem_mark") : 0;
		unsigned char *table = lib ? dlsym(lib, "table") : 0;
		int sum = 0;
		if (!mark)
			return 1;
		for (int i = 0; table && i < 64; i++)
			sum += table[i];
		printf("%d %d\n", mark(step) - (int)(long)step + 1, sum);
		fflush(stdout);
		usleep(50000);
		dlclose(lib);
	}
	return 0;
}`
)

// MarkedLibraries builds libraries with the two contents, and the program that loads one.
func MarkedLibraries(t *testing.T) (first, second, program string) {
	t.Helper()
	dir := t.TempDir()
	build := func(name, source string, args ...string) string {
		from, to := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.WriteFile(from, []byte(source), 0o600)))
		Compile(t, "", "cc", to, append([]string{from}, args...)...)
		return to
	}
	library := []string{"-shared", "-nostdlib", "-fPIC"}
	first, second = build("first.so", markedFirst, library...), build("second.so", markedSecond, library...)
	program = build("program", markedMain, "-ldl")

	// otherwise the tests could not fail
	was, is := MustOffset(t, first, "ttmem_mark"), MustOffset(t, second, "table")
	qt.Assert(t, qt.IsTrue(is <= was && was < is+64), qt.Commentf("the function is at %#x, table at %#x", was, is))
	return first, second, program
}

// MustOffset returns the file offset of a symbol.
func MustOffset(t *testing.T, path, symbol string) uint64 {
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

// Lines collects lines from a Warn function.
type Lines struct {
	mu   sync.Mutex
	list []string
}

// Add adds a line.
func (l *Lines) Add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, line)
}

// String returns all lines.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.list, "\n")
}

// Within fails the test if f takes longer than limit.
func Within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s takes longer than %v", what, limit)
	}
}

// Overwrite writes into a file in place, as cp does, and fails if it is blocked.
func Overwrite(t *testing.T, path, content string) {
	t.Helper()
	Within(t, 2*time.Minute, "overwriting a library", func() {
		out, err := exec.Command("dd", "if="+content, "of="+path, "conv=notrunc").CombinedOutput()
		qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
	})
}
