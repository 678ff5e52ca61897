package symbolize

import (
	"slices"
	"strings"
	"sync"
	"unsafe"
	"weak"
)

// Function is a call in the source.
type Function struct {
	// Name is ShortName of Symbol, or the name in the debug information; "" if unknown.
	Name string
	// Symbol is the linker's name of the function, mangled; "" if it has none.
	Symbol string
	// File and Line are the position of the call in the source; "" and 0 if unknown. File
	// is a path on the machine that compiled it.
	File string
	Line int
	// Inlined marks a function that was inlined into the next one.
	Inlined bool
}

// Names resolves the functions of one file by its symbol tables. Nothing is read before the
// first address. It is safe for concurrent use.
type Names struct {
	elf   *ELF
	cache *Cache
}

// NewNames returns the names of a file. The caller keeps the file open, and closes it. A cache,
// if not nil, bounds the memory of the names of many files. Indexes that it drops are read again
// when they are needed.
func NewNames(e *ELF, cache *Cache) *Names {
	e.forget()
	return &Names{e, cache}
}

// Cache has the files that Names have used, the latest last. It drops the indexes of a file once
// maxCached bytes of others have been used since.
type Cache struct {
	mu    sync.Mutex
	files []weak.Pointer[ELF]
}

// maxCached is the size of the indexes that a Cache keeps, in bytes. All libraries of ttnn take
// 1.3 MB.
const maxCached = 64 << 20

func (c *Cache) used(e *ELF) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, size := weak.Make(e), 0
	c.files = slices.DeleteFunc(c.files, func(w weak.Pointer[ELF]) bool { return w == last || w.Value() == nil })
	c.files = append(c.files, last)
	for _, w := range slices.Backward(c.files) {
		if e := w.Value(); e != nil {
			if size += e.indexBytes(); size > maxCached {
				e.forget()
			}
		}
	}
}

// indexBytes returns the approximate size of the indexes that Names use.
func (e *ELF) indexBytes() int {
	e.indexing.Lock()
	defer e.indexing.Unlock()
	return int(unsafe.Sizeof(function{}))*cap(e.index.funcs) + 40*len(e.index.plt)
}

// At returns the function at a virtual address of the file, a list of one; empty if no
// symbol covers the address. For a caller, pass the return address less one.
func (n *Names) At(vaddr uint64) []Function {
	defer n.cache.used(n.elf)
	if name, ok := n.elf.stubAt(vaddr); ok {
		return []Function{{Name: cut(shorten(name), maxShort) + "@plt", Symbol: name + "@plt"}}
	}
	at, ok := n.elf.functionAt(vaddr)
	if !ok {
		return nil
	}
	symbol := n.elf.functionName(at)
	if symbol == "" {
		return nil
	}
	if target, stub := stubTarget(symbol); stub {
		symbol = target + "@plt"
	}
	return []Function{{Name: strings.Clone(ShortName(symbol)), Symbol: symbol}}
}

// stubAt returns the name of the function that the PLT stub around an address calls.
func (e *ELF) stubAt(vaddr uint64) (string, bool) {
	in := func(s Section) bool { return vaddr-s.Addr < s.Size }
	if !slices.ContainsFunc(e.stubs, in) {
		return "", false
	}
	// stubs are 8 or 16 bytes long, and the next one starts where one ends
	name, ok := e.PLTName(vaddr &^ 7)
	if !ok {
		name, ok = e.PLTName(vaddr&^7 - 8)
	}
	return name, ok
}
