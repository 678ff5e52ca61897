package layout

import (
	"cmp"
	"io"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/symbolize"
)

// patched is a file with other bytes in one place.
type patched struct {
	io.ReaderAt
	at    int64
	patch []byte
}

func (p *patched) ReadAt(b []byte, at int64) (int, error) {
	n, err := p.ReaderAt.ReadAt(b, at)
	if from := p.at - at; from < int64(n) && from > -int64(len(p.patch)) {
		copy(b[max(0, from):n], p.patch[max(0, -from):])
	}
	return n, err
}

// FuzzDerive changes the code of a function that a real library's layout is derived from. A
// field has one place or is missing.
func FuzzDerive(f *testing.F) {
	file, err := os.Open(library(f, "0.81.1"))
	qt.Assert(f, qt.IsNil(err))
	f.Cleanup(func() { file.Close() })
	info, err := file.Stat()
	qt.Assert(f, qt.IsNil(err))
	changed := &patched{ReaderAt: file}
	e, err := symbolize.New(changed, info.Size())
	qt.Assert(f, qt.IsNil(err))
	intact, err := derive(e)
	qt.Assert(f, qt.IsNil(err))
	functions := slices.SortedFunc(maps.Values(intact.flows), func(a, b *flow) int { return cmp.Compare(a.fn.Addr, b.fn.Addr) })
	for i := 0; i < len(functions); i += 40 { // each takes a tenth of a second
		f.Add(uint16(i), uint16(i), []byte{0x48, 0x8b, 0x40, 0x7c})
	}
	f.Fuzz(func(t *testing.T, function, offset uint16, patch []byte) {
		fn := functions[int(function)%len(functions)].fn
		at, ok := e.FileOffset(fn.Addr + uint64(offset)%max(fn.Size, 1))
		qt.Assert(t, qt.IsTrue(ok))
		changed.at, changed.patch = int64(at), patch
		var d *deriver
		fuzztest.Bounded(t, 1<<20, 1000, func() { d, err = derive(e) })
		qt.Assert(t, qt.IsNil(err))
		for name, c := range d.layout.Fields {
			qt.Check(t, qt.IsNil(plausible(c, 1)), qt.Commentf("%s", name))
		}
		for _, m := range d.layout.Missing {
			qt.Check(t, qt.IsTrue(d.layout.Fields[m.Name] == nil), qt.Commentf("%s is at %v and missing", m.Name, d.layout.Fields[m.Name]))
			fuzztest.Printable(t, m.Why)
		}
		for name, p := range d.layout.Probes {
			qt.Check(t, qt.IsTrue(p.ProbeAddr >= p.Addr && p.ProbeAddr < p.Addr+max(p.Size, unsized)), qt.Commentf("%s: %+v", name, p))
		}
	})
}
