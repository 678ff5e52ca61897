package symbolize

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/e2e/rig"
)

func mustNew(t testing.TB, b []byte) *ELF {
	t.Helper()
	e, err := New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	return e
}

func TestLookup(t *testing.T) {
	e := mustNew(t, sample().image())
	qt.Assert(t, qt.Equals(e.BuildID(), "deadbeef"))

	s, ok := e.Lookup("_ZN2tt8tt_metal6Buffer6createEv")
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.Equals(s, Symbol{"_ZN2tt8tt_metal6Buffer6createEv", textAddr, 0x20}))
	s, ok = e.Lookup("inner")
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.Equals(s.Addr, textAddr+8))
	for _, name := range []string{
		"", "inne", "inner2", "file.cpp", "__cxa_throw", "_ZN2tt8tt_metal6Buffer8declaredEv",
		"_ZN2tt8tt_metal6BufferD2Ev.cold", "_ZN2tt8tt_metal6Buffer6createEv$plt",
	} {
		_, ok := e.Lookup(name)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%q", name))
	}
}

func TestWithPrefix(t *testing.T) {
	e := mustNew(t, sample().image())
	names := func(prefix string) (names []string) {
		for _, s := range e.WithPrefix(prefix) {
			names = append(names, s.Name)
		}
		return names
	}
	// prefixes longer and shorter than the key of the index
	qt.Assert(t, qt.DeepEquals(names("_ZN2tt8tt_metal6BufferD"),
		[]string{"_ZN2tt8tt_metal6BufferD1Ev", "_ZN2tt8tt_metal6BufferD2Ev"}))
	qt.Assert(t, qt.DeepEquals(names("inn"), []string{"inner"}))
	// in both tables, but returned once
	qt.Assert(t, qt.DeepEquals(names("_ZN2tt8tt_metal6Buffer6create"), []string{"_ZN2tt8tt_metal6Buffer6createEv"}))
	qt.Assert(t, qt.HasLen(names("_ZN2tt8tt_metal6Buffer"), 4))
	qt.Assert(t, qt.HasLen(names("_ZN2tt8tt_metal6BufferX"), 0))
}

func TestAt(t *testing.T) {
	e := mustNew(t, sample().image())
	for _, test := range []struct {
		addr   uint64
		name   string
		offset uint64
	}{
		{textAddr, "_ZN2tt8tt_metal6Buffer6createEv", 0},
		{textAddr + 0x9, "inner", 1},
		{textAddr + 0x10, "_ZN2tt8tt_metal6Buffer6createEv", 0x10},
		{textAddr + 0x1f, "_ZN2tt8tt_metal6Buffer6createEv", 0x1f},
		{textAddr + 0x20, "_ZN2tt8tt_metal6BufferD1Ev", 0},
		{textAddr + 0x30, "", 0},
		{textAddr + 0x41, "_ZN2tt8tt_metal6BufferD2Ev.cold", 1},
		{stubsAddr + 0x20, "_ZN2tt8tt_metal6Buffer6createEv", 0},
		{textAddr - 1, "", 0},
		{0, "", 0},
		{1<<64 - 1, "", 0},
	} {
		s, offset, ok := e.At(test.addr)
		qt.Check(t, qt.Equals(ok, test.name != ""), qt.Commentf("%#x", test.addr))
		qt.Check(t, qt.Equals(s.Name, test.name))
		qt.Check(t, qt.Equals(offset, test.offset))
	}
}

func TestPLT(t *testing.T) {
	e := mustNew(t, sample().image())
	for name, want := range map[string]uint64{
		"__cxa_throw":                      stubsAddr + 0x20,
		"_ZN2tt8tt_metal6Buffer6createEv":  stubsAddr + 0x30,
		"__cxa_throw_bad_array_new_length": stubsAddr + 0x10,
	} {
		qt.Check(t, qt.DeepEquals(e.PLTs(name), map[string]uint64{name: want}))
		got, ok := e.PLTName(want)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(got, name))
	}
	qt.Check(t, qt.HasLen(e.PLTs("__cxa"), 0))
	name, ok := e.PLTName(stubsAddr + 0x40)
	qt.Check(t, qt.IsTrue(ok))
	qt.Check(t, qt.Equals(name, "__cxa_throw"))
	name, ok = e.Slot(slotsAddr + 8)
	qt.Check(t, qt.IsTrue(ok))
	qt.Check(t, qt.Equals(name, "__cxa_throw"))
	_, ok = e.Slot(slotsAddr + 0x18)
	qt.Check(t, qt.IsFalse(ok))
}

func TestSegments(t *testing.T) {
	f := sample()
	e := mustNew(t, f.image())
	offset, ok := e.FileOffset(textAddr)
	qt.Assert(t, qt.IsTrue(ok))
	qt.Assert(t, qt.Equals(offset, uint64(0x1000)))
	for _, addr := range []uint64{0xff0, 0x10fef, 0x12fef, 0x13000, 1<<64 - 1} {
		_, ok := e.FileOffset(addr)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%#x", addr))
	}

	b, err := e.Text(textAddr, len(f.text))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(b, f.text))
	b, err = e.Text(0x12fee, 100) // one byte is left
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(b, 1))
	_, err = e.Text(0x14000, 1)
	qt.Assert(t, qt.IsNotNil(err))
	b, err = e.Text(textAddr, -1)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(b, 0))
	qt.Assert(t, qt.HasLen(e.ProgramHeaders(), 2))
}

func TestBias(t *testing.T) {
	e := mustNew(t, sample().image())
	for _, test := range []struct {
		start, offset uint64
		ok            bool
	}{
		// The first page of the file is the end of the first segment and the
		// start of the second: both begin there.
		{0x7f0000000000 + 0x10000, 0, true},
		{0x7f0000000000 + 0x11000, 0x1000, true},
		{0x7f0000000000 + 0x12000, 0x2000, true},
		{0x7f0000000000, 0x3000, false},
		{0x7f0000000123, 0x1000, false}, // no mapping starts there
	} {
		bias, ok := e.Bias(test.start, test.offset)
		qt.Check(t, qt.Equals(ok, test.ok), qt.Commentf("%#x", test.offset))
		if ok {
			qt.Check(t, qt.Equals(bias, uint64(0x7f0000000000)), qt.Commentf("%#x", test.offset))
		}
	}
}

func mustLookup(t testing.TB, e *ELF, name string) Symbol {
	t.Helper()
	s, ok := e.Lookup(name)
	qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%s", name))
	return s
}

// sameSymbols compares the result with that of debug/elf.
func sameSymbols(t *testing.T, e *ELF, want *elf.File) {
	t.Helper()
	symbols, err := want.Symbols()
	qt.Assert(t, qt.IsNil(err))
	n := 0
	for i, s := range symbols {
		kind := elf.ST_TYPE(s.Info)
		if kind != elf.STT_FUNC && kind != elf.STT_OBJECT || s.Section == elf.SHN_UNDEF || pseudo(s.Name) || s.Name == "" {
			continue
		}
		if n++; i%97 != 0 { // all would take long
			continue
		}
		found := e.WithPrefix(s.Name)
		if !slices.Contains(found, Symbol{s.Name, s.Value, s.Size}) {
			t.Fatalf("%+v is not among %d", s, len(found))
		}
	}
	t.Logf("%d symbols", n)
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	_, err := Open(path)
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))
	_, err = Open(dir)
	qt.Assert(t, qt.ErrorMatches(err, ".*not a regular file"))

	whole := sample().image()
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte(strings.Repeat("#!/bin/sh\n", 20)), "headless": whole[1:], "head": whole[:63],
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))
		_, err := Open(path)
		qt.Check(t, qt.ErrorIs(err, ErrNotELF), qt.Commentf("%s", name))
	}
	for name, change := range map[string]func(b []byte){
		"32 bits":              func(b []byte) { b[elf.EI_CLASS] = 1 },
		"big endian":           func(b []byte) { b[elf.EI_DATA] = 2 },
		"arm":                  func(b []byte) { b[18] = byte(elf.EM_AARCH64) },
		"an object file":       func(b []byte) { b[16] = byte(elf.ET_REL) },
		"sections elsewhere":   func(b []byte) { binary.LittleEndian.PutUint64(b[40:], 1<<60) },
		"programs elsewhere":   func(b []byte) { binary.LittleEndian.PutUint64(b[32:], 1<<60) },
		"odd section headers":  func(b []byte) { b[58]++ },
		"odd program headers":  func(b []byte) { b[54]++ },
		"very many sections":   func(b []byte) { b[60], b[61] = 0xff, 0xff },
		"many program headers": func(b []byte) { b[56], b[57] = 0xff, 0xff },
	} {
		b := bytes.Clone(whole)
		change(b)
		_, err := New(bytes.NewReader(b), int64(len(b)))
		qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", name))
		qt.Check(t, qt.IsFalse(strings.Contains(err.Error(), "\n")))
	}
}

// use calls everything on a file.
func use(b []byte) {
	e, err := New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return
	}
	e.Lookup("_ZN2tt8tt_metal6Buffer6createEv")
	for _, s := range e.WithPrefix("_ZN2tt8tt_metal6Buffer") {
		e.FileOffset(s.Addr)
		e.Text(s.Addr, int(min(s.Size, 1<<20)))
		e.At(s.Addr)
	}
	e.WithPrefix("")
	e.At(textAddr)
	e.PLTs("__cxa_throw")
	e.PLTName(stubsAddr + 0x20)
	e.Slot(slotsAddr)
	e.Bias(0x7f0000001000, 0x1000)
	e.Close()
	e.Lookup("inner")
}

// TestExports: only what the file itself defines counts, by its whole name.
func TestExports(t *testing.T) {
	f := sample()
	e := mustNew(t, f.image())
	for name, want := range map[string]bool{
		"_ZN2tt8tt_metal6Buffer6createEv": true, "__cxa_throw_bad_array_new_length": true,
		"__cxa_throw": false, "_ZN2tt8tt_metal6Buffer6create": false, "inner": false, "": false,
	} {
		qt.Check(t, qt.Equals(e.Exports(name), want), qt.Commentf("%q", name))
	}
	qt.Check(t, qt.IsTrue(e.Exports("no such name", "_ZN2tt8tt_metal6Buffer6createEv")))
	for _, prefix := range []string{"_ZN2tt8tt_metal6Buffer6createEv", "_ZN2tt8tt_metal6Buffer6create", "inner", "inne", "__cxa_throw", "no such name"} {
		qt.Check(t, qt.Equals(e.Defines(prefix), len(e.WithPrefix(prefix)) > 0), qt.Commentf("%q", prefix))
	}
	qt.Check(t, qt.IsTrue(e.Defines("no such name", "inne")))
}

func TestTruncated(t *testing.T) {
	whole := sample().image()
	for n := range whole {
		use(whole[:n])
	}
}

// sparse is a file whose other bytes are all zero, and that takes no space.
type sparse []byte

func (s sparse) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(s)) {
		copy(b, s[at:])
	}
	return len(b), nil
}

// A sparse file may claim tables of any size: memory is taken for real ones only.
func TestSparseFile(t *testing.T) {
	for _, claim := range []uint64{maxNames, maxSymbols * symbolSize, 250 << 20, 1 << 36} {
		whole := sample().image()
		sections := binary.LittleEndian.Uint64(whole[40:])
		for i := range uint64(binary.LittleEndian.Uint16(whole[60:])) {
			binary.LittleEndian.PutUint64(whole[sections+i*sectionSize+32:], claim)
		}
		e, err := New(sparse(whole), 1<<38)
		qt.Assert(t, qt.IsNil(err))
		for name, c := range map[string]struct {
			use  func()
			most uint64 // MiB
		}{
			"names exported": {func() {
				e.Exports("_PyRuntime")
				e.Defines("_ZN2tt8tt_metal12GraphTracker14track_allocate")
			}, 1},
			"by name":    {func() { e.Lookup("inner") }, 90},
			"by address": {func() { e.At(textAddr) }, 50},
			"stubs":      {func() { e.PLTs("__cxa_throw"); e.Slot(slotsAddr) }, 120},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c.use()
			runtime.ReadMemStats(&after)
			took := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%s: %d MiB for %d MiB", name, took, claim>>20)
			qt.Check(t, qt.IsTrue(took <= c.most))
		}
	}
}

func TestHugeClaims(t *testing.T) {
	whole := sample().image()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	// make every word in the headers of sections and segments too large
	for at := headerSize; at+8 <= len(whole); at += 8 {
		if at == headerSize+2*programSize {
			at = len(whole) - len(whole)%8 - 12*sectionSize
		}
		for _, claim := range []uint64{1 << 63, 1<<64 - 1, 1 << 40, 1 << 31, uint64(len(whole))} {
			b := bytes.Clone(whole)
			binary.LittleEndian.PutUint64(b[at:], claim)
			use(b)
		}
	}
	runtime.ReadMemStats(&after)
	t.Logf("%v, %d MiB allocated", time.Since(start), (after.TotalAlloc-before.TotalAlloc)>>20)
	qt.Assert(t, qt.IsTrue(after.TotalAlloc-before.TotalAlloc < 4<<30))
}

func FuzzOpen(f *testing.F) {
	f.Add(sample().image())
	stripped := sample()
	stripped.symtab = nil
	f.Add(stripped.image())
	f.Add((&testFile{text: []byte{0xc3}}).image())
	f.Add([]byte(elf.ELFMAG))
	whole := sample().image()
	sections := binary.LittleEndian.Uint64(whole[40:])
	for i := range uint64(binary.LittleEndian.Uint16(whole[60:])) { // one claims to be huge
		b := bytes.Clone(whole)
		binary.LittleEndian.PutUint64(b[sections+i*sectionSize+0x20:], 1<<40)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzztest.Bounded(t, len(b), 1000, func() { use(b) })
	})
}

// TestLibrary compares real libraries with debug/elf.
func TestLibrary(t *testing.T) {
	for _, release := range []string{"0.64.5", "0.81.1"} {
		t.Run(release, func(t *testing.T) {
			path, err := rig.Library(context.Background(), release)
			qt.Assert(t, qt.IsNil(err))
			start := time.Now()
			e, err := Open(path)
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			mustLookup(t, e, "_ZNK2tt8tt_metal6Buffer7addressEv")
			t.Logf("first name in %v", time.Since(start))
			start = time.Now()
			_, _, ok := e.At(mustLookup(t, e, "_ZNK2tt8tt_metal6Buffer7addressEv").Addr + 1)
			qt.Assert(t, qt.IsTrue(ok))
			t.Logf("first address in %v", time.Since(start))
			addr, ok := e.PLTs("__cxa_throw")["__cxa_throw"]
			qt.Assert(t, qt.IsTrue(ok))
			if s, _, ok := e.At(addr); ok { // where the stub has a symbol
				qt.Check(t, qt.Equals(s.Name, "__cxa_throw"))
			}
			want, err := elf.Open(path)
			qt.Assert(t, qt.IsNil(err))
			defer want.Close()
			sameSymbols(t, e, want)
		})
	}
}

func BenchmarkFirstLookup(b *testing.B) {
	path, err := rig.Library(context.Background(), "0.81.1")
	qt.Assert(b, qt.IsNil(err))
	b.ReportAllocs()
	for b.Loop() {
		e, err := Open(path)
		qt.Assert(b, qt.IsNil(err))
		mustLookup(b, e, "_ZNK2tt8tt_metal6Buffer7addressEv")
		e.Close()
	}
}
