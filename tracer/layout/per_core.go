package layout

import (
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// The hybrid allocator, from 0.69 on, can place a buffer on single cores, at an address of
// its own on each: not at one address in all banks.
const (
	perCore         = "_ZN2tt8tt_metal12experimental19per_core_allocation"
	isPerCore       = perCore + "22is_per_core_allocationERKNS0_6BufferE"
	perCoreMap      = perCore + "22get_per_core_addressesERKNS0_6BufferE"
	perCoreAddress  = perCore + "20get_per_core_addressERKNS0_6BufferENS_7xy_pairE"
	bufferImplGet   = "_ZNK2tt8tt_metal6Buffer4implEv"
	bufferImplWrite = "_ZN2tt8tt_metal6Buffer4implEv"
)

// perCoreBuffers finds how such a Buffer is told from others, and the addresses that it has
// by core: a std::unordered_map<CoreCoord, DeviceAddr>.
func (d *deriver) perCoreBuffers() {
	if len(d.e.WithPrefix(isPerCore)) == 0 {
		return // the release has none
	}
	d.field("per_core_allocation_", 1,
		from(firstAccess(1), isPerCore),
		from(firstAccess(1), perCoreAddress))
	d.field("per_core_addresses_", 8,
		from(returned, perCoreMap),
		from(searchedMap, perCoreAddress))
}

// The parts of libstdc++'s std::unordered_map of addresses by core, and of its nodes.
const (
	mapCount   = 0x18
	nodeX      = 8
	nodeY      = 0x10
	nodeResult = 0x18
)

// searchedMap finds the map in which a function looks for a core: it reads the buckets, how
// many they are, and the number of elements. The nodes must be as the kernel side reads
// them: x, y, and the address that is returned.
func searchedMap(f *flow) (Chain, error) {
	words := f.all(func(s *step) (Chain, bool) {
		if s.bytes != 8 {
			return nil, false
		}
		return s.accessed(0)
	})
	at := func(c Chain, offset int32) Chain {
		c = slices.Clone(c)
		c[len(c)-1] += offset
		return c
	}
	has := func(c Chain) bool {
		return slices.ContainsFunc(words, func(w Chain) bool { return slices.Equal(w, c) })
	}
	words = slices.DeleteFunc(slices.Clone(words), func(c Chain) bool { return !has(at(c, 8)) || !has(at(c, mapCount)) })
	if !f.comparesCores() {
		return nil, errShape
	}
	return only(words)
}

// comparesCores reports whether a function compares the two words of a node with something,
// and returns the word that follows.
func (f *flow) comparesCores() bool {
	read := map[x86asm.Reg]map[int64]bool{}
	for i := range f.steps {
		s := &f.steps[i]
		m, _, ok := s.mem()
		isResult := s.op == x86asm.MOV && s.args[0] == x86asm.Arg(x86asm.RAX)
		if !ok || m.Index != 0 || s.bytes != 8 || s.op != x86asm.CMP && !(isResult && m.Disp == nodeResult) {
			continue
		}
		if read[m.Base] == nil {
			read[m.Base] = map[int64]bool{}
		}
		read[m.Base][m.Disp] = true
	}
	for _, offsets := range read {
		if offsets[nodeX] && offsets[nodeY] && offsets[nodeResult] {
			return true
		}
	}
	return false
}

// callToImpl is what a call to Buffer::impl() returns: from 0.80 on other functions get the
// object with a Buffer's fields by it.
func (f *flow) callToImpl(target uint64, buffer value) value {
	name := f.name(target)
	if name != bufferImplGet && name != bufferImplWrite {
		return value{}
	}
	s, ok := f.e.Lookup(name)
	if !ok {
		return value{}
	}
	called, err := follow(f.e, s)
	if err != nil {
		return value{}
	}
	path, err := result(called)
	if err != nil {
		return value{}
	}
	for _, offset := range path {
		buffer = buffer.plus(int64(offset)).load()
	}
	return buffer
}
