package lines

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/symbolize"
)

// program has calls to inline: of functions, methods, templates and lambdas, some in
// another file.
var program = map[string]string{
	"shapes.h": `
namespace shapes {
template <typename T> inline T square(T x) { return x * x; }
struct Box {
  int w, h;
  int area() const {
    if (w == h)
      return square(w);
    return w * h;
  }
};
namespace {
inline int twice(int x) { return 2 * x; }
}
}
`,
	"main.cpp": `
#include "shapes.h"

extern "C" int printf(const char *, ...);
extern int sink(int);

static inline int sum(const shapes::Box *boxes, int n) {
  int total = 0;
  auto add = [&](const shapes::Box &b) {
    total += b.area();
    if (total > 1000)
      total = sink(shapes::twice(total));
  };
  for (int i = 0; i < n; i++)
    add(boxes[i]);
  return total;
}

__attribute__((noinline)) static int cold(int x) { printf("%d\n", x); return sink(x) + 1; }

namespace outer {
struct Walker {
  int depth = 0;
  int step(int n);
};
int Walker::step(int n) {
  struct Local {
    static int half(int x) { return sink(x / 2); }
  };
  depth++;
  return n < 2 ? Local::half(n) : step(n - 1) + cold(shapes::square(n));
}
}

int run(int n) {
  shapes::Box boxes[4] = {{n, 2}, {n, n}, {3, n}, {n, sink(n)}};
  outer::Walker w;
  return sum(boxes, 4) + w.step(n) + shapes::square(sink(n));
}
`,
	"sink.cpp": `
#include "shapes.h"
volatile int ground;
int sink(int x) {
  ground = shapes::twice(x);
  if (ground == 17)
    __builtin_trap();
  return ground;
}
extern "C" int plain(int x) { return shapes::Box{x, x + 1}.area(); }
`,
}

// built builds a library from program.
func built(t testing.TB, compiler string, flags ...string) string {
	t.Helper()
	need(t, compiler, "objcopy", "llvm-symbolizer-19")
	dir := t.TempDir()
	for name, text := range program {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)))
	}
	args := append([]string{"-x", "c++", "-fPIC", "-shared", "-o", "lib.so", "main.cpp", "sink.cpp"}, flags...)
	run(t, dir, compiler, args...)
	return filepath.Join(dir, "lib.so")
}

// need skips a test if a tool is not installed. `make tools` installs LLVM's.
func need(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

func run(t testing.TB, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.Bytes())
	}
	return out
}

func mustOpen(t testing.TB, path string) *symbolize.ELF {
	t.Helper()
	e, err := symbolize.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { e.Close() })
	return e
}

// below opens files at paths below root.
func below(root string) Opener {
	return func(path string) (*os.File, error) {
		return os.OpenFile(filepath.Join(root, path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
}

// mustNew returns the names of the file at a path. It searches for a debug file of path below root.
func mustNew(t testing.TB, file, root, path string) *Names {
	t.Helper()
	e, err := symbolize.Open(file)
	qt.Assert(t, qt.IsNil(err))
	n := New(e, path, below(root))
	t.Cleanup(n.Close)
	return n
}

func mustLookup(t testing.TB, e *symbolize.ELF, name string) symbolize.Symbol {
	t.Helper()
	s, ok := e.Lookup(name)
	qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%s", name))
	return s
}

// frames formats one call per line, in llvm-symbolizer's form.
func frames(functions []symbolize.Function) string {
	var b strings.Builder
	for _, f := range functions {
		name := f.Symbol
		if name == "" { // llvm-symbolizer omits the scopes
			name = f.Name[strings.LastIndexByte(f.Name, ':')+1:]
			name = strings.Replace(name, "{lambda}", "operator()", 1)
		}
		fmt.Fprintf(&b, "%s %s:%d\n", name, path.Clean(f.File), f.Line)
	}
	return b.String()
}

// symbolized returns llvm-symbolizer's output for addresses of a file.
func symbolized(t testing.TB, file string, addrs []uint64) []string {
	t.Helper()
	cmd := exec.Command("llvm-symbolizer-19", "--obj="+file, "--functions=linkage", "--inlines", "--no-demangle",
		"--debug-file-directory=/nonexistent")
	var in strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err))
	var all []string
	for _, block := range strings.Split(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		var b strings.Builder
		for i := 0; i+1 < len(lines); i += 2 {
			where := lines[i+1][:strings.LastIndexByte(lines[i+1], ':')] // the column
			colon := strings.LastIndexByte(where, ':')
			fmt.Fprintf(&b, "%s %s%s\n", lines[i], path.Clean(where[:colon]), where[colon:])
		}
		all = append(all, b.String())
	}
	qt.Assert(t, qt.HasLen(all, len(addrs)))
	return all
}

// textOf returns the addresses of all bytes of functions in a file.
func textOf(t testing.TB, file string) (addrs []uint64) {
	t.Helper()
	f, err := elf.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	symbols, err := f.Symbols()
	qt.Assert(t, qt.IsNil(err))
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			for a := s.Value; a < s.Value+s.Size; a++ {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

func TestInlined(t *testing.T) {
	for _, compiler := range []string{"g++", "clang-19"} {
		for _, flags := range []string{
			"-g -O2 -gdwarf-4", "-g -O2 -gdwarf-5", "-g -O1 -gdwarf-5", "-g -O0 -gdwarf-5", "-g -O2 -gdwarf-3",
			"-g -O3 -gdwarf-5 -ffunction-sections -Wl,--gc-sections",
			"-g -O2 -gdwarf-5 -gz=zlib", "-g -O2 -gdwarf-4 -gz=zlib-gnu", "-g -O2 -gdwarf-5 -flto",
			"-g -O2 -gdwarf-5 -gdwarf64",
			"-g -O2 -freorder-blocks-and-partition",
		} {
			if compiler != "g++" && (strings.Contains(flags, "zlib-gnu") || strings.Contains(flags, "lto") ||
				strings.Contains(flags, "partition")) {
				continue // clang and its linker here do not support it
			}
			if compiler != "g++" && strings.Contains(flags, "gdwarf64") {
				continue // debug/dwarf of Go 1.26 does not find strings by index (DW_FORM_strx) in 64-bit DWARF
			}
			t.Run(compiler+" "+flags, func(t *testing.T) {
				file := built(t, compiler, strings.Fields(flags)...)
				plain := file
				if strings.Contains(flags, "-gz=") { // llvm-symbolizer does not know the old form
					plain = file + ".plain"
					run(t, "", "objcopy", "--decompress-debug-sections", file, plain)
				}
				sameFrames(t, plain, file, "", "")
			})
		}
	}
}

// sameFrames compares the results for a stripped file with llvm-symbolizer's for an
// unstripped one.
func sameFrames(t *testing.T, file, stripped, root, path string) {
	t.Helper()
	n := mustNew(t, stripped, root, path)
	addrs := textOf(t, file)
	inlined, differ := 0, 0
	for i, want := range symbolized(t, file, addrs) {
		functions := n.At(addrs[i])
		got := frames(functions)
		inlined += len(functions) - 1
		if got != want {
			if differ++; differ <= 5 {
				t.Errorf("%#x:\n%swant\n%s", addrs[i], got, want)
			}
		}
	}
	t.Logf("%d addresses, %d inlined calls, %d differ", len(addrs), inlined, differ)
	qt.Check(t, qt.IsTrue(len(addrs) > 100))
}

// Names are built from scopes: GCC does not mangle file-local functions.
func TestScopes(t *testing.T) {
	n := mustNew(t, built(t, "g++", "-g", "-O2"), "", "")
	seen := map[string]bool{}
	for _, addr := range textOf(t, n.files[0].File().Name()) {
		for _, f := range n.At(addr) {
			seen[f.Name] = true
		}
	}
	for _, name := range []string{
		"sum", "sum::{lambda}", "shapes::(anonymous)::twice", "outer::Walker::step::Local::half", "shapes::square", "plain",
	} {
		qt.Check(t, qt.IsTrue(seen[name]), qt.Commentf("%s is not among %v", name, seen))
	}
}

// A Go program has DWARF 5, compressed, with other conventions than a C compiler's.
// Functions that start a thread have no lines, so no process reads them.
func TestStartFunctionsHaveNoLines(t *testing.T) {
	need(t, "gcc")
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "start.c"), []byte("int start_thread(void) { return 1; }\nint other(void) { return 2; }\n"), 0o600)))
	run(t, dir, "gcc", "-g", "-fPIC", "-shared", "-o", "lib.so", "start.c")
	file := filepath.Join(dir, "lib.so")
	e, n := mustOpen(t, file), mustNew(t, file, "", "")
	at := func(name string) []symbolize.Function { return n.At(mustLookup(t, e, name).Addr) }
	qt.Check(t, qt.DeepEquals(at("start_thread"), []symbolize.Function{{Name: "start_thread", Symbol: "start_thread"}}))
	qt.Check(t, qt.IsNil(n.dwarf.cmd))
	qt.Check(t, qt.Equals(at("other")[0].Line, 2))
}

func TestGoProgram(t *testing.T) {
	need(t, "llvm-symbolizer-19")
	file := filepath.Join(t.TempDir(), "program")
	run(t, ".", "go", "build", "-o", file, "ttmem/e2e/rig/cmd/rig")
	e := mustOpen(t, file)
	qt.Assert(t, qt.IsTrue(e.HasDebugInfo()))
	var addrs []uint64
	for _, s := range e.WithPrefix("main.") {
		for a := s.Addr; a < s.Addr+s.Size && len(addrs) < 20000; a++ {
			addrs = append(addrs, a)
		}
	}
	n := mustNew(t, file, "", "")
	differ := 0
	for i, want := range symbolized(t, file, addrs) {
		if got := frames(n.At(addrs[i])); got != want {
			if differ++; differ <= 5 {
				t.Errorf("%#x:\n%swant\n%s", addrs[i], got, want)
			}
		}
	}
	t.Logf("%d addresses, %d differ", len(addrs), differ)
}
