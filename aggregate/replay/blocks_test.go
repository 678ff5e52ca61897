package replay

import (
	"cmp"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/lives"
	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
)

// A plain is the same as a space: blocks in a list, which is scanned.
type plain struct {
	base, end uint64
	blocks    [][2]uint64
}

// holes returns the free addresses in order.
func (p *plain) holes() (list [][2]uint64) {
	from := p.base
	for _, b := range append(slices.Clone(p.blocks), [2]uint64{p.end, p.end}) {
		if b[0] > from {
			list = append(list, [2]uint64{from, b[0]})
		}
		from = b[1]
	}
	return list
}

func (p *plain) fit(bytes uint64, fromTop bool) (uint64, bool) {
	holes := slices.DeleteFunc(p.holes(), func(h [2]uint64) bool { return h[1]-h[0] < bytes })
	switch {
	case len(holes) == 0:
		return 0, false
	case fromTop:
		return holes[len(holes)-1][1] - bytes, true
	}
	return holes[0][0], true
}

func (p *plain) add(start, end uint64) {
	p.blocks = append(p.blocks, [2]uint64{start, end})
	slices.SortFunc(p.blocks, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
}

// overlaps returns the lowest block with a part of the addresses.
func (p *plain) overlaps(start, end uint64) int {
	return slices.IndexFunc(p.blocks, func(b [2]uint64) bool { return b[0] < end && b[1] > start })
}

// FuzzSpace compares the tree with a list: each two bytes are an allocation from one end, one at an address, a free, or
// another size of the region.
func FuzzSpace(f *testing.F) {
	f.Add([]byte("\x01\x10\x02\x10\x81\x20\x41\x00\x42\x01\xc3\x20\x04\x08"))
	f.Add([]byte("\x00\x00\x00\x00\x80\x00\x40\x00\x40\x00\xff\xff\x0f\xff\x8f\xff"))
	f.Fuzz(func(t *testing.T, input []byte) {
		const base, size = 100, 400
		s, model := &space{base: base, end: base + size}, &plain{base: base, end: base + size}
		var live []*block
		for input = input[:min(len(input), 4096)]; len(input) >= 2; input = input[2:] {
			op, n := input[0], uint64(input[1])
			bytes := uint64(op&0x3f) + 1
			switch op >> 6 {
			case 0, 2:
				fromTop := op>>6 == 2
				address, fits := s.fit(bytes, fromTop)
				want, wantFits := model.fit(bytes, fromTop)
				qt.Assert(t, qt.Equals(fits, wantFits))
				qt.Assert(t, qt.Equals(address, want))
				if fits {
					live = append(live, s.block(address, bytes, nil))
					s.add(live[len(live)-1])
					model.add(address, address+bytes)
				}
			case 1:
				if len(live) == 0 {
					continue
				}
				i := int(n) % len(live)
				b := live[i]
				live = slices.Delete(live, i, i+1)
				qt.Assert(t, qt.IsTrue(s.has(b)))
				s.drop(b)
				qt.Assert(t, qt.IsFalse(s.has(b)))
				model.blocks = slices.DeleteFunc(model.blocks, func(m [2]uint64) bool { return m[0] == b.start })
			case 3: // at an address, which may lie outside of the region
				at := n * 2
				found, i := s.in(at, at+bytes), model.overlaps(at, at+bytes)
				qt.Assert(t, qt.Equals(found == nil, i < 0))
				if found != nil {
					qt.Assert(t, qt.Equals([2]uint64{found.start, found.end}, model.blocks[i]))
					continue
				}
				if at < base || at+bytes > base+size {
					continue
				}
				live = append(live, s.block(at, bytes, nil))
				s.add(live[len(live)-1])
				model.add(at, at+bytes)
			}
			state := s.state()
			free, largest := uint64(0), uint64(0)
			for _, h := range model.holes() {
				free, largest = free+h[1]-h[0], max(largest, h[1]-h[0])
			}
			qt.Assert(t, qt.Equals(s.count, len(model.blocks)))
			qt.Assert(t, qt.Equals(state.FreeBytes, free))
			qt.Assert(t, qt.Equals(state.LargestFreeBytes, largest))
		}
	})
}

// TestTheCostOfAnAllocation grows with the logarithm of the live buffers, not with their number.
func TestTheCostOfAnAllocation(t *testing.T) {
	fuzztest.Proportional(t, 1<<13, func(n int) {
		s := &space{end: 1 << 40}
		var live []*block
		for range n {
			address, _ := s.fit(64, true)
			live = append(live, s.block(address, 64, nil))
			s.add(live[len(live)-1])
		}
		for i := 0; i < n; i += 2 {
			s.remove(live[i])
		}
		for range n {
			address, _ := s.fit(128, true) // in no hole
			s.add(s.block(address, 128, nil))
		}
	})
}

// check reports whether the blocks are in order, and add up.
func (s *space) check(t *testing.T) {
	t.Helper()
	count, bytes, end := 0, uint64(0), uint64(0)
	s.root.each(func(b *block) {
		qt.Assert(t, qt.IsTrue(b.start >= end && b.end > b.start))
		count, bytes, end = count+1, bytes+b.end-b.start, b.end
	})
	qt.Assert(t, qt.Equals(count, s.count))
	qt.Assert(t, qt.Equals(bytes, s.bytes))
}

// FuzzApply plays any events, in any order: each four bytes are one. The blocks of all regions stay in order.
func FuzzApply(f *testing.F) {
	f.Add([]byte("\x03\x01\x00\x00\x00\x01\x10\x08\x00\x02\x18\x08\x01\x01\x00\x00\x00\x03\x14\x20\x02\x00\x10\x10\x04\x01\x00\x00"))
	f.Add([]byte("\x05\x00\x00\x00\x0b\x01\x00\x00\x10\x01\x10\x08\x00\x01\x12\xff\x08\x01\x20\x10\x09\x01\x00\x00\x06\x00\x00\x00\x07\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, input []byte) {
		kinds := []event.Kind{
			event.Alloc, event.Free, event.AllocFailed, event.DeviceOpen, event.DeviceClose, event.ProcessStart, event.ProcessExit, event.Lost,
			event.CBAlloc, event.ProgramRun, event.CBFree, event.DeviceOpen, event.Reread, event.Alloc, event.Alloc, event.Alloc,
		}
		odd := func(s *event.Stack) bool { return s.ID%2 > 0 }
		r := New(
			with(Without(odd)), with(Free(func(_ int, b *lives.Life) bool { return odd(b.Stack) })), with(First(odd), Move(odd, event.DRAM)),
			with(Set(L1SmallSize, 8*kib, 0), Set(WorkerL1Size, 40*kib, 0), Set(TraceRegionSize, 12*4096, 0)),
			with(ClearCacheAt(odd, func(s *event.Stack) bool { return !odd(s) }), On(&Boards[2])),
		)
		r.OnFailure = func(failure *Failure) {
			failure.Freeing(20*kib, 90*kib)
			failure.FreeingAll(odd)
			for i := range r.whatIfs {
				failure.With(i)
			}
		}
		var l tape
		for input = input[:min(len(input), 1024)]; len(input) >= 4; input = input[4:] {
			op, id, address, size := input[0], uint64(input[1]), uint64(input[2]), uint64(input[3])
			e := device(id%3, 1+uint32(id%2), "")
			if e.Kind = kinds[op&0xf]; op&0xf == 0xb {
				e.Cause = "sub-device manager"
			}
			e.PID, e.BufferID, e.ProgramID, e.Reason = int(id%2), id%16, id%4, event.Reason(size%16)
			e.Region = []event.Region{event.DRAM, event.L1, event.L1Small, event.Trace, event.CB}[(op>>4)%5]
			e.Address, e.BytesPerBank, e.SizeBytes = address<<(size%57), size<<(address%57), size<<(id%57)
			e.BeforeAttach, e.PerCore = op>>4 == 13, op>>4 == 14
			e.Stack = event.NewStack(id+1, nil)
			if op&0x10 > 0 {
				e.Uses = &event.Uses{Arguments: []uint32{uint32(e.Address)}}
			}
			l = append(l, e)
		}
		qt.Assert(t, qt.IsNil(r.Play(l.play)))
		for _, p := range r.processes {
			for _, a := range p.allocators {
				for region := range a.spaces {
					a.spaces[region].check(t)
					for i := range a.changed {
						a.changed[i].spaces[region].check(t)
					}
				}
			}
		}
	})
}
