package symbolize_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
)

// A library without section headers has the exported functions and the stubs of the whole one, with each kind of hash table.
func TestDynamicSymbolsWithoutSections(t *testing.T) {
	const source = `
extern void called(void);
int first(void) { called(); return 1; }
int second(void) { called(); return first() + 1; }
`
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "lib.c"), []byte(source), 0o600)))
	for _, kind := range []string{"gnu", "sysv"} {
		tracetest.Compile(t, dir, "gcc", kind+".so", "-shared", "-fPIC", "-fplt", "-Wl,--hash-style="+kind, "lib.c")
		whole, err := os.ReadFile(filepath.Join(dir, kind+".so"))
		qt.Assert(t, qt.IsNil(err))
		open := func(b []byte) *symbolize.ELF {
			e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
			qt.Assert(t, qt.IsNil(err))
			return e
		}
		want, got := open(whole), open(tracetest.Unsectioned(whole))
		for _, name := range []string{"first", "second"} {
			a, _ := want.Lookup(name)
			b, ok := got.Lookup(name)
			qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s: %s", kind, name))
			qt.Check(t, qt.Equals(b, a))
		}
		stubs := want.PLTs("called", "first")
		qt.Check(t, qt.HasLen(stubs, 2))
		qt.Check(t, qt.DeepEquals(got.PLTs("called", "first"), stubs), qt.Commentf("%s", kind))
		qt.Check(t, qt.Equals(got.BuildID(), want.BuildID()))

		tracetest.Compile(t, dir, "gcc", kind, "-xc", "-Wl,-rpath,$ORIGIN:/opt", "/dev/null", "-xnone", "-nostdlib", "-Wl,--no-as-needed", kind+".so", "-shared")
		program, err := symbolize.Open(filepath.Join(dir, kind))
		qt.Assert(t, qt.IsNil(err))
		names, folders := program.Needed()
		program.Close()
		qt.Check(t, qt.DeepEquals(names, []string{kind + ".so"}))
		qt.Check(t, qt.Equals(folders, "$ORIGIN:/opt"))
	}
}

// Constants are found wherever they lie, if each ends where its text does.
func TestConstants(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "lib.c"), []byte(`const char text[] = "x\0one\0two";`), 0o600)))
	tracetest.Compile(t, dir, "gcc", "lib.so", "-shared", "-fPIC", "lib.c")
	whole, err := os.ReadFile(filepath.Join(dir, "lib.so"))
	qt.Assert(t, qt.IsNil(err))
	for _, b := range [][]byte{whole, tracetest.Unsectioned(whole)} {
		e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(e.HasConstants("one")))
		qt.Check(t, qt.IsTrue(e.HasConstants("one", "two")))
		qt.Check(t, qt.IsFalse(e.HasConstants("one", "three")))
		qt.Check(t, qt.IsFalse(e.HasConstants("on")))
	}
}
