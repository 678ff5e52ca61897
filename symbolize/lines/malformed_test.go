package lines

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/symbolize"
)

// seeds are small libraries of the program in lines_test.go, made with
// -nostdlib -O2 by GCC 12 and clang 19.
func seeds(t testing.TB) (files []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/dwarf/*.so")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(files, 3))
	return files
}

// resolve resolves the functions at some addresses of a file.
func resolve(t testing.TB, b []byte) (known int) {
	t.Helper()
	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0
	}
	path := filepath.Join(t.TempDir(), "lib.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))
	n := mustNew(t, path, "", "")
	defer n.Close()
	var addrs []uint64
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
		if len(n.At(a)) > 0 {
			known++
		}
	}
	return known
}

func TestSeeds(t *testing.T) {
	for _, file := range seeds(t) {
		n := mustNew(t, file, "", "")
		s := mustLookup(t, n.files[0], "_Z4sinki")
		functions := n.At(s.Addr + s.Size - 1)
		qt.Assert(t, qt.IsTrue(len(functions) > 0))
		last := functions[len(functions)-1]
		qt.Check(t, qt.Equals(last.Name, "sink"))
		qt.Check(t, qt.Equals(last.File, "/src/sink.cpp"))
		qt.Check(t, qt.IsTrue(last.Line > 4 && last.Line < 10))
		b, err := os.ReadFile(file)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(resolve(t, b) > 5))
	}
}

// TestMalformed puts large numbers into the debug sections, and truncates files. Names must
// arrive; lines may be missing.
func TestMalformed(t *testing.T) {
	files := 0
	for _, file := range seeds(t) {
		whole, err := os.ReadFile(file)
		qt.Assert(t, qt.IsNil(err))
		e, err := elf.NewFile(bytes.NewReader(whole))
		qt.Assert(t, qt.IsNil(err))
		for _, s := range e.Sections {
			if !strings.Contains(s.Name, "debug_") {
				continue
			}
			for at := s.Offset; at+8 <= s.Offset+s.FileSize; at += 1 + s.FileSize/5 {
				for _, claim := range []uint64{1<<64 - 1, 1 << 31, 0x8080808080808080} {
					b := bytes.Clone(whole)
					binary.LittleEndian.PutUint64(b[at:], claim)
					fuzztest.Ends("reading "+s.Name, func() { qt.Check(t, qt.IsTrue(resolve(t, b) > 5)) })
					files++
				}
			}
		}
		for n := 0; n < len(whole); n += 997 {
			resolve(t, whole[:n])
		}
	}
	t.Logf("%d files", files)
}

// The header of a line table claims 2³⁶ files, which debug/dwarf allocates before it reads
// one. Only the reader process ends.
func TestHugeLineTable(t *testing.T) {
	whole, err := os.ReadFile("testdata/dwarf/gcc5.so")
	qt.Assert(t, qt.IsNil(err))
	e, err := elf.NewFile(bytes.NewReader(whole))
	qt.Assert(t, qt.IsNil(err))
	s := e.Section(".debug_line")
	line, err := s.Data()
	qt.Assert(t, qt.IsNil(err))
	// the header: length, version, sizes, length of the rest, six bytes, the lengths of
	// twelve opcodes, the format of directories (a count, then pairs), and their number
	at := 4 + 2 + 2 + 4 + 6 + 12
	at += 1 + 2*int(line[at])
	copy(line[at:], []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x02})
	b := bytes.Clone(whole)
	copy(b[s.Offset:], line)
	path := filepath.Join(t.TempDir(), "lib.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))

	n := mustNew(t, path, "", "")
	run := mustLookup(t, n.files[0], "_Z3runi")
	for range 2 {
		got := n.At(run.Addr)
		qt.Assert(t, qt.DeepEquals(got, []symbolize.Function{{Name: "run", Symbol: "_Z3runi"}}))
		qt.Assert(t, qt.ErrorIs(n.Err(), errMalformed))
	}
}
