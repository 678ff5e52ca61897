package symbolize

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

func mustOpen(t testing.TB, path string) *ELF {
	t.Helper()
	e, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { e.Close() })
	return e
}

func TestNames(t *testing.T) {
	e := mustNew(t, sample().image())
	for _, test := range []struct {
		addr         uint64
		name, symbol string
	}{
		{textAddr, "tt::tt_metal::Buffer::create", "_ZN2tt8tt_metal6Buffer6createEv"},
		{textAddr + 0x9, "inner", "inner"},
		{textAddr + 0x1f, "tt::tt_metal::Buffer::create", "_ZN2tt8tt_metal6Buffer6createEv"},
		{textAddr + 0x41, "tt::tt_metal::Buffer::~Buffer", "_ZN2tt8tt_metal6BufferD2Ev.cold"},
		{stubsAddr + 0x20, "__cxa_throw@plt", "__cxa_throw@plt"},
		{stubsAddr + 0x2f, "__cxa_throw@plt", "__cxa_throw@plt"},
		{stubsAddr + 0x38, "tt::tt_metal::Buffer::create@plt", "_ZN2tt8tt_metal6Buffer6createEv@plt"},
	} {
		qt.Check(t, qt.DeepEquals(functionsAt(e, test.addr), []Function{{Name: test.name, Symbol: test.symbol}}),
			qt.Commentf("%#x", test.addr))
	}
	for _, addr := range []uint64{0, textAddr - 1, textAddr + 0x30, stubsAddr, 1<<64 - 1} {
		qt.Check(t, qt.HasLen(functionsAt(e, addr), 0), qt.Commentf("%#x", addr))
	}
}

// functionsAt returns the function at an address, if there is one.
func functionsAt(e *ELF, addr uint64) []Function {
	if f, ok := e.Function(addr); ok {
		return []Function{f}
	}
	return nil
}

// A function may have several names: .symtab lists local ones first.
func TestAliases(t *testing.T) {
	const local, global, weak = elf.STB_LOCAL, elf.STB_GLOBAL, elf.STB_WEAK
	type alias struct {
		name string
		bind elf.SymBind
	}
	symbols := func(list []alias) (all []testSymbol) {
		for _, a := range list {
			all = append(all, testSymbol{a.name, textAddr + 0x60, 0x10, elf.STT_FUNC, true})
		}
		return all
	}
	bind := func(image []byte, table Section, list []alias) {
		for i, a := range list {
			image[table.Offset+uint64(i+1)*symbolSize+4] = elf.ST_INFO(a.bind, elf.STT_FUNC)
		}
	}
	for _, test := range []struct {
		symtab, dynsym []alias
		want           string
	}{
		{[]alias{{"local", local}, {"weak", weak}, {"global", global}}, nil, "global"},
		{[]alias{{"weak", weak}, {"local", local}}, nil, "local"},
		{[]alias{{"weak", weak}, {"weak2", weak}}, nil, "weak"},
		{[]alias{{"local", local}}, []alias{{"global", global}}, "global"},
		{nil, []alias{{"weak", weak}, {"unique", stbUnique}, {"second", global}}, "unique"},
	} {
		image := (&testFile{symtab: symbols(test.symtab), dynsym: symbols(test.dynsym)}).image()
		e := mustNew(t, image)
		bind(image, e.symbols[tableSymtab], test.symtab)
		bind(image, e.symbols[tableDynsym], test.dynsym)
		qt.Check(t, qt.DeepEquals(functionsAt(e, textAddr+0x68), []Function{{Name: test.want, Symbol: test.want}}))
	}
}

// ttnn returns the libraries of a release.
func ttnn(t testing.TB) []string {
	t.Helper()
	path, err := rig.Library(context.Background(), "0.81.1")
	qt.Assert(t, qt.IsNil(err))
	lib := filepath.Dir(path)
	all, err := filepath.Glob(filepath.Join(lib, "*.so"))
	qt.Assert(t, qt.IsNil(err))
	top, err := filepath.Glob(filepath.Join(lib, "../../_ttnn*.so"))
	qt.Assert(t, qt.IsNil(err))
	return append(all, top...)
}

// TestNamesOfTTNN compares names of random functions in the real libraries with their
// symbol tables.
func TestNamesOfTTNN(t *testing.T) {
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rss := resident(t)
	r := rand.New(rand.NewPCG(1, 2))
	var open []*ELF
	for _, path := range ttnn(t) {
		e := mustOpen(t, path)
		open = append(open, e)
		start := time.Now()
		e.Function(1 << 20)
		first := time.Since(start)
		var funcs []function
		all := e.funcs()
		for range 1000 {
			funcs = append(funcs, all[r.IntN(len(all))])
		}
		start = time.Now()
		for _, f := range funcs {
			_, ok := e.Function(f.addr + uint64(r.IntN(int(f.size))))
			qt.Assert(t, qt.IsTrue(ok))
		}
		t.Logf("%s: %d functions, first address %v, 1,000 more %v", filepath.Base(path), len(all), first,
			time.Since(start))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d libraries: %d KB held, %d KB more resident", len(open), held>>10, (resident(t)-rss)>>10)
	qt.Check(t, qt.IsTrue(held < 20<<20))
	for _, e := range open {
		checkNames(t, e, r)
	}
}

// checkNames compares with all symbols that have the same range as the result.
func checkNames(t *testing.T, e *ELF, r *rand.Rand) {
	t.Helper()
	f, err := elf.NewFile(e.r)
	qt.Assert(t, qt.IsNil(err))
	symbols, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	symbols = append(symbols, dynamic...)
	byAddr := map[uint64][]string{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			byAddr[s.Value] = append(byAddr[s.Value], s.Name)
		}
	}
	checked := 0
	for checked < 2000 {
		s := symbols[r.IntN(len(symbols))]
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 || s.Section == elf.SHN_UNDEF {
			continue
		}
		checked++
		got := functionsAt(e, s.Value)
		ok := len(got) == 1
		if ok {
			ok = false
			for _, name := range byAddr[s.Value] {
				name = strings.Replace(name, "$plt", "@plt", 1)
				ok = ok || name == got[0].Symbol && ShortName(name) == got[0].Name
			}
		}
		if !ok {
			t.Errorf("%#x: %v is not among %v", s.Value, got, byAddr[s.Value])
		}
	}
}

// resident returns the memory of this process in bytes.
func resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	qt.Assert(t, qt.IsNil(err))
	var kb int64
	if i := bytes.Index(b, []byte("VmRSS:")); i >= 0 {
		fmt.Sscan(string(b[i+6:]), &kb)
	}
	return kb << 10
}

func BenchmarkFirstAddress(b *testing.B) {
	path, err := rig.Library(context.Background(), "0.81.1")
	qt.Assert(b, qt.IsNil(err))
	path = filepath.Join(filepath.Dir(path), "_ttnncpp.so")
	b.ReportAllocs()
	for b.Loop() {
		e, err := Open(path)
		qt.Assert(b, qt.IsNil(err))
		e.Function(1 << 20)
		e.Close()
	}
}

// The indexes of many files take bounded memory: those that were used last are kept.
func TestCacheOfNames(t *testing.T) {
	var cache Cache
	var files []*ELF
	for range 5 {
		e := mustNew(t, sample().image())
		files = append(files, e)
		e.index.funcs = make([]function, maxCached/16/4+1) // as if it had so many
		cache.Used(e)
		cache.Used(files[0]) // again and again
	}
	var kept []int
	for i, e := range files {
		if e.indexBytes() > 0 {
			kept = append(kept, i)
		}
	}
	qt.Check(t, qt.DeepEquals(kept, []int{0, 3, 4}))
	qt.Check(t, qt.HasLen(functionsAt(files[1], textAddr), 1)) // built again
	runtime.KeepAlive(files)
}
