package symbolize

import (
	"cmp"
	"debug/elf"
	"slices"
	"strings"
)

// addressIndex finds functions by address.
type addressIndex struct {
	once  once
	funcs []function
}

// function is 16 bytes, because there are 100,000 and several files are held.
type function struct {
	addr uint64
	size uint32
	// name is the offset in the table of names, the table in the top bit
	name uint32
}

func (x *addressIndex) drop() {
	x.once.mu.Lock()
	x.funcs, x.once.done = nil, false
	x.once.mu.Unlock()
}

// maxInside is how many functions with symbols may lie within another one.
const maxInside = 4

// At is the function that contains a virtual address of the file, and how far
// in the address lies. Cold parts of functions are found under their own names,
// stubs that have symbols under the names of the functions that they lead to.
func (e *ELF) At(vaddr uint64) (s Symbol, offset uint64, ok bool) {
	e.funcs.once.do(e.indexFunctions)
	funcs := e.funcs.funcs
	i, found := slices.BinarySearchFunc(funcs, vaddr, func(f function, a uint64) int { return cmp.Compare(f.addr, a) })
	if !found {
		i--
	}
	// a function may have others inside: the next one before may contain it
	for last := max(0, i-maxInside); i > last && vaddr-funcs[i].addr >= uint64(funcs[i].size); {
		i--
	}
	if i < 0 || vaddr-funcs[i].addr >= uint64(funcs[i].size) {
		return Symbol{}, 0, false
	}
	f := funcs[i]
	names := e.strings[f.name>>31]
	at := uint64(f.name &^ tableBit)
	if at >= names.size {
		return Symbol{}, 0, false
	}
	b, err := e.read(names.offset+at, min(names.size-at, maxName), maxName)
	if err != nil {
		return Symbol{}, 0, false
	}
	name := strings.TrimSuffix(strings.TrimSuffix(cString(b, 0), "$plt"), "@plt")
	return Symbol{Name: name, Addr: f.addr, Size: uint64(f.size)}, vaddr - f.addr, name != ""
}

func (e *ELF) indexFunctions() {
	var funcs []function
	tables := []int{tableSymtab}
	if e.symtab.size == 0 { // stripped
		tables = []int{tableDynsym}
	}
	for _, table := range tables {
		e.eachSymbol(table, func(_, name uint32, kind elf.SymType, s Symbol) {
			if kind != elf.STT_OBJECT && s.Size > 0 && name < tableBit {
				funcs = append(funcs, function{s.Addr, uint32(min(s.Size, 1<<32-1)), name | uint32(table)<<31})
			}
		})
	}
	// Of several names for one function the first in the file is taken.
	slices.SortStableFunc(funcs, func(a, b function) int {
		if a.addr != b.addr {
			return cmp.Compare(a.addr, b.addr)
		}
		return cmp.Compare(b.size, a.size)
	})
	funcs = slices.CompactFunc(funcs, func(a, b function) bool { return a.addr == b.addr })
	e.funcs.funcs = slices.Clip(funcs)
}
