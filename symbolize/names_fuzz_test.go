package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// seeds are small libraries of the program in dwarf_test.go, made with
// -nostdlib -O2 by GCC 12 and clang 19.
func seeds(t testing.TB) (all [][]byte) {
	t.Helper()
	files, err := filepath.Glob("testdata/dwarf/*.so")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(files, 3))
	for _, name := range files {
		b, err := os.ReadFile(name)
		qt.Assert(t, qt.IsNil(err))
		all = append(all, b)
	}
	return all
}

// resolve asks for the functions at some addresses of a file.
func resolve(b []byte) (known int) {
	e, err := New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0
	}
	defer e.Close()
	n := NewNames(e, &NamesOptions{Path: "/opt/lib.so"})
	defer n.Close()
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
		if len(n.At(a)) > 0 {
			known++
		}
	}
	return known
}

func TestSeeds(t *testing.T) {
	for _, b := range seeds(t) {
		e := mustNew(t, b)
		n := NewNames(e, nil)
		defer n.Close()
		s := mustLookup(t, e, "_Z4sinki")
		functions := n.At(s.Addr + s.Size - 1)
		qt.Assert(t, qt.IsTrue(len(functions) > 0))
		last := functions[len(functions)-1]
		qt.Check(t, qt.Equals(last.Name, "sink"))
		qt.Check(t, qt.Equals(last.File, "/src/sink.cpp"))
		qt.Check(t, qt.IsTrue(last.Line > 4 && last.Line < 10))
		qt.Check(t, qt.IsTrue(resolve(b) > 5))
	}
}

func TestTruncatedDebugInfo(t *testing.T) {
	for _, b := range seeds(t) {
		for n := 0; n < len(b); n += 61 {
			resolve(b[:n])
		}
	}
	qt.Assert(t, qt.Equals(inflated.Load(), 0))
}

// TestHugeClaimsInDebugInfo puts large numbers in the place of each word of the
// sections that hold debug information.
func TestHugeClaimsInDebugInfo(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	slowest := time.Duration(0)
	for _, whole := range seeds(t) {
		e := mustNew(t, whole)
		for _, s := range e.debug {
			for at := s.offset; at+8 <= s.offset+s.size; at += 1 + s.size/41 {
				for _, claim := range []uint64{1<<64 - 1, 1 << 63, 1 << 31, 0x00ffffff, 0x8080808080808080} {
					b := bytes.Clone(whole)
					binary.LittleEndian.PutUint64(b[at:], claim)
					begin := time.Now()
					resolve(b)
					slowest = max(slowest, time.Since(begin))
				}
			}
		}
	}
	runtime.ReadMemStats(&after)
	t.Logf("%v, slowest %v, %d MB allocated in all", time.Since(start), slowest, (after.TotalAlloc-before.TotalAlloc)>>20)
	qt.Assert(t, qt.IsTrue(slowest < 10*time.Second))
	qt.Assert(t, qt.Equals(inflated.Load(), 0))
}

func FuzzNames(f *testing.F) {
	f.Add(sample().image())
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		stop := time.AfterFunc(30*time.Second, func() { panic("too slow") })
		defer stop.Stop()
		resolve(b)
		qt.Assert(t, qt.Equals(inflated.Load(), 0))
	})
}
