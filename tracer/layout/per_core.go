package layout

import (
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// From 0.69 on, the hybrid allocator can place a buffer on single cores, at a different address
// on each, instead of at one address in all banks.
const (
	perCore        = "experimental::per_core_allocation::"
	isPerCore      = perCore + "is_per_core_allocation(RKNS0_6BufferE)"
	perCoreAddress = perCore + "get_per_core_address(RKNS0_6BufferENS_7xy_pairE)"
)

// perCoreBuffers finds the flag of such a Buffer, and its addresses by core: a
// std::unordered_map<CoreCoord, DeviceAddr>.
func (d *deriver) perCoreBuffers() {
	if len(d.e.WithPrefix(mangle(isPerCore))) == 0 {
		return // the release has no such buffers
	}
	d.field("per_core_allocation_", 1,
		from(first(accesses(1)), isPerCore),
		from(first(accesses(1)), perCoreAddress))
	d.field("per_core_addresses_", 8,
		from(returned, perCore+"get_per_core_addresses(RKNS0_6BufferE)"),
		from(searchedMap, perCoreAddress))
}

// The parts of libstdc++'s std::unordered_map of addresses by core, and of its nodes.
const (
	mapCount   = 0x18
	nodeX      = 8
	nodeY      = 0x10
	nodeResult = 0x18
)

// searchedMap finds the map in which a function searches for a core. The function reads the
// buckets, their number, and the number of elements. The nodes must have the form that the kernel
// side reads: x, y, and the address that is returned.
func searchedMap(f *flow) (Chain, error) {
	words := f.all(accesses(8))
	maps := slices.DeleteFunc(slices.Clone(words), func(c Chain) bool {
		return !contains(words, c.Plus(8)) || !contains(words, c.Plus(mapCount))
	})
	if !f.comparesCores() {
		return nil, errShape
	}
	return only(maps)
}

// comparesCores reports whether a function compares the two words of a node, and returns the word
// after them.
func (f *flow) comparesCores() bool {
	read := map[x86asm.Mem]bool{}
	for _, s := range f.steps {
		m, _, ok := s.Mem()
		isResult := s.Op == x86asm.MOV && s.Args[0] == x86asm.Arg(x86asm.RAX) && m.Disp == nodeResult
		if ok && m.Index == 0 && s.MemBytes == 8 && (s.Op == x86asm.CMP || isResult) {
			read[x86asm.Mem{Base: m.Base, Disp: m.Disp}] = true
		}
	}
	for m := range read {
		if m.Disp == nodeX && read[x86asm.Mem{Base: m.Base, Disp: nodeY}] && read[x86asm.Mem{Base: m.Base, Disp: nodeResult}] {
			return true
		}
	}
	return false
}

// implPaths are the paths from a Buffer to the results of Buffer::impl(), by its names. From 0.80 on, other
// functions call it to get the object with a Buffer's fields.
func implPaths(e *symbolize.ELF) map[string]Chain {
	paths := make(map[string]Chain)
	for _, name := range []string{"_ZNK2tt8tt_metal6Buffer4implEv", "_ZN2tt8tt_metal6Buffer4implEv"} {
		if s, ok := e.Lookup(name); ok {
			path, err := result(follow(e, s, nil))
			if err == nil {
				paths[name] = path
			}
		}
	}
	return paths
}

// callToImpl returns the result of a call to a function, if that is Buffer::impl().
func (f *flow) callToImpl(target uint64, buffer x86.Value) x86.Value {
	path, ok := f.impl[f.name(target)]
	if !ok {
		return x86.Value{}
	}
	for _, offset := range path {
		buffer = buffer.Plus(int64(offset)).Load()
	}
	return buffer
}
