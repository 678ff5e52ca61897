package symbolize

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
)

// seeds are small libraries of the program in lines/lines_test.go, made with
// -nostdlib -O2 by GCC 12 and clang 19.
func seeds(t testing.TB) (all [][]byte) {
	t.Helper()
	files, err := filepath.Glob("lines/testdata/dwarf/*.so")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(files, 3))
	for _, name := range files {
		b, err := os.ReadFile(name)
		qt.Assert(t, qt.IsNil(err))
		all = append(all, b)
	}
	return all
}

// resolve resolves the functions at some addresses of a file.
func resolve(b []byte) (known int) {
	e, err := New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0
	}
	defer e.Close()
	addrs := []uint64{textAddr, stubsAddr + 0x20, 1<<64 - 1}
	for i, p := range e.ProgramHeaders() {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && i < 8 {
			for k := range uint64(16) {
				addrs = append(addrs, p.Vaddr+p.Memsz/16*k)
			}
		}
	}
	for _, f := range e.WithPrefix("") {
		if len(addrs) < 40 {
			addrs = append(addrs, f.Addr+f.Size/2)
		}
	}
	for _, a := range addrs {
		if len(functionsAt(e, a)) > 0 {
			known++
		}
	}
	return known
}

func FuzzNames(f *testing.F) {
	f.Add(sample().image())
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzztest.Bounded(t, len(b), 1000, func() { resolve(b) })
	})
}
