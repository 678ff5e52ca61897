package symbolize

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"
	"strings"
)

// function takes only 16 bytes, because a library has 35,000 and several libraries are open. Its
// name stays in the file until it is needed.
type function struct {
	addr uint64
	size uint32
	// name is the offset in the table of names; the top bit selects the table
	name uint32
}

const (
	// maxInside is how many functions with symbols may lie within another one.
	maxInside = 8
	// maxFunctions bounds the index, to 16 MB. The largest library of ttnn has 35,000
	// functions, PyTorch's half a million.
	maxFunctions = 1 << 20
)

// At returns the function that contains a virtual address of the file, and the offset of the
// address in it. Cold parts of functions have their own names. Stubs with symbols have the names
// of the functions that they call.
func (e *ELF) At(vaddr uint64) (s Symbol, offset uint64, ok bool) {
	f, ok := e.functionAt(vaddr)
	if !ok {
		return Symbol{}, 0, false
	}
	name := e.functionName(f)
	if target, stub := stubTarget(name); stub {
		name = target
	}
	if name == "" {
		return Symbol{}, 0, false
	}
	return Symbol{Name: name, Addr: f.addr, Size: uint64(f.size)}, vaddr - f.addr, true
}

// stubTarget returns the function that a stub calls, by the stub's symbol.
func stubTarget(name string) (string, bool) {
	for _, suffix := range []string{"$plt", "$pltgot", "@plt"} { // as the linker mold and as objdump write them
		if target, ok := strings.CutSuffix(name, suffix); ok {
			return target, true
		}
	}
	return name, false
}

// functionAt returns the innermost function that contains an address.
func (e *ELF) functionAt(vaddr uint64) (function, bool) {
	funcs := e.funcs()
	i := sort.Search(len(funcs), func(i int) bool { return funcs[i].addr > vaddr })
	// a function may contain others, so one before the nearest may contain the address
	for n := 0; i > 0 && n <= maxInside; n++ {
		i--
		if vaddr-funcs[i].addr < uint64(funcs[i].size) {
			return funcs[i], true
		}
	}
	return function{}, false
}

// functionName reads the name of a function, mangled; "" if it cannot be read
// or is longer than maxName.
func (e *ELF) functionName(f function) string {
	return e.nameAt(int(f.name>>31), f.name&^tableBit)
}

// nameAt reads a name at an offset of a symbol table's names.
func (e *ELF) nameAt(table int, offset uint32) string {
	names, at := e.strings[table], uint64(offset)
	// most names are short, and most of the others not very long
	for n := uint64(256); ; n *= 8 {
		if at >= names.Size {
			return ""
		}
		n = min(n, names.Size-at, maxName)
		b, err := e.read(names.Offset+at, n, maxName)
		if err != nil {
			return ""
		}
		if name := cString(string(b), 0); name != "" || b[0] == 0 || n == maxName || n == names.Size-at {
			return strings.Clone(name) // callers keep it, but not what follows it
		}
	}
}

// indexFunctions sorts the functions by address. Of several names for the same bytes, a
// global one comes first, then a local one, then a weak one, each in the order of the file.
func (e *ELF) indexFunctions() []function {
	// The rank and position make a fast unstable sort possible: sorting is a large part of the
	// time until a library is attached to.
	type ranked struct {
		function
		rank, order uint32
	}
	var list []ranked
	if n := (e.symbols[0].Size + e.symbols[1].Size) / symbolSize; n <= maxFunctions {
		list = make([]ranked, 0, min(n, uint64(e.size)/symbolSize))
	}
	for table := range e.symbols {
		e.eachSymbol(table, func(s tableSymbol) {
			rank := slices.Index([]elf.SymBind{elf.STB_GLOBAL, elf.STB_LOCAL, elf.STB_WEAK, stbUnique}, s.bind)
			if s.kind == elf.STT_OBJECT || s.size == 0 || s.name >= tableBit || rank < 0 || len(list) >= maxFunctions {
				return
			}
			f := function{s.addr, uint32(min(s.size, 1<<32-1)), s.name | uint32(table)<<31}
			list = append(list, ranked{f, uint32(rank) % 3, uint32(len(list))})
		})
	}
	slices.SortFunc(list, func(a, b ranked) int {
		if a.addr != b.addr {
			return cmp.Compare(a.addr, b.addr)
		}
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.rank, b.rank), cmp.Compare(a.order, b.order))
	})
	list = slices.CompactFunc(list, func(a, b ranked) bool { return a.addr == b.addr && a.size == b.size })
	funcs := make([]function, len(list))
	for i := range list {
		funcs[i] = list[i].function
	}
	return funcs
}

// stbUnique is the binding STB_GNU_UNIQUE, for symbols that a process has once.
const stbUnique elf.SymBind = 10
