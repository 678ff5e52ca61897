package unwind

import "debug/elf"

// span is a range of virtual addresses, excluding its end.
type span struct{ start, end uint64 }

type spans []span

// executable returns the code of the segments that is loaded from the file.
func executable(headers []elf.ProgHeader) (all spans) {
	for _, p := range headers {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz > 0 {
			all = append(all, span{p.Vaddr, p.Vaddr + min(p.Filesz, 1<<64-1-p.Vaddr)})
		}
	}
	return all
}

// end returns the end of the first span that contains an address; false if there is none.
func (all spans) end(addr uint64) (uint64, bool) {
	for _, s := range all {
		if s.start <= addr && addr < s.end {
			return s.end, true
		}
	}
	return 0, false
}
