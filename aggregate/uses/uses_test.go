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

// of returns the use of a buffer.
func of(b *Buffers, id uint64) Use {
	u, _ := b.Of(id)
	return u
}

func TestUses(t *testing.T) {
	var b Buffers
	b.Begin(7, 10, nil, false)
	b.Add(1)
	b.Add(1) // twice in a run is once
	b.Add(2)
	qt.Check(t, qt.Equals(b.Latest(), 2))
	b.Begin(8, 20, nil, false)
	b.Add(2)
	first, second := Moment{Run: 1, TimeNs: 10}, Moment{Run: 2, TimeNs: 20}
	qt.Check(t, qt.Equals(of(&b, 1), Use{Count: 1, First: first, Last: first}))
	qt.Check(t, qt.Equals(of(&b, 2), Use{Count: 2, First: first, Last: second}))
	qt.Check(t, qt.Equals(of(&b, 3), Use{}))
	b.Refuse(7) // not the latest
	qt.Check(t, qt.Equals(of(&b, 2), Use{Count: 2, First: first, Last: second}))
	b.Begin(9, 30, nil, false)
	b.Add(2)
	b.Add(3)
	b.Perhaps(4, 5)
	qt.Check(t, qt.ContentEquals(b.Possible(), []uint64{2, 3, 4, 5}))
	b.Refuse(9)
	b.Refuse(9)
	qt.Check(t, qt.HasLen(b.Possible(), 0))
	qt.Check(t, qt.Equals(of(&b, 2), Use{Count: 2, First: first, Last: second}))
	qt.Check(t, qt.Equals(of(&b, 3), Use{}))
	qt.Check(t, qt.Equals(b.Runs, 2))
	b.Transfer(2, 35, nil)
	qt.Check(t, qt.Equals(of(&b, 2), Use{Count: 3, First: first, Last: Moment{Run: 2, TimeNs: 35}}))
	b.Ended(1)
	qt.Check(t, qt.Equals(of(&b, 1), Use{}))

	w := codec.NewWriter()
	b.Code(w)
	var read Buffers
	r := codec.NewReader(w.Data, nil)
	read.Code(r)
	qt.Assert(t, qt.IsFalse(r.Bad))
	qt.Check(t, qt.Equals(of(&read, 2), of(&b, 2)))
	read.Begin(10, 40, nil, false)
	read.Add(2)
	qt.Check(t, qt.Equals(of(&read, 2), Use{Count: 4, First: first, Last: Moment{Run: 3, TimeNs: 40}}))
}

// A run that is refused takes back only its own uses: not those of buffers that ended, or that the host used, since.
func TestRefusedAfterOtherUses(t *testing.T) {
	var b Buffers
	b.Begin(7, 10, nil, false)
	for id := range uint64(4) {
		b.Add(id)
	}
	b.Ended(0)
	b.Transfer(1, 20, nil)
	b.Ended(2)
	b.Transfer(2, 30, nil) // another buffer with the id
	qt.Check(t, qt.DeepEquals(b.Possible(), []uint64{3}))
	qt.Check(t, qt.Equals(b.Latest(), 1))
	w := codec.NewWriter()
	b.Code(w)
	var read Buffers
	read.Code(codec.NewReader(w.Data, nil))
	for _, b := range []*Buffers{&b, &read} {
		b.Refuse(7)
		for id, count := range []uint64{0, 2, 1, 0} {
			qt.Check(t, qt.Equals(of(b, uint64(id)).Count, count), qt.Commentf("%d", id))
		}
		qt.Check(t, qt.HasLen(b.Possible(), 0))
	}
}

// The replay of a trace uses what its runs used when they were captured, and is no run.
func TestReplaysAreUses(t *testing.T) {
	var b Buffers
	captured, by := event.StackOf([]event.Frame{{Name: "captured"}}), event.StackOf([]event.Frame{{Name: "replay"}})
	b.Begin(7, 10, captured, true)
	b.Add(1)
	b.Begin(7, 20, nil, false)
	b.Add(2)
	u, runs := b.Of(1)
	qt.Check(t, qt.Equals(u.Last, Moment{1, 10, captured}))
	qt.Check(t, qt.Equals(runs, 1))
	b.Replay(30, by)
	u, runs = b.Of(1)
	qt.Check(t, qt.Equals(u.Last, Moment{2, 30, by}))
	qt.Check(t, qt.Equals(runs, 0))
	qt.Check(t, qt.Equals(of(&b, 2).Last, Moment{Run: 2, TimeNs: 20}))

	w := codec.NewWriter()
	b.Code(w)
	r := codec.NewReader(w.Data, w.Stacks)
	var read Buffers
	read.Code(r)
	qt.Assert(t, qt.IsFalse(r.Bad))
	qt.Check(t, qt.Equals(of(&read, 1), of(&b, 1)))
	read.Begin(7, 40, nil, false)
	read.Add(1)
	qt.Check(t, qt.Equals(of(&read, 1).Last, Moment{Run: 3, TimeNs: 40}))
}
