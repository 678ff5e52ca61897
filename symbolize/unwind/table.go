// Package unwind converts an ELF file's .eh_frame into tables that are small enough for BPF maps
// and simple enough for a BPF program to search. For each address of the code they have the place
// of the caller's frame.
//
// The formats are those of the DWARF standard (chapter 6.4, call frame information) and the Linux
// Standard Base (.eh_frame and .eh_frame_hdr). Registers have the numbers of the x86-64 psABI:
// rbp 6, rsp 7, and 16 for the return address.
// It is not part of ttmem's Go library: it changes without notice.
package unwind

import (
	"sort"
)

// CFA says how to find a frame's canonical frame address: the value of rsp before the call.
// The return address is 8 bytes below it. The numbers are those of the BPF program.
type CFA uint8

const (
	// NoRow means that the file has no rule for the code.
	NoRow CFA = iota
	// End means that the return address is undefined: the thread starts here.
	End
	// SP is rsp + CFAOffset.
	SP
	// BP is rbp + CFAOffset.
	BP
	// DerefSP is the word at rsp + low, + high: the two halves of CFAOffset, signed.
	DerefSP
	// DerefBP is the word at rbp + low, + high.
	DerefBP
	// PLT is rsp + 8, and 8 more if rip & 15 is at least CFAOffset: the stub has
	// then pushed the index of its function.
	PLT
	// Signal is the kernel's frame for a signal handler: rip is at rsp + 168, rsp at rsp +
	// 160, rbp at rsp + 120.
	Signal
	// Unsupported means that there is a rule, but a Rule cannot express it.
	Unsupported
)

// BPRule says where the caller's rbp is. The numbers are those of the BPF program.
type BPRule uint8

const (
	// Same means that rbp still has the caller's value.
	Same BPRule = iota
	// AtCFA is the word at the CFA + BPOffset.
	AtCFA
	// AtBP is the word at rbp + BPOffset.
	AtBP
	// Lost means that the caller's rbp is unknown and must not be used.
	Lost
)

// Rule leads from a frame to its caller's. Offsets are in bytes. The layout is that of the
// BPF program.
type Rule struct {
	CFA       CFA
	BP        BPRule
	BPOffset  int16
	CFAOffset int32
}

// A Table's index has one entry per page of 4096 bytes.
const (
	PageShift = 12
	pageSize  = 1 << PageShift
)

// Table has the unwind rows of a file, by virtual address of the file.
type Table struct {
	// FirstPage is the number (address >> PageShift) of the first page.
	FirstPage uint32
	// Index has for each page the index in Rows of its first row, and len(Rows) at its end.
	// A page may have no rows, which is the same as NoRow.
	Index []uint32
	// Rows are, page by page, the offset in the page in the high 16 bits and an
	// index into Rules in the low ones. The offsets in a page ascend and begin
	// with 0, and neighbours differ. A row holds up to the next one, or to the
	// end of its page.
	Rows []uint32
	// Rules are the different rules, at most 8192. The first is NoRow.
	Rules []Rule
}

// Find returns the rule in force at a virtual address of the file. The BPF program searches
// in the same way.
func (t *Table) Find(vaddr uint64) Rule {
	page := vaddr>>PageShift - uint64(t.FirstPage)
	if page >= t.pages() {
		return Rule{}
	}
	rows := t.Rows[t.Index[page]:t.Index[page+1]]
	offset := uint32(vaddr & (pageSize - 1))
	n := sort.Search(len(rows), func(i int) bool { return rows[i]>>16 > offset })
	if n == 0 {
		return Rule{}
	}
	return t.Rules[rows[n-1]&0xffff]
}

// pages is the number of pages; the index has one more entry.
func (t *Table) pages() uint64 { return uint64(max(len(t.Index), 1) - 1) }
