package uses

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

func find(f func([]uint64, uint64) []uint64, at uint64) uint64 {
	if ids := f(nil, at); len(ids) == 1 {
		return ids[0]
	}
	return 0
}

// An argument is the first address of a buffer; a circular buffer may lie anywhere inside one in L1.
func TestPlaces(t *testing.T) {
	var p Places
	p.Add(event.DRAM, 0x100040, 0x200000, 1)
	p.Add(event.L1, 0x100000, 0x110000, 2)
	p.Add(event.L1Small, 0x120000, 0x120100, 3)
	p.Add(event.Trace, 0x130000, 0x140000, 4)
	p.Add(event.L1, 0, 0x1000, 5) // at different addresses of its cores
	for at, want := range map[uint64]uint64{0x100040: 1, 0x100050: 0, 0x100000: 2, 0x100010: 0, 0x120000: 3, 0x130000: 0, 0: 0} {
		qt.Check(t, qt.Equals(find(p.Argument, at), want), qt.Commentf("%#x", at))
	}
	for at, want := range map[uint64]uint64{0xffff0: 0, 0x100000: 2, 0x100040: 2, 0x10fff0: 2, 0x110000: 0, 0x1200f0: 3, 0x120100: 0, 0x1fff0: 0} {
		qt.Check(t, qt.Equals(find(p.Static, at), want), qt.Commentf("%#x", at))
	}
	// addresses of DRAM and L1 overlap: such an argument is not certain
	p.Add(event.L1, 0x100040, 0x100080, 6)
	qt.Check(t, qt.Equals(find(p.Argument, 0x100040), 0))
	p.Remove(event.L1, 0x100040, 7)
	p.Remove(event.L1, 0x100040, 6)
	qt.Check(t, qt.Equals(find(p.Argument, 0x100040), 1))
	p.Remove(event.DRAM, 0x100040, 1)
	p.Remove(event.L1, 0x100000, 2)
	p.Remove(event.L1Small, 0x120000, 3)
	for range p.All() {
		t.Error("a buffer stays")
	}
}

// An event may give a buffer any address: what follows from it is bounded.
func TestPlacesAreBounded(t *testing.T) {
	var p Places
	for id := range uint64(2 * maxBlocks) {
		p.Add(event.L1, 16*id+16, 16*id+32, id)
	}
	qt.Check(t, qt.HasLen(p.l1, maxBlocks))
	for id := range uint64(2 * maxBlocks) {
		p.Remove(event.L1, 16*id+16, id)
	}
	qt.Check(t, qt.HasLen(p.l1, 0))
}

func TestUses(t *testing.T) {
	var b Buffers
	b.Begin(7)
	b.Add(1, 10)
	b.Add(1, 10) // twice in a run is once
	b.Add(2, 10)
	qt.Check(t, qt.Equals(b.Latest(), 2))
	b.Begin(8)
	b.Add(2, 20)
	first, second := Moment{1, 10}, Moment{2, 20}
	qt.Check(t, qt.Equals(b.Of(1), Use{1, first, first}))
	qt.Check(t, qt.Equals(b.Of(2), Use{2, first, second}))
	qt.Check(t, qt.Equals(b.Of(3), Use{}))
	b.Refuse(7) // not the latest
	qt.Check(t, qt.Equals(b.Of(2), Use{2, first, second}))
	b.Begin(9)
	b.Add(2, 30)
	b.Add(3, 30)
	b.Perhaps(4, 5)
	qt.Check(t, qt.ContentEquals(b.Possible(), []uint64{2, 3, 4, 5}))
	b.Refuse(9)
	b.Refuse(9)
	qt.Check(t, qt.HasLen(b.Possible(), 0))
	qt.Check(t, qt.Equals(b.Of(2), Use{2, first, second}))
	qt.Check(t, qt.Equals(b.Of(3), Use{}))
	qt.Check(t, qt.Equals(b.Runs, 2))
	b.Transfer(2, 35)
	qt.Check(t, qt.Equals(b.Of(2), Use{3, first, Moment{2, 35}}))
	b.Ended(1)
	qt.Check(t, qt.Equals(b.Of(1), Use{}))

	w := codec.NewWriter()
	b.Code(w)
	var read Buffers
	r := codec.NewReader(w.Data, nil)
	read.Code(r)
	qt.Assert(t, qt.IsFalse(r.Bad))
	qt.Check(t, qt.Equals(read.Of(2), b.Of(2)))
	read.Begin(10)
	read.Add(2, 40)
	qt.Check(t, qt.Equals(read.Of(2), Use{4, first, Moment{3, 40}}))
}
