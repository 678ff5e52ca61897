package unwind

import (
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"
)

// The addresses of the tests' frames and code.
const (
	hdrAddr    = 0x200
	framesAddr = 0x280
	textAddr   = 0x10000
	textSize   = 0x10000
)

var testText = spans{{textAddr, textAddr + textSize}}

// assembler writes an .eh_frame.
type assembler struct {
	b    []byte
	last int // offset of the CIE that FDEs refer to
	// augmented: FDEs have augmentation data, of length 0
	augmented bool
	encoding  uint8
}

// usual is the initial rule of functions: CFA = rsp + 8, the return address at CFA - 8.
var usual = []byte{cfaDefCFA, regSP, 8, cfaOffset | regRA, 1}

// cie adds the CIE that compilers write.
func (a *assembler) cie() *assembler {
	return a.cieOf(1, "zR", []byte{relativePC | formatSdata4}, usual)
}

// cieOf adds a CIE with factors 1 and -8. The last byte of the augmentation data is the
// encoding of addresses.
func (a *assembler) cieOf(version uint8, augmentation string, data, instructions []byte) *assembler {
	body := append([]byte{0, 0, 0, 0, version}, augmentation...)
	body = append(body, 0)
	if version == 4 {
		body = append(body, 8, 0)
	}
	body = append(body, 1, 0x78, regRA)
	a.augmented, a.encoding = false, 0
	if augmentation != "" {
		a.augmented = augmentation[0] == 'z'
		body = append(append(body, uint8(len(data))), data...)
	}
	if n := len(data); n > 0 { // the R comes last
		a.encoding = data[n-1]
	}
	a.last = len(a.b)
	return a.record(append(body, instructions...))
}

// fde adds the FDE of size bytes of code.
func (a *assembler) fde(start, size uint64, instructions ...byte) *assembler {
	at := len(a.b) + 4
	body := binary.LittleEndian.AppendUint32(nil, uint32(at-a.last))
	switch a.encoding & relativeMask {
	case relativePC:
		start -= framesAddr + uint64(at) + 4
	case relativeData:
		start -= hdrAddr
	}
	for _, v := range []uint64{start, size} {
		switch a.encoding & formatMask {
		case formatUdata4, formatSdata4:
			body = binary.LittleEndian.AppendUint32(body, uint32(v))
		case formatUdata2, formatSdata2:
			body = binary.LittleEndian.AppendUint16(body, uint16(v))
		default:
			body = binary.LittleEndian.AppendUint64(body, v)
		}
	}
	if a.augmented {
		body = append(body, 0)
	}
	return a.record(append(body, instructions...))
}

// record adds a record with its length.
func (a *assembler) record(body []byte) *assembler {
	a.b = binary.LittleEndian.AppendUint32(a.b, uint32(len(body)))
	a.b = append(a.b, body...)
	return a
}

// terminator adds the end of an object file's frames.
func (a *assembler) terminator() *assembler {
	a.b = append(a.b, 0, 0, 0, 0)
	return a
}

// table builds the table of the frames.
func (a *assembler) table(t testing.TB) *Table {
	t.Helper()
	table, err := (&frames{addr: framesAddr, data: a.b, hdr: hdrAddr}).build(testText, 1<<16)
	qt.Assert(t, qt.IsNil(err))
	checkTable(t, table)
	return table
}

// concat joins instructions.
func concat(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// advance is DW_CFA_advance_loc.
func advance(n uint8) uint8 { return cfaAdvance | n }

// block encodes an expression with its length.
func block(b ...byte) []byte { return append([]byte{uint8(len(b))}, b...) }

// checkTable checks the invariants of a table.
func checkTable(t testing.TB, table *Table) {
	t.Helper()
	qt.Assert(t, qt.IsTrue(len(table.Index) >= 2))
	qt.Assert(t, qt.Equals(table.Index[0], 0))
	qt.Assert(t, qt.Equals(int(table.Index[len(table.Index)-1]), len(table.Rows)))
	qt.Assert(t, qt.IsTrue(len(table.Rules) >= 1 && len(table.Rules) <= maxRules))
	qt.Assert(t, qt.Equals(table.Rules[0], Rule{}))
	seen := map[Rule]bool{}
	for _, r := range table.Rules {
		if seen[r] {
			t.Fatalf("%+v is there twice", r)
		}
		seen[r] = true
	}
	for i := range table.Index[1:] {
		from, to := table.Index[i], table.Index[i+1]
		if from > to {
			t.Fatalf("page %d: rows %d to %d", i, from, to)
		}
		for n := from; n < to; n++ {
			row := table.Rows[n]
			if row>>16 >= pageSize || row&0xffff >= uint32(len(table.Rules)) {
				t.Fatalf("page %d: row %#x", i, row)
			}
			if n == from && row>>16 != 0 || n > from && row>>16 <= table.Rows[n-1]>>16 {
				t.Fatalf("page %d: row %#x does not ascend", i, row)
			}
			if n > from && row&0xffff == table.Rows[n-1]&0xffff {
				t.Fatalf("page %d: row %#x is that before", i, row)
			}
		}
	}
	first := uint64(table.FirstPage) << PageShift
	end := first + uint64(len(table.Index)-1)<<PageShift
	for _, outside := range []uint64{first - 1, end, 0, 1<<64 - 1} {
		if outside < first || outside >= end {
			qt.Assert(t, qt.Equals(table.Find(outside), Rule{}))
		}
	}
}
