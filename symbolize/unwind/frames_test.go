package unwind

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"
)

// sp returns a rule to distinguish FDEs by.
func sp(offset uint8) Rule { return Rule{CFA: SP, CFAOffset: int32(offset)} }

// offsetIs encodes the instruction for it.
func offsetIs(offset uint8) []byte { return []byte{cfaDefCFAOffset, offset} }

func TestGaps(t *testing.T) {
	a := new(assembler).cie()
	a.fde(textAddr+0x3010, 0x10, offsetIs(32)...) // not in the order of addresses
	a.fde(textAddr+0x10, 0x10, offsetIs(16)...)
	a.fde(textAddr+0x20, 0xfe0, offsetIs(24)...) // up to the page's end
	table := a.table(t)
	checkRules(t, table, textAddr, 0x4000, []at{
		{0, Rule{}}, {0x10, sp(16)}, {0x20, sp(24)}, {0x1000, Rule{}}, {0x3010, sp(32)}, {0x3020, Rule{}},
	})
	qt.Check(t, qt.DeepEquals(table.Index, []uint32{0, 3, 3, 3, 6})) // two pages have no rows
	qt.Check(t, qt.DeepEquals(table.Rows, []uint32{
		0, 0x10<<16 | 2, 0x20<<16 | 3, 0, 0x10<<16 | 4, 0x20 << 16,
	}))
	qt.Check(t, qt.DeepEquals(table.Rules, []Rule{{}, unsupported, sp(16), sp(24), sp(32)}))
	qt.Check(t, qt.Equals(table.FirstPage, textAddr>>PageShift))
}

func TestLongFunction(t *testing.T) {
	table := new(assembler).cie().fde(textAddr+0x10, 0x2ff0, cfaAdvance2, 0xf0, 0x0f, cfaDefCFAOffset, 16).table(t)
	// each page begins with the rule in force, also if it changes there
	qt.Check(t, qt.DeepEquals(table.Index, []uint32{0, 2, 3, 4}))
	qt.Check(t, qt.DeepEquals(table.Rows, []uint32{0, 0x10<<16 | 2, 3, 3}))
	checkRules(t, table, textAddr, 0x4000, []at{{0, Rule{}}, {0x10, entry}, {0x1000, sp(16)}, {0x3000, Rule{}}})
}

func TestOverlaps(t *testing.T) {
	for name, test := range map[string]struct {
		fdes [][2]uint64 // offsets of start and end; their CFAs are at rsp + 16, 24, …
		want []at
	}{
		"the later cuts the earlier":    {[][2]uint64{{0, 0x20}, {0x10, 0x30}}, []at{{0, sp(16)}, {0x10, sp(24)}, {0x30, Rule{}}}},
		"in any order":                  {[][2]uint64{{0x10, 0x30}, {0, 0x20}}, []at{{0, sp(24)}, {0x10, sp(16)}, {0x30, Rule{}}}},
		"also past its end":             {[][2]uint64{{0, 0x40}, {0x10, 0x20}}, []at{{0, sp(16)}, {0x10, sp(24)}, {0x20, Rule{}}}},
		"same start: the file's first":  {[][2]uint64{{0, 0x20}, {0, 0x30}, {0, 0x10}}, []at{{0, sp(16)}, {0x20, Rule{}}}},
		"empty ones cut nothing":        {[][2]uint64{{0, 0x20}, {0x10, 0x10}}, []at{{0, sp(16)}, {0x20, Rule{}}}},
		"empty ones are not first":      {[][2]uint64{{0, 0}, {0, 0x20}}, []at{{0, sp(24)}, {0x20, Rule{}}}},
		"ends with the segment":         {[][2]uint64{{0, 1 << 31}}, []at{{0, sp(16)}, {textSize, Rule{}}}},
		"neighbours of the same rule":   {[][2]uint64{{0, 0x20}, {0x40, 0x50}, {0x20, 0x40}}, []at{{0, sp(16)}, {0x20, sp(32)}, {0x40, sp(24)}, {0x50, Rule{}}}},
		"the last byte":                 {[][2]uint64{{textSize - 1, textSize}}, []at{{0, Rule{}}, {textSize - 1, sp(16)}, {textSize, Rule{}}}},
		"begins before the segment":     {[][2]uint64{{0, 0x10}, {0x1_0000_0000 - 8, 0x1_0000_0008}}, []at{{0, sp(16)}, {0x10, Rule{}}}},
		"two begin after one that ends": {[][2]uint64{{0, 0x10}, {0x20, 0x40}, {0x30, 0x50}}, []at{{0, sp(16)}, {0x10, Rule{}}, {0x20, sp(24)}, {0x30, sp(32)}, {0x50, Rule{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := new(assembler).cie()
			for i, d := range test.fdes {
				a.fde(textAddr+d[0], d[1]-d[0], offsetIs(uint8(16+8*i))...)
			}
			checkRules(t, a.table(t), textAddr, 0x20000, test.want)
		})
	}
}

func TestEncodings(t *testing.T) {
	for _, test := range []struct {
		encoding uint8
		ok       bool
	}{
		{formatAbsolute, true},
		{formatUdata4, true},
		{formatSdata4, true},
		{formatUdata8, true},
		{formatSdata8, true},
		{relativePC | formatAbsolute, true},
		{relativePC | formatUdata8, true},
		{relativePC | formatSdata8, true},
		{relativePC | formatSdata4, true},
		{relativeData | formatSdata4, true},
		{0x80 | relativePC | formatSdata4, false}, // indirect
		{0x40 | formatSdata4, false},              // relative to the function
		{0x01, false},                             // LEB128
		{0xff, false},                             // omitted
	} {
		t.Run(fmt.Sprintf("%#x", test.encoding), func(t *testing.T) {
			a := new(assembler).cieOf(1, "zR", []byte{test.encoding}, usual)
			a.fde(textAddr, 0x10, offsetIs(16)...)
			a.cie().fde(textAddr+0x20, 0x10)
			table := a.table(t)
			want := Rule{}
			if test.ok {
				want = sp(16)
			}
			qt.Check(t, qt.Equals(table.Find(textAddr), want))
			qt.Check(t, qt.Equals(table.Find(textAddr+0x20), entry))
		})
	}
	// short formats only reach addresses near the frames
	a := new(assembler).cieOf(1, "zR", []byte{relativePC | formatUdata2}, usual).fde(textAddr, 0x10)
	a.cieOf(1, "zR", []byte{relativePC | formatSdata2}, usual).fde(framesAddr+0x4000, 0x9000, offsetIs(16)...)
	table, err := (&frames{addr: framesAddr, data: a.b}).build(spans{{framesAddr, 0x100000}}, 1<<16)
	qt.Assert(t, qt.IsNil(err))
	checkRules(t, table, textAddr, 0x10, []at{{0, entry}})
	checkRules(t, table, framesAddr+0x4000, 0x9000, []at{{0, sp(16)}})
}

func TestCIEs(t *testing.T) {
	encoding := uint8(relativePC | formatSdata4)
	for name, test := range map[string]struct {
		version      uint8
		augmentation string
		data         []byte
		instructions []byte
		want         Rule
	}{
		"plain":                     {1, "", nil, usual, entry},
		"version 3":                 {3, "zR", []byte{encoding}, usual, entry},
		"version 4":                 {4, "zR", []byte{encoding}, usual, entry},
		"version 2":                 {2, "zR", []byte{encoding}, usual, Rule{}},
		"exceptions":                {1, "zPLR", []byte{encoding | 0x80, 1, 2, 3, 4, encoding, encoding}, usual, entry},
		"augmentation without data": {1, "zR", nil, usual, Rule{}},
		"unknown augmentation":      {1, "zRX", []byte{encoding}, usual, Rule{}},
		"the oldest augmentation":   {1, "eh", nil, usual, Rule{}},
		"signal frame":              {1, "zRS", []byte{encoding}, usual, Rule{CFA: Signal}},
		"no instructions":           {1, "zR", []byte{encoding}, nil, unsupported},
		"no CFA":                    {1, "zR", []byte{encoding}, usual[3:], unsupported},
		"no return address":         {1, "zR", []byte{encoding}, usual[:3], unsupported},
		"advances":                  {1, "zR", []byte{encoding}, concat(usual, []byte{advance(1)}), Rule{}},
		"restores":                  {1, "zR", []byte{encoding}, concat(usual, []byte{cfaRestore | regBP}), Rule{}},
		"unknown instruction":       {1, "zR", []byte{encoding}, concat(usual, []byte{0x3f}), Rule{}},
		"remembers":                 {1, "zR", []byte{encoding}, concat(usual, []byte{cfaRememberState, cfaDefCFAOffset, 16, cfaRestoreState}), entry},
	} {
		t.Run(name, func(t *testing.T) {
			a := new(assembler).cieOf(test.version, test.augmentation, test.data, test.instructions)
			if test.augmentation == "zR" && test.data == nil || test.augmentation == "eh" {
				a.encoding = encoding
			}
			a.fde(textAddr, 0x10)
			first := len(a.b)
			a.cie().fde(textAddr+0x20, 0x10)
			table := a.table(t)
			qt.Check(t, qt.Equals(table.Find(textAddr), test.want))
			qt.Check(t, qt.Equals(table.Find(textAddr+0x20), entry))
			// an FDE may refer to a CIE that is not the last
			a.last = 0
			a.encoding, a.augmented = encoding, true
			if test.augmentation == "" {
				a.encoding, a.augmented = 0, false
			}
			a.fde(textAddr+0x40, 0x10)
			qt.Check(t, qt.Equals(a.table(t).Find(textAddr+0x40), test.want))
			// or to none
			a.last = first + 1
			a.fde(textAddr+0x60, 0x10)
			qt.Check(t, qt.Equals(a.table(t).Find(textAddr+0x60), Rule{}))
		})
	}
}

func TestRemembering(t *testing.T) {
	// what a CIE or FDE remembers does not affect another
	a := new(assembler).cie().fde(textAddr, 0x10, cfaRememberState).fde(textAddr+0x10, 0x10, cfaRestoreState)
	checkRules(t, a.table(t), textAddr, 0x20, []at{{0, entry}, {0x10, unsupported}})
}

func TestFactors(t *testing.T) {
	for name, test := range map[string]struct {
		factors []byte // of code and data, and the return address
		want    []at
	}{
		"code in units of 4": {[]byte{4, 0x78, regRA}, []at{{0, entry}, {4, Rule{SP, AtCFA, -16, 8}}}},
		"data in units of 8": {[]byte{1, 0x08, regRA}, []at{{0, unsupported}}}, // above the CFA
		"no unit of code":    {[]byte{0, 0x78, regRA}, []at{{0, Rule{SP, AtCFA, -16, 8}}}},
		"a large unit":       {[]byte{0x81, 0x80, 0x04, 0x78, regRA}, []at{{0, Rule{}}}},
		"a large data unit":  {[]byte{1, 0x81, 0x80, 0x04, regRA}, []at{{0, Rule{}}}},
		"a negative one":     {[]byte{1, 0xff, 0xff, 0x7b, regRA}, []at{{0, Rule{}}}},
		"another column":     {[]byte{1, 0x78, regBP}, []at{{0, Rule{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &assembler{augmented: true, encoding: formatUdata4}
			a.record(concat([]byte{0, 0, 0, 0, 1, 'z', 'R', 0}, test.factors, []byte{1, formatUdata4}, usual))
			a.fde(textAddr, 0x10, advance(1), cfaOffset|regBP, 2)
			a.cie().fde(textAddr+0x20, 0x10)
			checkRules(t, a.table(t), textAddr, 0x10, test.want)
		})
	}
}

func TestLengths(t *testing.T) {
	usualCIE := new(assembler).cie()
	// Records of the 64-bit form refer to CIEs with 4 bytes, too.
	a := &assembler{augmented: true, encoding: formatUdata4}
	long := func(body []byte) {
		a.b = binary.LittleEndian.AppendUint64(append(a.b, 0xff, 0xff, 0xff, 0xff), uint64(len(body)))
		a.b = append(a.b, body...)
	}
	long(concat([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, regRA, 1, formatUdata4}, usual))
	long(concat([]byte{uint8(len(a.b) + 12), 0, 0, 0, 0, 0, 1, 0, 0x10, 0, 0, 0, 0}, offsetIs(16)))
	a.fde(textAddr+0x10, 0x10, offsetIs(24)...)
	checkRules(t, a.table(t), textAddr, 0x20, []at{{0, sp(16)}, {0x10, sp(24)}})

	for name, last := range map[string][]byte{
		"longer than the section":   {100, 0, 0, 0, 1},
		"much longer":               {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"no room for the length":    {0xff, 0xff, 0xff, 0xff, 1},
		"half a length":             {1, 0},
		"no room for the reference": {3, 0, 0, 0, 1, 2, 3},
		"no room for the address":   {6, 0, 0, 0, uint8(usualCIE.fde(textAddr, 0x10).last), 0, 0, 0, 1, 2},
	} {
		a := new(assembler).cie().fde(textAddr, 0x10)
		if name == "no room for the address" {
			last[4] = uint8(len(a.b) + 4)
		}
		a.b = append(a.b, last...)
		table := a.table(t)
		qt.Check(t, qt.Equals(table.Find(textAddr), entry), qt.Commentf("%s", name))
	}
}

func TestTerminators(t *testing.T) {
	a := new(assembler).terminator().cie().fde(textAddr, 0x10).terminator().terminator().fde(textAddr+0x10, 0x10)
	a.terminator().fde(textAddr+0x20, 0x10)
	checkRules(t, a.table(t), textAddr, 0x40, []at{{0, entry}, {0x30, Rule{}}})
	for atLeast, end := range map[uint64]uint64{1: 0x10, 2: 0x20, 3: 0x30, 9: 0x30} {
		table, err := (&frames{addr: framesAddr, data: a.b, ends: true, atLeast: atLeast}).build(testText, 1<<16)
		qt.Assert(t, qt.IsNil(err))
		checkRules(t, table, textAddr, 0x40, []at{{0, entry}, {end, Rule{}}})
	}
}

func TestNothing(t *testing.T) {
	for name, a := range map[string]*assembler{
		"empty":      {},
		"terminator": new(assembler).terminator(),
		"no FDE":     new(assembler).cie(),
		"no code":    new(assembler).cie().fde(textAddr-1, 0x10).fde(textAddr+textSize, 0x10),
		"no length":  new(assembler).cie().fde(textAddr, 0),
		"no CIE":     new(assembler).fde(textAddr, 0x10),
	} {
		_, err := (&frames{addr: framesAddr, data: a.b}).build(testText, 1<<16)
		qt.Check(t, qt.ErrorIs(err, ErrNoRows), qt.Commentf("%s", name))
	}
	qt.Check(t, qt.Equals(new(Table).Find(0), Rule{}))
}

func TestFarApart(t *testing.T) {
	text := spans{{0x1000, 0x2000}, {1 << 50, 1<<50 + 0x1000}, {1<<64 - 0x1001, 1<<64 - 1}}
	encoding := []byte{formatAbsolute}
	build := func(starts ...uint64) error {
		a := new(assembler).cieOf(1, "zR", encoding, usual)
		for _, start := range starts {
			a.fde(start, 1<<60)
		}
		table, err := (&frames{addr: framesAddr, data: a.b}).build(text, 1<<16)
		if err == nil {
			checkTable(t, table)
		}
		return err
	}
	qt.Check(t, qt.IsNil(build(0x1000)))
	qt.Check(t, qt.ErrorMatches(build(0x1000, 1<<50), "code of 274877906944 pages.*"))
	qt.Check(t, qt.ErrorMatches(build(1<<50), ".*beyond page.*"))
	qt.Check(t, qt.ErrorMatches(build(1<<64-2), ".*beyond page.*"))
	qt.Check(t, qt.Equals(maxPages(1<<60), maxIndex)) // a sparse file
}

func TestManyRules(t *testing.T) {
	a := new(assembler).cie()
	var code []byte
	const n = maxRules + 10
	for i := range n {
		code = append(code, cfaDefCFAOffset, uint8(i)|0x80, uint8(i>>7)|0x80, uint8(i>>14), advance(1))
	}
	a.fde(textAddr, n, code...)
	table, err := (&frames{addr: framesAddr, data: a.b, hdr: hdrAddr}).build(spans{{textAddr, 1 << 20}}, 1<<16)
	qt.Assert(t, qt.IsNil(err))
	checkTable(t, table)
	qt.Check(t, qt.HasLen(table.Rules, maxRules))
	for _, i := range []uint64{0, 1, maxRules - 3} {
		qt.Check(t, qt.Equals(table.Find(textAddr+i), Rule{CFA: SP, CFAOffset: int32(i)}))
	}
	qt.Check(t, qt.Equals(table.Find(textAddr+maxRules-2), unsupported))
	qt.Check(t, qt.Equals(table.Find(textAddr+n-1), unsupported))
}
