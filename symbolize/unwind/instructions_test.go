package unwind

import (
	"bytes"
	"testing"

	"github.com/go-quicktest/qt"
)

// at is the expected rule from an offset of the function on.
type at struct {
	offset uint64
	rule   Rule
}

// checkRules checks the rules of the function at start, of size bytes.
func checkRules(t *testing.T, table *Table, start, size uint64, want []at) {
	t.Helper()
	for i, w := range want {
		last := size - 1
		if i+1 < len(want) {
			last = want[i+1].offset - 1
		}
		for _, offset := range []uint64{w.offset, (w.offset + last) / 2, last} {
			qt.Check(t, qt.Equals(table.Find(start+offset), w.rule), qt.Commentf("offset %#x", offset))
		}
	}
}

// entry is the rule at the start of a function.
var entry = Rule{CFA: SP, CFAOffset: 8}

func TestInstructions(t *testing.T) {
	const size = 0x1000
	for name, test := range map[string]struct {
		code []byte
		want []at
	}{
		"nothing":         {nil, []at{{0, entry}}},
		"padding":         {[]byte{0, 0, 0}, []at{{0, entry}}},
		"push and pop":    {[]byte{advance(1), cfaDefCFAOffset, 16, advance(9), cfaDefCFAOffset, 8}, []at{{0, entry}, {1, Rule{CFA: SP, CFAOffset: 16}}, {10, entry}}},
		"no change":       {[]byte{advance(1), cfaDefCFAOffset, 8, advance(9), cfaArgsSize, 16}, []at{{0, entry}}},
		"before the code": {[]byte{cfaDefCFAOffset, 24}, []at{{0, Rule{CFA: SP, CFAOffset: 24}}}},
		"advances": {
			[]byte{
				cfaAdvance1, 0x80, cfaDefCFAOffset, 16, cfaAdvance2, 0x80, 1, cfaDefCFAOffset, 24,
				cfaAdvance4, 0, 2, 0, 0, cfaDefCFAOffset, 32, advance(0), cfaDefCFAOffset, 40,
			},
			[]at{{0, entry}, {0x80, Rule{CFA: SP, CFAOffset: 16}}, {0x200, Rule{CFA: SP, CFAOffset: 24}}, {0x400, Rule{CFA: SP, CFAOffset: 40}}},
		},
		"past the end": {
			[]byte{advance(1), cfaDefCFAOffset, 16, cfaAdvance4, 0xff, 0xff, 0xff, 0xff, cfaDefCFAOffset, 24, cfaAdvance4, 0xff, 0xff, 0xff, 0xff, 0x3f},
			[]at{{0, entry}, {1, Rule{CFA: SP, CFAOffset: 16}}},
		},
		"frame pointer": {
			[]byte{advance(1), cfaDefCFAOffset, 16, cfaOffset | regBP, 2, advance(3), cfaDefCFARegister, regBP, advance(60), cfaRestore | regBP, cfaDefCFA, regSP, 8},
			[]at{
				{0, entry}, {1, Rule{SP, AtCFA, -16, 16}}, {4, Rule{BP, AtCFA, -16, 16}}, {64, entry},
			},
		},
		"other registers": {
			[]byte{advance(1), cfaOffset | 3, 2, cfaOffset | 15, 3, cfaOffsetExtended, 0x20, 4, cfaRestore | 3, cfaUndefined, 2, cfaSameValue, 3, cfaRegister, 3, 4, cfaValOffset, 3, 1},
			[]at{{0, entry}},
		},
		"remembered": {
			[]byte{advance(1), cfaDefCFAOffset, 16, cfaOffset | regBP, 2, advance(3), cfaRememberState, cfaRememberState, cfaRestore | regBP, cfaDefCFA, regSP, 8,
				advance(4), cfaRestoreState, advance(4), cfaDefCFAOffset, 48, advance(4), cfaRestoreState},
			[]at{{0, entry}, {1, Rule{SP, AtCFA, -16, 16}}, {4, entry}, {8, Rule{SP, AtCFA, -16, 16}}, {12, Rule{SP, AtCFA, -16, 48}}, {16, Rule{SP, AtCFA, -16, 16}}},
		},
		"restored without need":     {[]byte{advance(1), cfaRestoreState}, []at{{0, entry}, {1, unsupported}}},
		"remembered too often":      {append([]byte{advance(1)}, bytes.Repeat([]byte{cfaRememberState}, maxRemembered+1)...), []at{{0, entry}, {1, unsupported}}},
		"remembered often":          {append([]byte{advance(1)}, bytes.Repeat([]byte{cfaRememberState}, maxRemembered)...), []at{{0, entry}}},
		"extended":                  {[]byte{advance(1), cfaOffsetExtended, regBP, 4, advance(1), cfaRestoreExtended, regBP}, []at{{0, entry}, {1, Rule{SP, AtCFA, -32, 8}}, {2, entry}}},
		"signed":                    {[]byte{advance(1), cfaOffsetExtendedSF, regBP, 0x7e, advance(1), cfaDefCFASF, regBP, 0x7e, advance(1), cfaDefCFAOffsetSF, 2}, []at{{0, entry}, {1, Rule{SP, AtCFA, 16, 8}}, {2, Rule{BP, AtCFA, 16, 16}}, {3, Rule{BP, AtCFA, 16, -16}}}},
		"negative extended":         {[]byte{cfaNegOffsetExtended, regBP, 2}, []at{{0, Rule{SP, AtCFA, 16, 8}}}},
		"rbp undefined":             {[]byte{cfaUndefined, regBP, advance(1), cfaSameValue, regBP}, []at{{0, Rule{SP, Lost, 0, 8}}, {1, entry}}},
		"rbp in a register":         {[]byte{cfaRegister, regBP, 9}, []at{{0, Rule{SP, Lost, 0, 8}}}},
		"rbp a sum":                 {[]byte{cfaValOffset, regBP, 2}, []at{{0, Rule{SP, Lost, 0, 8}}}},
		"rbp a signed sum":          {[]byte{cfaValOffsetSF, regBP, 0x7e}, []at{{0, Rule{SP, Lost, 0, 8}}}},
		"rbp a value":               {concat([]byte{cfaValExpression, regBP}, block(opBreg6, 0)), []at{{0, Rule{SP, Lost, 0, 8}}}},
		"rbp at rbp":                {concat([]byte{cfaExpression, regBP}, block(opBreg6, 0x78)), []at{{0, Rule{SP, AtBP, -8, 8}}}},
		"rbp at rsp":                {concat([]byte{cfaExpression, regBP}, block(opBreg7, 0x78)), []at{{0, Rule{SP, Lost, 0, 8}}}},
		"rbp far from the CFA":      {[]byte{cfaOffset | regBP, 0x80, 0x20, advance(1), cfaOffset | regBP, 0x81, 0x20}, []at{{0, Rule{SP, AtCFA, -32768, 8}}, {1, Rule{SP, Lost, 0, 8}}}},
		"a large frame":             {[]byte{cfaDefCFAOffset, 0x80, 0x80, 0x08}, []at{{0, Rule{CFA: SP, CFAOffset: 0x20000}}}},
		"a frame of 2 GiB":          {[]byte{cfaDefCFAOffset, 0x80, 0x80, 0x80, 0x80, 0x08}, []at{{0, unsupported}}},
		"an impossible number":      {[]byte{cfaDefCFAOffset, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, []at{{0, unsupported}}},
		"no end":                    {[]byte{advance(1), cfaUndefined, regRA}, []at{{0, entry}, {1, Rule{CFA: End}}}},
		"end and return":            {[]byte{cfaUndefined, regRA, advance(1), cfaRestore | regRA}, []at{{0, Rule{CFA: End}}, {1, entry}}},
		"return address elsewhere":  {[]byte{advance(1), cfaOffset | regRA, 2, advance(1), cfaOffset | regRA, 1}, []at{{0, entry}, {1, unsupported}, {2, entry}}},
		"return address in rdx":     {[]byte{cfaRegister, regRA, 1}, []at{{0, unsupported}}},
		"return address a sum":      {[]byte{cfaValOffset, regRA, 1}, []at{{0, unsupported}}},
		"return address unsaved":    {[]byte{cfaSameValue, regRA}, []at{{0, unsupported}}},
		"return address at rsp":     {concat([]byte{cfaExpression, regRA}, block(opBreg7, 8)), []at{{0, unsupported}}},
		"rsp in r8":                 {[]byte{cfaRegister, regSP, 8, advance(1), cfaRestore | regSP}, []at{{0, unsupported}, {1, entry}}},
		"rsp saved":                 {[]byte{cfaOffset | regSP, 2, advance(1), cfaSameValue, regSP}, []at{{0, unsupported}, {1, entry}}},
		"rsp undefined":             {[]byte{cfaUndefined, regSP}, []at{{0, entry}}},
		"CFA of r10":                {[]byte{advance(1), cfaDefCFA, 10, 0, advance(1), cfaDefCFARegister, regBP}, []at{{0, entry}, {1, unsupported}, {2, Rule{CFA: BP}}}},
		"CFA of a register's word":  {concat([]byte{cfaDefCFAExpression}, block(opBreg6, 0x78, opDeref), []byte{advance(1), cfaDefCFA, regSP, 8}), []at{{0, Rule{CFA: DerefBP, CFAOffset: 0xfff8}}, {1, entry}}},
		"register after expression": {concat([]byte{cfaDefCFAOffset, 32, cfaDefCFAExpression}, block(opBreg7, 0, opDeref), []byte{advance(1), cfaDefCFARegister, regBP}), []at{{0, Rule{CFA: DerefSP}}, {1, Rule{CFA: BP, CFAOffset: 32}}}},
		"an unknown expression":     {concat([]byte{cfaDefCFAExpression}, block(opBreg16, 0), []byte{advance(1), cfaDefCFA, regSP, 8}), []at{{0, unsupported}, {1, entry}}},
		"an expression cut":         {[]byte{advance(1), cfaDefCFAExpression, 4, opBreg7, 0}, []at{{0, entry}, {1, unsupported}}},
		"an unknown instruction":    {[]byte{advance(1), cfaDefCFAOffset, 16, advance(1), 0x3f, advance(1), cfaDefCFAOffset, 8}, []at{{0, entry}, {1, Rule{CFA: SP, CFAOffset: 16}}, {2, unsupported}}},
		"an operand cut":            {[]byte{advance(1), cfaDefCFAOffset, 16, advance(1), cfaAdvance4, 1}, []at{{0, entry}, {1, Rule{CFA: SP, CFAOffset: 16}}, {2, unsupported}}},
		"a large factor":            {[]byte{cfaOffset | regBP, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}, []at{{0, unsupported}}},
		"a large negative factor":   {[]byte{cfaOffsetExtendedSF, regBP, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40}, []at{{0, unsupported}}},
	} {
		t.Run(name, func(t *testing.T) {
			table := new(assembler).cie().fde(textAddr+0x800, size, test.code...).table(t)
			checkRules(t, table, textAddr+0x800, size, test.want)
			qt.Check(t, qt.Equals(table.Find(textAddr+0x7ff), Rule{}))
			qt.Check(t, qt.Equals(table.Find(textAddr+0x800+size), Rule{}))
		})
	}
}

func TestSetLocation(t *testing.T) {
	a := new(assembler).cieOf(1, "zR", []byte{formatUdata4}, usual)
	a.fde(textAddr, 0x100, cfaSetLoc, 0x10, 0, 1, 0, cfaDefCFAOffset, 16, cfaSetLoc, 0x10, 0, 1, 0, cfaDefCFAOffset, 24,
		cfaSetLoc, 0, 0, 2, 0, cfaDefCFAOffset, 32)
	a.fde(textAddr+0x100, 0x100, cfaSetLoc, 0, 0, 1, 0, cfaDefCFAOffset, 16)
	table := a.table(t)
	checkRules(t, table, textAddr, 0x200, []at{{0, entry}, {0x10, Rule{CFA: SP, CFAOffset: 24}}, {0x100, unsupported}})
}

func TestUnsupported(t *testing.T) {
	a := new(assembler).cie()
	a.fde(textAddr, 0x10, cfaDefCFA, 10, 8, advance(1), cfaDefCFAOffset, 16)
	a.fde(textAddr+0x10, 0x10, concat([]byte{cfaDefCFAExpression}, block(opBreg16, 0))...)
	a.fde(textAddr+0x20, 0x10, cfaRegister, regRA, 1)
	a.fde(textAddr+0x30, 0x10, cfaDefCFAOffset, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f)
	a.fde(textAddr+0x40, 0x10, 0x3f)
	a.fde(textAddr+0x50, 0)
	a.fde(1, 0x10)
	a.record([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	table := a.table(t)
	checkRules(t, table, textAddr, 0x50, []at{{0, unsupported}})
	qt.Check(t, qt.HasLen(table.Rows, 2)) // neighbours are merged
}
