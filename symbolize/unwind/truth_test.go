package unwind

import (
	"bufio"
	"cmp"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
)

// function is a tool's output for an FDE.
type function struct {
	span
	rows []at // by address
}

// What a tool may leave open.
const (
	someExpression CFA    = 100 // an expression that the tool does not print
	sameOrLost     BPRule = 100
)

// matches reports whether a rule agrees with a tool's output.
func matches(got, want Rule) bool {
	if want.CFA == someExpression {
		return slices.Contains([]CFA{DerefSP, DerefBP, PLT, Signal, Unsupported}, got.CFA)
	}
	if want.BP == sameOrLost && (got.BP == Same || got.BP == Lost) {
		want.BP = got.BP
	}
	return got == want
}

// runTool passes the lines of a tool's output to line.
func runTool(t *testing.T, line func(string), name string, args ...string) {
	t.Helper()
	tool, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is missing", name)
	}
	cmd := exec.Command(tool, args...)
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line(scanner.Text())
	}
	qt.Assert(t, qt.IsNil(scanner.Err()))
	qt.Assert(t, qt.IsNil(cmd.Wait()))
}

func hex(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	qt.Assert(t, qt.IsNil(err))
	return n
}

// offsetOf parses the number after a prefix in a word: 16 in c-16 after "c".
func offsetOf(s, prefix string) (int64, bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return 0, false
	}
	if rest == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil
}

// mustBuild builds the table of a real file.
func mustBuild(t testing.TB, path string) *Table {
	t.Helper()
	e, err := symbolize.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	table, err := Build(e, nil)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", path))
	return table
}

// compare checks a file's table at both ends of every row of a tool, and of the gaps
// between them.
func compare(t *testing.T, path string, functions []function) {
	t.Helper()
	file, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	functions = slices.DeleteFunc(functions, func(f function) bool {
		return f.start == f.end || !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool {
			return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && f.start >= p.Vaddr && f.end <= p.Vaddr+p.Filesz
		})
	})
	slices.SortStableFunc(functions, func(a, b function) int { return cmp.Compare(a.start, b.start) })
	functions = slices.CompactFunc(functions, func(a, b function) bool { return a.start == b.start })
	table := mustBuild(t, path)
	checkTable(t, table)
	wrong, results := 0, map[CFA]int{} // results, by kind of CFA
	check := func(addr uint64, want Rule) {
		got := table.Find(addr)
		results[got.CFA]++
		if !matches(got, want) {
			if wrong++; wrong <= 10 {
				t.Errorf("%#x: %+v, not %+v", addr, got, want)
			}
		}
	}
	overlaps := 0
	for i, f := range functions {
		if i+1 < len(functions) {
			next := functions[i+1].start
			if f.end < next {
				check(f.end, Rule{})
				check(next-1, Rule{})
			} else if f.end > next {
				overlaps++
				f.end = next
			}
		}
		for n, r := range f.rows {
			last := f.end
			if n+1 < len(f.rows) {
				last = min(last, f.rows[n+1].offset)
			}
			if r.offset >= last { // empty, or cut by another FDE
				continue
			}
			check(r.offset, r.rule)
			check(min(r.offset+1, last-1), r.rule)
			check(last-1, r.rule)
		}
	}
	qt.Assert(t, qt.IsTrue(len(functions) > 0))
	check(functions[0].start-1, Rule{})
	check(functions[len(functions)-1].end, Rule{})
	t.Logf("%d functions, %d of them cut, addresses by CFA: %v", len(functions), overlaps, results)
	if wrong > 0 {
		t.Errorf("%d addresses are wrong", wrong)
	}
}

// TestTruth compares tables of real files with readelf and llvm-dwarfdump.
func TestTruth(t *testing.T) {
	for _, path := range realFiles(t) {
		name := filepath.Base(path)
		t.Run(name+"/readelf", func(t *testing.T) { compare(t, path, readelf(t, path)) })
		if !strings.Contains(name, "tt") { // ttnn's have no expressions that readelf leaves open, but many rows
			t.Run(name+"/llvm-dwarfdump", func(t *testing.T) { compare(t, path, dwarfdump(t, path)) })
		}
	}
}

// realFiles are the system libraries that a process with ttnn maps, as far as they exist,
// and ttnn's own.
func realFiles(t testing.TB) (paths []string) {
	if runtime.GOARCH != "amd64" {
		t.Skip("no libraries for x86-64 on " + runtime.GOARCH)
	}
	for _, path := range []string{
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
		libpython(),
	} {
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	for _, release := range []string{"0.76.0", rig.DefaultVersion} {
		if !tracetest.Tests(release) {
			continue
		}
		library, err := rig.Library(context.Background(), release)
		qt.Assert(t, qt.IsNil(err))
		paths = append(paths, library)
		if other := filepath.Join(filepath.Dir(library), "_ttnncpp.so"); other != library {
			if _, err := os.Stat(other); err == nil {
				paths = append(paths, other)
			}
		}
	}
	return paths
}

// libpython is the path of the library of the first Python in PATH; "" if it does not
// exist.
func libpython() string {
	const program = `import sysconfig as s; print(s.get_config_var("LIBDIR"), s.get_config_var("INSTSONAME"), sep="/")`
	out, _ := exec.Command("python3", "-c", program).Output()
	return strings.TrimSpace(string(out))
}

// TestOwn builds the table of this program: Go's own linker writes no .eh_frame.
func TestOwn(t *testing.T) {
	path, err := os.Executable()
	qt.Assert(t, qt.IsNil(err))
	file, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	if file.Section(".eh_frame") != nil { // with cgo
		compare(t, path, readelf(t, path))
		return
	}
	e, err := symbolize.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	_, err = Build(e, nil)
	qt.Assert(t, qt.ErrorIs(err, ErrNoRows))
}

// BenchmarkBuild builds the most expensive tables of a process with ttnn.
func BenchmarkBuild(b *testing.B) {
	for _, path := range realFiles(b) {
		b.Run(filepath.Base(path), func(b *testing.B) {
			e, err := symbolize.Open(path)
			qt.Assert(b, qt.IsNil(err))
			defer e.Close()
			b.ReportAllocs()
			var table *Table
			for b.Loop() {
				table, err = Build(e, nil)
				qt.Assert(b, qt.IsNil(err))
			}
			b.ReportMetric(float64(len(table.Rows)), "rows")
		})
	}
}
