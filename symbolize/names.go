package symbolize

import (
	"strings"
	"sync"
)

// Function is a call as the source has it.
type Function struct {
	// Name is the form for people, ShortName of Symbol, or what the debug
	// information calls the function; "" if it is not known.
	Name string
	// Symbol is the name that the linker knows the function by, mangled; "" if
	// it has none.
	Symbol string
	// File and Line are where in the source the call is; "" and 0 if that is not
	// known. File is a path on the machine that compiled it.
	File string
	Line int
	// Inlined marks a function that the compiler put into the one that follows.
	Inlined bool
}

// Names names the functions of one file by its tables of symbols, and remembers names for
// a while. Nothing is read before the first address is asked for. It is safe for
// concurrent use.
type Names struct {
	elf *ELF

	mu    sync.Mutex
	known map[function]Function
	bytes int // of known
}

// maxNames is how many bytes of names are remembered of a file.
const maxNames = 512 << 10

// NewNames returns the names of a file, which stays the caller's and has to stay open.
func NewNames(e *ELF) *Names { return &Names{elf: e, known: make(map[function]Function)} }

// At is the function at a virtual address of the file, a list of one; none where no
// symbol covers the address. Of a caller ask for the return address less one.
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

// stubAt is the name of the function that the PLT stub around an address calls.
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
