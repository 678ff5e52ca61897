package analyze

import (
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// TestAddressOrder compares with looking at every buffer.
func TestAddressOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	none := aggregate.BufferRef{}
	s := aggregate.New()
	var o addressOrder
	var all []aggregate.BufferRef
	for i := range 20000 {
		if i > 4000 && random.IntN(2) == 0 {
			k := random.IntN(len(all))
			qt.Assert(t, qt.IsTrue(o.remove(all[k])))
			qt.Assert(t, qt.IsFalse(o.remove(all[k])))
			all[k] = all[len(all)-1]
			all = all[:len(all)-1]
		} else {
			// no two overlap, and some are next to each other
			address := uint64(random.IntN(1<<20)) * 16
			if o.overlapping(address, address+16) != none {
				continue
			}
			s.Apply(&event.Event{
				Kind: event.Alloc, PID: 1, BufferID: uint64(i), Devices: []int{0}, Address: address, BytesPerBank: uint64(1 + random.IntN(16)),
			})
			b := s.Ref(1, uint64(i))
			o.add(b)
			all = append(all, b)
		}
		start := uint64(random.IntN(1 << 24))
		end := start + uint64(1+random.IntN(512))
		var want bool
		for _, b := range all {
			want = want || b.Addresses().Start < end && b.Addresses().End > start
		}
		if got := o.overlapping(start, end); (got != none) != want {
			t.Fatalf("%#x to %#x: overlapping %v, want %v", start, end, got.Buffer(), want)
		}
	}
	for _, b := range all {
		qt.Assert(t, qt.IsTrue(o.remove(b)))
	}
	qt.Check(t, qt.HasLen(o.chunks, 0))
}

func TestRecentIsBounded(t *testing.T) {
	r := recent[int, int]{keep: 100}
	for i := range 10000 {
		r.set(i, i+1)
		if len(r.young)+len(r.old) > 200 {
			t.Fatalf("%d are kept", len(r.young)+len(r.old))
		}
		if oldest := max(0, i-99); r.get(oldest) != oldest+1 {
			t.Fatalf("%d is forgotten at %d", oldest, i)
		}
	}
}
