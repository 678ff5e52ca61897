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

// A Cache bounds the memory of the indexes of many files, which are built again when they are needed.
// It has the files that were used, the latest last, and drops the indexes of a file once maxCached
// bytes of others have been used since.
type Cache struct {
	mu    sync.Mutex
	files []weak.Pointer[ELF]
}

// maxCached is the size of the indexes that a Cache keeps, in bytes. All libraries of ttnn take
// 1.3 MB.
const maxCached = 64 << 20

// Used notes that an index of a file was used.
func (c *Cache) Used(e *ELF) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, size := weak.Make(e), 0
	c.files = slices.DeleteFunc(c.files, func(w weak.Pointer[ELF]) bool { return w == last || w.Value() == nil })
	c.files = append(c.files, last)
	for _, w := range slices.Backward(c.files) {
		if e := w.Value(); e != nil {
			if size += e.indexBytes(); size > maxCached {
				e.Forget()
			}
		}
	}
}

// indexBytes returns the approximate size of the indexes that Function uses.
func (e *ELF) indexBytes() int {
	e.indexing.Lock()
	defer e.indexing.Unlock()
	return int(unsafe.Sizeof(function{}))*cap(e.index.funcs) + 40*len(e.index.plt)
}

// Function returns the call at a virtual address of the file, by its symbol tables; false if no symbol
// covers the address. For a caller, pass the return address less one.
func (e *ELF) Function(vaddr uint64) (Function, bool) {
	if name, ok := e.stubAt(vaddr); ok {
		return Function{Name: cut(shorten(name), maxShort) + "@plt", Symbol: name + "@plt"}, true
	}
	at, ok := e.functionAt(vaddr)
	if !ok {
		return Function{}, false
	}
	symbol := e.functionName(at)
	if target, stub := stubTarget(symbol); stub {
		symbol = target + "@plt"
	}
	return Function{Name: strings.Clone(ShortName(symbol)), Symbol: symbol}, symbol != ""
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
