package symbolize

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"unsafe"
)

// StartFunctions start a program or a thread.
var StartFunctions = map[string]bool{
	"_start": true, "__libc_start_main": true, "__libc_start_call_main": true,
	"start_thread": true, "clone3": true, "__clone": true,
}

// Symbol is a function or an object of an ELF file.
type Symbol struct {
	// Name is the mangled name. It may share memory with the table of names: clone it to
	// keep it for long.
	Name string
	// Addr is a virtual address of the file, Size in bytes.
	Addr, Size uint64
}

// the two symbol tables, in order of preference
const (
	tableSymtab = 0
	tableDynsym = 1
)

// keyLength is the number of bytes by which symbols are indexed. Shorter prefixes need a
// search of all symbols.
const keyLength = 20

// namesIndex finds symbols by name. It is a table of buckets by the hash of the first
// keyLength bytes of the name, so that one index serves exact names and prefixes; sorting
// 100,000 mangled names would take ten times as long.
type namesIndex struct {
	names   [2]string
	starts  []uint32
	entries []nameEntry
}

type nameEntry struct {
	hash uint32
	// name is the offset in the table of names
	name uint32
	// symbol is the index in the symbol table, with the table in the top bit
	symbol uint32
}

const tableBit = 1 << 31

// maxMentions bounds the names that defines looks for symbols of. Files have a few.
const maxMentions = 1 << 12

// Lookup returns the defined function or object with a name.
func (e *ELF) Lookup(name string) (Symbol, bool) {
	found := e.find(name, true)
	if len(found) == 0 {
		return Symbol{}, false
	}
	return found[0], true
}

// Exports reports whether the file defines a dynamic function or object with one of these names. It
// keeps nothing, and mostly reads only the names: much cheaper than Lookup.
func (e *ELF) Exports(names ...string) bool {
	ended := make([]string, len(names))
	for i, name := range names {
		ended[i] = name + "\x00"
	}
	return e.defines(tableDynsym, ended)
}

// Defines reports whether WithPrefix finds something for one of these prefixes. It is as cheap as Exports.
func (e *ELF) Defines(prefixes ...string) bool {
	return e.defines(tableDynsym, prefixes) || e.defines(tableSymtab, prefixes)
}

// Imports reports whether the dynamic symbol table has a name with one of these prefixes, defined in this
// file or in another.
func (e *ELF) Imports(prefixes ...string) (found bool) {
	begun := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		begun[i] = "\x00" + prefix
	}
	e.eachMention(tableDynsym, begun, func(uint32) bool {
		found = true
		return false
	})
	return found
}

// defines reports whether a table has a defined function or object whose name, with the NUL that ends it,
// begins with one of these texts.
func (e *ELF) defines(table int, texts []string) (found bool) {
	var at []uint32
	e.eachMention(table, texts, func(offset uint32) bool {
		at = append(at, offset)
		return len(at) < maxMentions
	})
	if len(at) == 0 {
		return false
	}
	slices.Sort(at)
	e.eachSymbol(table, func(s tableSymbol) {
		if !found {
			_, begins := slices.BinarySearch(at, s.name)
			found = begins && !pseudo(e.nameAt(table, s.name))
		}
	})
	return found
}

// eachMention calls f with the offsets at which the names of a table have one of these texts, until it
// returns false. An offset may come twice.
func (e *ELF) eachMention(table int, texts []string, f func(offset uint32) bool) {
	if e.strings[table].Size > maxNames {
		return
	}
	longest := 0
	for _, text := range texts {
		longest = max(longest, len(text))
	}
	var window []byte // a text may cross the end of a part
	end := 0          // of the window
	_ = e.EachPart(e.strings[table], func(part []byte) error {
		window = append(append(window[:0], window[max(0, len(window)-longest):]...), part...)
		end += len(part)
		for _, text := range texts {
			// mangled names begin alike: a search for bytes that few names have is ten times as fast
			before := max(0, strings.IndexAny(text, "BDFGHJMOQRUVWXY"))
			rare := []byte(text[before:])
			for from := before; from < len(window); from++ {
				i := bytes.Index(window[from:], rare)
				if i < 0 {
					break
				}
				from += i
				if string(window[from-before:from]) == text[:before] && !f(uint32(end-len(window)+from-before)) {
					return io.EOF
				}
			}
		}
		return nil
	})
}

// WithPrefix returns the defined functions and objects whose mangled names begin with a
// prefix, sorted by address and name. It omits stubs (`$plt`, `@plt`), slots (`$got`) and
// the cold parts of functions.
func (e *ELF) WithPrefix(prefix string) []Symbol {
	found := e.find(prefix, false)
	slices.SortFunc(found, func(a, b Symbol) int {
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), strings.Compare(a.Name, b.Name))
	})
	// .symtab repeats the entries of .dynsym
	return slices.CompactFunc(found, func(a, b Symbol) bool { return a.Addr == b.Addr && a.Name == b.Name })
}

func (e *ELF) find(prefix string, exact bool) (found []Symbol) {
	x := e.names()
	if len(x.entries) == 0 {
		return nil
	}
	entries, hash := x.entries, uint32(0)
	keyed := exact || len(prefix) >= keyLength
	if keyed {
		hash = hashKey(prefix)
		bucket := hash >> bucketShift
		entries = entries[x.starts[bucket]:x.starts[bucket+1]]
	}
	for _, n := range entries {
		if keyed && n.hash != hash {
			continue
		}
		table := int(n.symbol >> 31)
		name := cString(x.names[table], n.name)
		if !strings.HasPrefix(name, prefix) || exact && len(name) != len(prefix) || pseudo(name) {
			continue
		}
		if s, ok := e.symbol(table, n.symbol&^tableBit); ok {
			s.Name = name
			found = append(found, s)
			if exact {
				return found
			}
		}
	}
	return found
}

// EachFunction calls f with each function that the file defines, once for each symbol table that
// has it. It omits the symbols that WithPrefix omits; objects, which may lie among the code; and
// indirect functions, whose address is the address of the resolver.
func (e *ELF) EachFunction(f func(Symbol)) {
	for table := range e.strings {
		names := e.tableNames(table, maxNames)
		e.eachSymbol(table, func(s tableSymbol) {
			if name := cString(names, s.name); s.kind == elf.STT_FUNC && name != "" && !pseudo(name) {
				f(Symbol{Name: name, Addr: s.addr, Size: s.size})
			}
		})
	}
}

// pseudo reports whether a linker or compiler made this name in addition to the function's
// own.
func pseudo(name string) bool {
	return strings.HasSuffix(name, "$plt") || strings.HasSuffix(name, "$got") ||
		strings.HasSuffix(name, "@plt") || strings.Contains(name, ".cold")
}

// symbol reads one symbol, without its name.
func (e *ELF) symbol(table int, index uint32) (Symbol, bool) {
	b, err := e.read(e.symbols[table].Offset+uint64(index)*symbolSize, symbolSize, symbolSize)
	if err != nil {
		return Symbol{}, false
	}
	return Symbol{Addr: binary.LittleEndian.Uint64(b[8:]), Size: binary.LittleEndian.Uint64(b[16:])}, true
}

// tableSymbol is an entry of a symbol table.
type tableSymbol struct {
	// index is its number, name the offset in the table of names
	index, name uint32
	kind        elf.SymType
	bind        elf.SymBind
	addr, size  uint64
}

// eachSymbol calls f with the defined functions and objects of a table.
func (e *ELF) eachSymbol(table int, f func(tableSymbol)) {
	e.eachEntry(e.symbols[table], symbolSize, maxSymbols, func(i uint64, raw []byte) {
		kind := elf.ST_TYPE(raw[4])
		if kind != elf.STT_FUNC && kind != elf.STT_OBJECT && kind != elf.STT_GNU_IFUNC ||
			elf.SectionIndex(binary.LittleEndian.Uint16(raw[6:])) == elf.SHN_UNDEF {
			return
		}
		f(tableSymbol{
			index: uint32(i), name: binary.LittleEndian.Uint32(raw), kind: kind, bind: elf.ST_BIND(raw[4]),
			addr: binary.LittleEndian.Uint64(raw[8:]), size: binary.LittleEndian.Uint64(raw[16:]),
		})
	})
}

// tableNames reads the names of a symbol table, at most limit bytes.
func (e *ELF) tableNames(table int, limit uint64) string {
	b, err := e.read(e.strings[table].Offset, e.strings[table].Size, limit)
	if err != nil || len(b) == 0 {
		return ""
	}
	return unsafe.String(unsafe.SliceData(b), len(b)) // b is not modified any more
}

func (e *ELF) indexNames() *namesIndex {
	x := &namesIndex{}
	var entries []nameEntry
	for table := range x.names {
		names := e.tableNames(table, maxNames-uint64(len(x.names[tableSymtab])))
		if names == "" {
			continue
		}
		x.names[table] = names
		entries = slices.Grow(entries, int(min(e.symbols[table].Size/symbolSize, maxSymbols, e.Size()/symbolSize))/2)
		e.eachSymbol(table, func(s tableSymbol) {
			if uint64(s.name) < uint64(len(names)) {
				entries = append(entries, nameEntry{hashKey(names[s.name:]), s.name, s.index | uint32(table)<<31})
			}
		})
	}
	// a counting sort by bucket, which keeps .symtab before .dynsym
	x.starts = make([]uint32, 1<<bucketBits+1)
	for _, n := range entries {
		x.starts[n.hash>>bucketShift+1]++
	}
	for i := 1; i < len(x.starts); i++ {
		x.starts[i] += x.starts[i-1]
	}
	next := slices.Clone(x.starts)
	x.entries = make([]nameEntry, len(entries))
	for _, n := range entries {
		b := n.hash >> bucketShift
		x.entries[next[b]] = n
		next[b]++
	}
	return x
}

const (
	bucketBits  = 16
	bucketShift = 32 - bucketBits
)

// hashKey is the FNV-1a hash of the first keyLength bytes of a string that ends
// at a NUL or at its end. A shorter name is hashed as a whole.
func hashKey(s string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(s) && i < keyLength && s[i] != 0; i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h ^ h>>15 // the buckets are by the top bits, which need the low ones
}
