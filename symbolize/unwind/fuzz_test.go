package unwind

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/symbolize"
)

// hostile checks the table of n hostile bytes with code on pages pages.
func hostile(t *testing.T, table *Table, n int, pages uint64) {
	t.Helper()
	if table == nil {
		return
	}
	checkTable(t, table)
	if got := uint64(len(table.Index)); got > pages+1 {
		t.Fatalf("%d entries of the index for %d pages", got, pages)
	}
	if got := uint64(len(table.Rows)); got > uint64(n)+2*pages {
		t.Fatalf("%d rows of %d bytes and %d pages", got, n, pages)
	}
	first := uint64(table.FirstPage) << PageShift
	for page := range table.pages() {
		from, to := table.Index[page], table.Index[page+1]
		want := Rule{}
		if from < to {
			want = table.Rules[table.Rows[from]&0xffff]
		}
		qt.Assert(t, qt.Equals(table.Find(first+page<<PageShift), want))
		if from < to {
			want = table.Rules[table.Rows[to-1]&0xffff]
		}
		qt.Assert(t, qt.Equals(table.Find(first+page<<PageShift+pageSize-1), want))
	}
}

// checkGaps checks that there is a rule exactly where there is an FDE.
func checkGaps(t *testing.T, table *Table, fdes []fde) {
	t.Helper()
	covered := func(addr uint64) (in bool) {
		for _, d := range fdes {
			in = in || d.start <= addr && addr < d.end
		}
		return in
	}
	// FDEs may cut each other, so a place in one need not have a rule
	for range 64 {
		addr := textAddr + rand.Uint64N(textSize)
		if table.Find(addr) != (Rule{}) && !covered(addr) {
			t.Fatalf("a rule at %#x, where no function is", addr)
		}
	}
	for _, d := range fdes {
		if table.Find(d.start) == (Rule{}) {
			t.Fatalf("no rule at %#x, where a function begins", d.start)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{})
	f.Add(twoObjects())
	everything := new(assembler).cieOf(1, "zPLR", []byte{0x9b, 1, 2, 3, 4, 0x1b, 0x1b}, usual)
	everything.fde(textAddr, 0x100, advance(1), cfaDefCFAOffset, 16, cfaOffset|regBP, 2, advance(3), cfaDefCFARegister, regBP, cfaRememberState,
		cfaAdvance1, 0x20, cfaRestore|regBP, cfaDefCFA, regSP, 8, advance(1), cfaRestoreState, cfaArgsSize, 16)
	everything.cie().fde(textAddr+0x200, 0x100, concat([]byte{cfaDefCFAExpression}, block(opBreg7, 8, opBreg16, 0, opLit15, opAnd, 0x3b, opGe, opLit3, opShl, opPlus))...)
	everything.fde(textAddr+0x300, 0x2000, concat([]byte{cfaDefCFA, 10, 0, advance(5), cfaExpression, regBP}, block(opBreg6, 0),
		[]byte{cfaDefCFAExpression}, block(opBreg6, 0x78, opDeref), []byte{cfaAdvance2, 0, 0x10, cfaUndefined, regRA})...)
	everything.cieOf(3, "zRS", []byte{formatUdata4}, usual).fde(textAddr+0x3000, 0x10).terminator()
	f.Add(everything.b)
	f.Add(new(assembler).cieOf(4, "", nil, usual).fde(textAddr, 1<<60, bytes.Repeat([]byte{cfaAdvance4, 0, 0x10, 0, 0, cfaDefCFAOffset, 16}, 20)...).b)
	f.Add(new(assembler).cie().fde(textAddr, 0x1000, bytes.Repeat([]byte{cfaRememberState}, 100)...).b)
	f.Fuzz(func(t *testing.T, b []byte) {
		frames := &frames{addr: framesAddr, data: b, hdr: hdrAddr}
		var table *Table
		fuzztest.Ends("building a table", func() { table, _ = frames.build(testText, textSize>>PageShift) })
		hostile(t, table, len(b), textSize>>PageShift)
		if table != nil {
			_, fdes, _ := frames.read(&machine{frames: frames}, testText)
			checkGaps(t, table, fdes)
		}
	})
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte{})
	f.Add((&image{frames: twoObjects(), section: true}).bytes()[:framesAddr])
	for _, file := range []image{
		{frames: twoObjects(), section: true},
		{frames: twoObjects(), segment: true, hdr: hdrOf(2)},
		{frames: twoObjects(), section: true, segment: true, hdr: hdrOf(2), text: []span{{0x1000, 0x2000}, {textAddr, textAddr + 0x1000}, {1 << 30, 1 << 31}}},
		{frames: new(assembler).cie().fde(textAddr, 1<<31-1).b, section: true, text: []span{{textAddr, 1 << 62}}},
	} {
		f.Add(file.bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		var table *Table
		fuzztest.Bounded(t, len(b), 1000, func() { table, err = Build(e, nil) })
		qt.Assert(t, qt.Equals(table == nil, err != nil))
		hostile(t, table, len(b), maxPages(uint64(len(b))))
	})
}

// TestHostile builds the most expensive files: the cost is in proportion to their size.
func TestHostile(t *testing.T) {
	short := func(instructions ...byte) func(n int) []byte {
		return func(n int) []byte {
			a := new(assembler).cie()
			for i := 0; len(a.b) < n; i++ {
				a.fde(textAddr+uint64(i*5)%textSize, 1<<30, instructions...)
			}
			return a.b
		}
	}
	long := func(instructions ...byte) func(n int) []byte {
		return func(n int) []byte {
			return new(assembler).cie().fde(textAddr, textSize, bytes.Repeat(instructions, n/len(instructions))...).b
		}
	}
	repeat := func(b ...byte) func(n int) []byte {
		return func(n int) []byte { return bytes.Repeat(b, n/len(b)) }
	}
	for name, frames := range map[string]func(n int) []byte{
		"FDEs":                short(),
		"FDEs of all else":    short(cfaAdvance4, 0xff, 0xff, 0xff, 0xff),
		"rows":                long(advance(1), cfaDefCFAOffset, 16, advance(1), cfaDefCFAOffset, 24),
		"advances of nothing": long(advance(0)),
		"changes":             long(cfaDefCFAOffset, 16),
		"remembered":          long(cfaRememberState, cfaRestoreState),
		"terminators":         repeat(0),
		"many CIEs": func(n int) []byte {
			cies := new(assembler)
			for len(cies.b) < n/2 {
				cies.cie()
			}
			for last := 0; len(cies.b) < n; last += 20 { // FDEs of ever another CIE
				cies.last = last
				cies.fde(textAddr+uint64(last)%textSize, 1)
			}
			return cies.b
		},
		"a large CIE": func(n int) []byte {
			large := new(assembler).cieOf(1, "zR", []byte{formatUdata4}, concat(usual, bytes.Repeat([]byte{cfaNop}, n/2)))
			for i := 0; len(large.b) < n; i++ {
				large.fde(textAddr+uint64(i), 1)
			}
			return large.b
		},
		"empty records":         repeat(1, 0, 0, 0, 0),
		"CIEs without an end":   repeat(6, 0, 0, 0, 0, 0, 0, 0, 1, 'z'),
		"FDEs of nothing":       repeat(4, 0, 0, 0, 1, 0, 0, 0),
		"augmentation too long": repeat(0xff, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 1, 16, 0xff, 0xff, 0xff, 0xff, 0x7f),
	} {
		t.Run(name, func(t *testing.T) {
			const n = 8 << 20
			files := map[int]image{n: {frames: frames(n), section: true}, n / 8: {frames: frames(n / 8), section: true}}
			fuzztest.Proportional(t, n, func(n int) {
				f := files[n]
				table, _ := f.table()
				hostile(t, table, len(f.frames), maxPages(uint64(len(f.frames)+framesAddr)))
			})
		})
	}
}
