package unwind

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"
)

// span is a range of virtual addresses, excluding its end.
type span struct{ start, end uint64 }

// spans are disjoint and ascend.
type spans []span

// executable returns the code of the segments that is loaded from the file.
func executable(headers []elf.ProgHeader) spans {
	var all spans
	for _, p := range headers {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz > 0 {
			all = append(all, span{p.Vaddr, p.Vaddr + min(p.Filesz, 1<<64-1-p.Vaddr)})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var merged spans
	for _, s := range all {
		if n := len(merged); n > 0 && s.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// end returns the end of the span that contains an address; false if there is none.
func (s spans) end(addr uint64) (uint64, bool) {
	n := sort.Search(len(s), func(i int) bool { return s[i].end > addr })
	if n == len(s) || addr < s[n].start {
		return 0, false
	}
	return s[n].end, true
}
