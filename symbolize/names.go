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

// NamesOptions tell where a file comes from. The zero value is a file of this
// machine without a debug link.
type NamesOptions struct {
	// Root is the directory below which debug files are searched before the
	// machine's own are: /proc/PID/root for a process in another mount namespace.
	Root string
	// Path is the file's path below Root, for debug files that lie beside it.
	Path string
}

// Names finds the functions at addresses of one file, with the help of a debug
// file where one is installed. Nothing is read before the first address is asked
// for. It is safe for concurrent use.
type Names struct {
	elf     *ELF
	options NamesOptions

	mu     sync.Mutex
	opened bool
	closed bool
	debug  *ELF // the debug file, nil if there is none
	lines  *debugInfo

	functions recent[uint64, []Function]
	symbols   recent[symbolKey, symbolName]
}

// symbolKey is a function of the file or of its debug file.
type symbolKey struct {
	debug bool
	function
}

type symbolName struct{ symbol, short string }

// How many bytes of names one half of the caches of a file may hold.
const (
	maxFunctionsCached = 256 << 10
	maxSymbolsCached   = 128 << 10
)

// NewNames returns the names of a file, which stays the caller's and has to stay
// open. Options may be nil.
func NewNames(e *ELF, options *NamesOptions) *Names {
	n := &Names{elf: e}
	if options != nil {
		n.options = *options
	}
	n.functions.limit, n.symbols.limit = maxFunctionsCached, maxSymbolsCached
	return n
}

// Close closes the debug file and forgets everything. Afterwards there are no
// names.
func (n *Names) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.functions.drop()
	n.symbols.drop()
	n.closed = true
	n.lines.close()
	n.lines = nil
	if n.debug == nil {
		return nil
	}
	debug := n.debug
	n.debug = nil
	return debug.Close()
}

// At are the functions at a virtual address of the file: the innermost one
// first, after those that were inlined into each other the one that they were
// inlined into. There are none where no symbol covers the address. Of a caller
// ask for the return address less one. They must not be modified.
func (n *Names) At(vaddr uint64) []Function {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	if found, ok := n.functions.get(vaddr); ok {
		return found
	}
	n.open()
	found := n.find(vaddr)
	const each = 128 // bytes of an entry and its part of the map
	cost := each
	for i := range found {
		cost += each + len(found[i].Name) + len(found[i].Symbol) + len(found[i].File)
	}
	n.functions.put(vaddr, found, cost)
	return found
}

// open looks for debug information, once.
func (n *Names) open() {
	if n.opened {
		return
	}
	n.opened = true
	if !n.elf.hasDebugInfo() {
		n.debug = findDebugFile(n.elf, n.options)
	}
	if n.debug != nil && n.debug.hasDebugInfo() {
		n.lines = openDebugInfo(n.debug, n.elf)
	} else {
		n.lines = openDebugInfo(n.elf, n.elf)
	}
}

func (n *Names) find(vaddr uint64) []Function {
	if name, ok := n.elf.stubAt(vaddr); ok {
		return []Function{{Name: cut(shorten(name), maxShort) + "@plt", Symbol: name + "@plt"}}
	}
	name, known := n.symbolAt(vaddr)
	if _, stub := stubTarget(name.symbol); stub {
		return []Function{{Name: name.short, Symbol: name.symbol}}
	}
	calls := n.lines.at(vaddr)
	if len(calls) == 0 && !known {
		return nil
	}
	if len(calls) == 0 {
		calls = []Function{{}}
	}
	// The linker's table knows the function itself best: which clone it is, and
	// under which of its names it is exported.
	if known {
		last := &calls[len(calls)-1]
		last.Name, last.Symbol = name.short, name.symbol
	}
	return calls
}

// symbolAt is the name of the function at an address, by the tables of symbols
// of the file and of its debug file.
func (n *Names) symbolAt(vaddr uint64) (symbolName, bool) {
	key, from := symbolKey{}, n.elf
	var ok bool
	if key.function, ok = n.elf.functionAt(vaddr); !ok {
		if n.debug == nil {
			return symbolName{}, false
		}
		key.debug, from = true, n.debug
		if key.function, ok = n.debug.functionAt(vaddr); !ok {
			return symbolName{}, false
		}
	}
	name, ok := n.symbols.get(key)
	if !ok {
		name.symbol = from.functionName(key.function)
		if target, stub := stubTarget(name.symbol); stub {
			name.symbol = target + "@plt"
		}
		name.short = strings.Clone(ShortName(name.symbol))
		n.symbols.put(key, name, 128+len(name.symbol)+len(name.short))
	}
	return name, name.symbol != ""
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
