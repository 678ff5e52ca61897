package unwind

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestParseCFA(t *testing.T) {
	stub := []byte{opBreg7, 8, opBreg16, 0, opLit15, opAnd, opLit0 + 11, opGe, opLit3, opShl, opPlus}
	changed := func(i int, v byte) []byte {
		b := append([]byte(nil), stub...)
		b[i] = v
		return b
	}
	for name, test := range map[string]struct {
		b      []byte
		cfa    CFA
		offset int64
	}{
		"a stub":             {stub, PLT, 11},
		"a stub with endbr":  {changed(6, opLit0+10), PLT, 10},
		"rsp":                {[]byte{opBreg7, 0x88, 0}, SP, 8},
		"rbp":                {[]byte{opBreg6, 0x70}, BP, -16},
		"realigned":          {[]byte{opBreg6, 0x78, opDeref}, DerefBP, 0xfff8},
		"OpenSSL":            {[]byte{opBreg7, 0x98, 1, opDeref, opPlusUconst, 8}, DerefSP, 8<<16 | 152},
		"OpenSSL, below rsp": {[]byte{opBreg7, 0x78, opDeref, opPlusUconst, 8}, DerefSP, 8<<16 | 0xfff8},
		"the largest":        {[]byte{opBreg7, 0xff, 0xff, 1, opDeref, opPlusUconst, 0xff, 0xff, 1}, DerefSP, 0x7fff7fff},
		"offset too large":   {[]byte{opBreg7, 0x80, 0x80, 2, opDeref}, NoRow, 0},
		"addend too large":   {[]byte{opBreg7, 0, opDeref, opPlusUconst, 0x80, 0x80, 2}, NoRow, 0},
		"empty":              {nil, NoRow, 0},
		"cut":                {[]byte{opBreg7}, NoRow, 0},
		"cut further on":     {[]byte{opBreg7, 0, opDeref, opPlusUconst}, NoRow, 0},
		"another register":   {[]byte{0x70, 8}, NoRow, 0},
		"read twice":         {[]byte{opBreg7, 8, opDeref, opDeref}, NoRow, 0},
		"something follows":  {[]byte{opBreg7, 0, opDeref, opPlusUconst, 8, opDeref}, NoRow, 0},
		"OpenSSL, indexed":   {[]byte{opBreg7, 8, 0x79, 0, 0x38, 0x1e, opPlus, opDeref, opPlusUconst, 8}, NoRow, 0},
		"a stub of rbp":      {changed(0, opBreg6), NoRow, 0},
		"a stub from 16":     {changed(1, 16), NoRow, 0},
		"a stub of rip + 1":  {changed(3, 1), NoRow, 0},
		"a stub of 17 bytes": {changed(6, opLit0+17), NoRow, 0},
		"a stub, no number":  {changed(6, opDeref), NoRow, 0},
		"a stub that grows":  {append(changed(0, opBreg7), opDeref), NoRow, 0},
	} {
		cfa, offset, ok := parseCFA(test.b)
		qt.Check(t, qt.Equals(ok, test.cfa != NoRow), qt.Commentf("%s", name))
		if ok {
			qt.Check(t, qt.Equals(cfa, test.cfa), qt.Commentf("%s", name))
			qt.Check(t, qt.Equals(offset, test.offset), qt.Commentf("%s", name))
		}
	}
}

func TestParseBP(t *testing.T) {
	for name, test := range map[string]struct {
		b      []byte
		offset int16
		ok     bool
	}{
		"rbp":              {[]byte{opBreg6, 0}, 0, true},
		"below rbp":        {[]byte{opBreg6, 0x70}, -16, true},
		"rsp":              {[]byte{opBreg7, 0}, 0, false},
		"read":             {[]byte{opBreg6, 0, opDeref}, 0, false},
		"offset too large": {[]byte{opBreg6, 0x80, 0x80, 2}, 0, false},
		"cut":              {[]byte{opBreg6, 0x80}, 0, false},
		"empty":            {nil, 0, false},
	} {
		offset, ok := parseBP(test.b)
		qt.Check(t, qt.Equals(ok, test.ok), qt.Commentf("%s", name))
		if ok {
			qt.Check(t, qt.Equals(offset, test.offset), qt.Commentf("%s", name))
		}
	}
}
