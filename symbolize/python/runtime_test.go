package python

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/e2e/rig"
	"ttmem/symbolize"
	"ttmem/symbolize/unwind"
)

func TestFindInImages(t *testing.T) {
	check := func(f *image, minor int, free bool) {
		e := f.open(t)
		r, err := Find(e)
		qt.Assert(t, qt.IsNil(err))
		v, err := findVersion(e)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(v, version{minor: minor, text: fmt.Sprintf("3.%d.4", minor)}))
		qt.Assert(t, qt.DeepEquals(r, &Runtime{
			Minor: minor, FreeThreaded: free, Runtime: imageRuntime, Key: layouts[minor].key,
			Eval:     []Range{{imageEval, imageEval + 0x80}, {imageCold, imageColdEnd}},
			CodeType: imageType, CodeDealloc: imageDealloc, Offsets: offsetsOf(minor, free), Heap: heapOf(minor),
		}))
	}
	for minor := 11; minor <= 14; minor++ {
		for _, relocated := range []bool{false, true} {
			f := goodImage(minor)
			f.relocated = relocated
			check(f, minor, false)
		}
	}
	check(freeImage(13), 13, true)
	check(freeImage(14), 14, true)
}

func TestFindRefuses(t *testing.T) {
	debug := func(at int, v uint64) func(*image) {
		return func(f *image) { binary.LittleEndian.PutUint64(f.debug[at:], v) }
	}
	for _, test := range []struct {
		name   string
		change func(*image)
		want   string
	}{
		{"no Python", func(f *image) { f.without = "_PyRuntime" }, "no Python interpreter"},
		{"uses the runtime of another file", func(f *image) { f.without = "_PyEval_EvalFrameDefault" }, "no Python interpreter"},
		{"too new", func(f *image) { f.version = 0x030f01f0 }, "CPython 3.15.1: only .* are supported"},
		{"too old", func(f *image) { f.version = 0x030900f0 }, "CPython 3.9.0: only .* are supported"},
		{"beta", func(f *image) { f.version = 0x030d00b2 }, "CPython 3.13.0b2: only .* are supported"},
		{"other Python", func(f *image) { f.version = 0x04000000 }, "a Python of version 0x4000000: unknown"},
		{"bad level", func(f *image) { f.version = 0x030d0000 }, "a Python of version 0x30d0000: unknown"},
		{"no version", func(f *image) { f.without = "Py_Version" }, "a CPython before 3.10: only .* are supported"},
		{"debug build", func(f *image) { f.with = "_Py_NegativeRefcount" }, "CPython 3.13.4: a debug build: not supported"},
		{"old debug build", func(f *image) { f.with = "_Py_RefTotal" }, "CPython 3.13.4: a debug build: not supported"},
		{"free-threaded, with the objects of others", debug(16, 1), "CPython 3.13.4: debug offsets: object type at 8, not at 24: unknown layout"},
		{"objects that begin with more", debug(360, 16), "CPython 3.13.4: debug offsets: object type at 16, not at 8: unknown layout"},
		{"no debug offsets", debug(0, 0), "CPython 3.13.4: _PyRuntime does not begin with its debug offsets"},
		{"debug offsets of another version", debug(8, 0x030e00f0), "CPython 3.13.4: debug offsets of version 0x30e00f0"},
		{"offset outside of its structure", debug(248, 88), "CPython 3.13.4: debug offsets: frame instruction at 88 of a structure of 88 bytes: impossible"},
		{"offset that is not aligned", debug(232, 9), "CPython 3.13.4: debug offsets: frame previous at 9 .*"},
		{"huge offset", debug(184, 1<<63), "CPython 3.13.4: debug offsets: thread frame .*"},
		{"str without room", debug(560, 64), "CPython 3.13.4: debug offsets: a str object of 64 bytes in one of 64: impossible"},
		{"no thread states", func(f *image) { f.without = "PyGILState_GetThisThreadState" }, "CPython 3.13.4: no symbol PyGILState_GetThisThreadState"},
		{"unknown layout", func(f *image) { f.version, f.key = 0x030c01f0, 1552 }, "CPython 3.12.1: autoTSSkey is at one of \\[1552\\] in _PyRuntime, not at 1544: unknown layout"},
		{"no code objects", func(f *image) { f.without = "PyCode_Type" }, "CPython 3.13.4: no symbol PyCode_Type"},
		{"tp_dealloc is no code", func(f *image) { f.dealloc = imageType }, "CPython 3.13.4: tp_dealloc of PyCode_Type, 0x4a0, is not code"},
		{"tp_dealloc is inside of a function", func(f *image) { f.dealloc++ }, "CPython 3.13.4: tp_dealloc of PyCode_Type, 0x601, is not the start of a function"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := goodImage(13)
			test.change(f)
			_, err := Find(f.open(t))
			qt.Assert(t, qt.ErrorMatches(err, test.want))
			qt.Assert(t, qt.Equals(err == ErrNotPython, strings.HasPrefix(test.want, "no Python")))
		})
	}
}

func TestFindUsesDebugOffsets(t *testing.T) {
	f := goodImage(13)
	f.key = 2168 // as a newer release might
	binary.LittleEndian.PutUint64(f.debug[184:], 80)
	binary.LittleEndian.PutUint64(f.debug[264:], 71)
	r, err := Find(f.open(t))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(r.Key, 2168))
	qt.Assert(t, qt.Equals(r.Offsets.ThreadFrame, 80))
	qt.Assert(t, qt.Equals(r.Offsets.FrameMarker, 71))
}

func TestFindInInterpreters(t *testing.T) {
	for _, p := range interpreters(t) {
		t.Run(p.Name, func(t *testing.T) {
			path := p.file(t)
			e := mustOpen(t, path)
			r, err := Find(e)
			qt.Assert(t, qt.IsNil(err))
			v, err := findVersion(e)
			qt.Assert(t, qt.IsNil(err))
			checkOffsets(t, r)
			if v.minor > 10 {
				qt.Assert(t, qt.Equals(v.text, p.Version))
			} else {
				qt.Assert(t, qt.IsTrue(strings.HasPrefix(p.Version, v.text+".")))
			}
			compareSymbols(t, path, r)

			stripped := filepath.Join(t.TempDir(), "stripped")
			if out, err := exec.Command("strip", "-s", "-o", stripped, path).CombinedOutput(); err != nil {
				t.Skipf("cannot strip: %v: %s", err, out)
			}
			s, err := Find(mustOpen(t, stripped))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.DeepEquals(s, r))
		})
	}
}

// checkOffsets checks that those of an interpreter are those that were found by hand.
func checkOffsets(t *testing.T, r *Runtime) {
	t.Helper()
	qt.Check(t, qt.DeepEquals(r.Offsets, offsetsOf(r.Minor, r.FreeThreaded)))
	if !r.FreeThreaded {
		qt.Check(t, qt.DeepEquals(r.Heap, heapOf(r.Minor)))
	}
}

func TestOffsetsOfDebiansPythons(t *testing.T) {
	for suite, version := range map[string]string{"trixie": "3.13", "forky": "3.14"} {
		p, err := rig.DebianPython(t.Context(), suite, version)
		qt.Assert(t, qt.IsNil(err))
		r, err := Find(mustOpen(t, filepath.Join(filepath.Dir(p.Exe), "usr", "bin", "python"+version)))
		qt.Assert(t, qt.IsNil(err))
		checkOffsets(t, r)
	}
}

// compareSymbols compares the result with the symbols of a file, if it has them all.
func compareSymbols(t *testing.T, path string, r *Runtime) {
	f, err := elf.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Log("stripped: ", err)
		return
	}
	found := slices.Clone(r.Eval)
	for _, s := range symbols {
		at := Range{s.Value, s.Value + s.Size}
		switch {
		case s.Name == "code_dealloc":
			qt.Check(t, qt.Equals(r.CodeDealloc, s.Value))
		case s.Name == evalName:
			qt.Check(t, qt.Equals(r.Eval[0], at))
		case strings.HasPrefix(s.Name, evalName+"."):
			// Compilers keep a few bytes of unreachable code, for what the program says
			// cannot happen.
			if !slices.Contains(r.Eval, at) && s.Size > 16 {
				t.Errorf("%s at %#x was not found", s.Name, at)
			}
		default:
			continue
		}
		found = slices.DeleteFunc(found, func(r Range) bool { return r == at })
	}
	qt.Check(t, qt.HasLen(found, 0), qt.Commentf("no symbols of the function for these"))
}

func TestFindRefusesOtherPythons(t *testing.T) {
	out, err := exec.Command("pyenv", "root").Output()
	if err != nil {
		t.Skip("no pyenv: ", err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "versions", "3.[789].*", "lib", "libpython3.*.so.1.0"))
	if len(files) == 0 {
		t.Skip("pyenv has no old Python with a library")
	}
	for _, path := range files {
		_, err := Find(mustOpen(t, path))
		qt.Check(t, qt.ErrorMatches(err, "a CPython before 3.10: only 3.10 to 3.14 are supported"))
	}
}

// evalC is a function with a part that the compiler splits off, and everything else that
// Find needs; the function's jumps elsewhere do not count.
const evalC = `
extern void rare(long) __attribute__((cold));
void rare(long x) { __asm__ volatile("" :: "r"(x)); }
long other(const long *p, long n) { __asm__ volatile("" ::: "memory"); return n ? p[n] : 0; }
long _PyEval_EvalFrameDefault(const long *p, long n) {
	long sum = 0;
	for (long i = 0; i < n; i++) {
		if (__builtin_expect(p[i] < 0, 0)) { rare(i); sum ^= p[i]; rare(sum); continue; }
		sum += p[i];
		__asm__ volatile("vzeroupper" : "+r"(sum));
	}
	if (sum == 7) return other(p + 1, sum);
	return sum;
}
`

func TestFindSplitParts(t *testing.T) {
	dir := t.TempDir()
	source, lib, stripped := filepath.Join(dir, "eval.c"), filepath.Join(dir, "eval.so"), filepath.Join(dir, "stripped.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(evalC), 0o600)))
	out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-fno-inline", "-freorder-blocks-and-partition", "-o", lib, source).CombinedOutput()
	if err != nil {
		t.Skipf("cannot compile: %v: %s", err, out)
	}
	if out, err := exec.Command("strip", "-s", "-o", stripped, lib).CombinedOutput(); err != nil {
		t.Skipf("cannot strip: %v: %s", err, out)
	}
	want := []Range{}
	f, err := elf.Open(lib)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	symbols, err := f.Symbols()
	qt.Assert(t, qt.IsNil(err))
	for _, name := range []string{evalName, evalName + ".cold"} {
		for _, s := range symbols {
			if s.Name == name {
				want = append(want, Range{s.Value, s.Value + s.Size})
			}
		}
	}
	if len(want) != 2 {
		t.Skip("the compiler did not split the function")
	}
	for _, path := range []string{lib, stripped} {
		e := mustOpen(t, path)
		got, err := findEval(e, unwind.ReadFunctions(e))
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.DeepEquals(got, want))
	}
}

func TestThreads(t *testing.T) {
	path := ""
	maps, err := os.ReadFile("/proc/self/maps")
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) > 5 && filepath.Base(fields[5]) == "libc.so.6" {
			path = fields[5]
		}
	}
	if path == "" {
		for _, p := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
			if _, err := os.Stat(p); err == nil {
				path = p
			}
		}
	}
	if path == "" {
		t.Skip("no libc.so.6: not a system of glibc")
	}
	p, err := Threads(mustOpen(t, path))
	qt.Assert(t, qt.IsNil(err))
	// These have been stable for long, but Specific may change with a release.
	qt.Check(t, qt.Equals(p.Level2Size, 32))
	qt.Check(t, qt.Equals(p.KeySize, 16))
	qt.Check(t, qt.Equals(p.KeyData, 8))
	qt.Check(t, qt.IsTrue(p.Specific > 0 && p.Specific%8 == 0))

	_, err = Threads(goodImage(13).open(t))
	qt.Assert(t, qt.ErrorMatches(err, "a C library without _thread_db_pthread_specific: .*"))
}

func BenchmarkFindInOtherFiles(b *testing.B) {
	f := goodImage(13)
	f.without = "_PyRuntime"
	e := f.open(b)
	for b.Loop() {
		Find(e)
	}
}

func FuzzFind(f *testing.F) {
	for minor := 11; minor <= 14; minor++ {
		f.Add(goodImage(minor).bytes())
	}
	f.Add(freeImage(14).bytes())
	i := goodImage(13)
	i.relocated = false
	f.Add(i.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		var r *Runtime
		fuzztest.Bounded(t, len(b), 1000, func() {
			Threads(e)
			r, err = Find(e)
		})
		if err != nil {
			return
		}
		for _, part := range r.Eval {
			if part.Start >= part.End {
				t.Fatalf("%#x", part)
			}
		}
		if r.Offsets.FrameCode > maxFrameSize {
			t.Fatal(r.Offsets.FrameCode)
		}
	})
}
