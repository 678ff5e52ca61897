package symbolize

import (
	"strings"
	"sync"
)

// Function is a call as the source has it.
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

// Names resolves the functions of one file by its symbol tables, and caches names. Nothing
// is read before the first address. It is safe for concurrent use.
type Names struct {
	elf *ELF

	mu    sync.Mutex
	known map[function]Function
	bytes int // of known
}

// maxNames bounds the cache, in bytes of names per file.
const maxNames = 512 << 10

// NewNames returns the names of a file. The caller keeps the file open, and closes it.
func NewNames(e *ELF) *Names { return &Names{elf: e, known: make(map[function]Function)} }

// At returns the function at a virtual address of the file, a list of one; empty if no
// symbol covers the address. For a caller, pass the return address less one.
func (n *Names) At(vaddr uint64) []Function {
	if name, ok := n.elf.stubAt(vaddr); ok {
		return []Function{{Name: cut(shorten(name), maxShort) + "@plt", Symbol: name + "@plt"}}
	}
	at, ok := n.elf.functionAt(vaddr)
	if !ok {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f, ok := n.known[at]
	if !ok {
		f.Symbol = n.elf.functionName(at)
		if target, stub := stubTarget(f.Symbol); stub {
			f.Symbol = target + "@plt"
		}
		f.Name = strings.Clone(ShortName(f.Symbol))
		if n.bytes += 200 + len(f.Symbol) + len(f.Name); n.bytes > maxNames {
			clear(n.known)
			n.bytes = 0
		}
		n.known[at] = f
	}
	if f.Symbol == "" {
		return nil
	}
	return []Function{f}
}

// stubAt returns the name of the function that the PLT stub around an address calls.
func (e *ELF) stubAt(vaddr uint64) (string, bool) {
	for _, s := range e.stubs {
		if vaddr-s.addr >= s.size {
			continue
		}
		// stubs are 8 or 16 bytes long, and the next one starts where one ends
		at := vaddr &^ 7
		if name, ok := e.PLTName(at); ok {
			return strings.Clone(name), true
		}
		if name, ok := e.PLTName(at - 8); ok {
			return strings.Clone(name), true
		}
	}
	return "", false
}
