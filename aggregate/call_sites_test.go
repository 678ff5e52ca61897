package aggregate_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// held is what stacks hold, added up from lists: the slow way.
type held struct {
	pid    int
	stack  uint64
	region event.Region
	chip   int
}

type heldSum struct{ Count, Bytes, Fresh uint64 }

func stackIDOf(s *event.Stack) uint64 {
	if s == nil {
		return 0
	}
	return s.ID
}

// heldBy is what the state lists, where fresh is what is from after the mark.
func heldBy(s *aggregate.State, mark uint64) map[held]heldSum {
	sums := make(map[held]heldSum)
	add := func(k held, bytes, since uint64) {
		sum := sums[k]
		sum.Count++
		sum.Bytes += bytes
		if since > mark {
			sum.Fresh++
		}
		sums[k] = sum
	}
	for _, b := range s.Buffers() {
		for _, chip := range b.Devices {
			add(held{b.PID, stackIDOf(b.Stack), b.Region, chip}, b.BytesPerBank*uint64(b.Banks), b.SinceNs)
		}
	}
	for _, d := range s.Snapshot().Devices {
		for _, one := range s.Statics(d.ID) {
			if one.Global {
				continue
			}
			cores := 0
			for _, r := range one.Cores {
				cores += r.Cores()
			}
			add(held{one.PID, stackIDOf(one.Stack), event.CB, d.ID}, one.BytesPerCore*uint64(cores), one.SinceNs)
		}
	}
	return sums
}

// heldBySite is the same as the call sites have it.
func heldBySite(h *aggregate.State) map[held]heldSum {
	sums := make(map[held]heldSum)
	for _, one := range h.CallSites() {
		if one.Count == 0 {
			continue
		}
		for _, chip := range one.Devices {
			k := held{one.PID, stackIDOf(one.Stack), one.Region, chip}
			sum := sums[k]
			sum.Count += one.Count
			sum.Bytes += one.Bytes
			sum.Fresh += one.Fresh.Count
			sums[k] = sum
		}
	}
	return sums
}

func TestHoldingsAreWhatTheStateLists(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var stacks []*event.Stack
	for i := range 9 {
		stacks = append(stacks, event.StackOf([]event.Frame{{Kind: event.Python, Name: "f", Line: i}}))
	}
	stacks = append(stacks, nil)
	h := aggregate.New()
	var mark uint64
	most := 0
	for now := uint64(1); now <= 30_000; now++ {
		e := randomEvent(r, now)
		e.Stack = stacks[r.IntN(len(stacks))]
		h.Apply(&e)
		if r.IntN(3000) == 0 {
			mark = h.Now()
			h.FreshSince(mark)
			qt.Assert(t, qt.Equals(h.Snapshot().TimeNs, mark))
		}
		if now%500 == 0 {
			most = max(most, len(heldBySite(h)))
			qt.Assert(t, qt.IsTrue(maps.Equal(heldBySite(h), heldBy(h, mark))),
				qt.Commentf("after %d events: %v, the state has %v", now, heldBySite(h), heldBy(h, mark)))
		}
		if now%5000 == 0 {
			mark = r.Uint64N(now)
			h.FreshSince(mark)
			qt.Assert(t, qt.IsTrue(maps.Equal(heldBySite(h), heldBy(h, mark))), qt.Commentf("since %d, after %d events", mark, now))
		}
	}
	qt.Check(t, qt.IsTrue(most > 10), qt.Commentf("at most %d sums were compared", most))
}

func TestIdleSitesAreForgotten(t *testing.T) {
	h := aggregate.New()
	for id := range uint64(50_000) {
		e := tensor(id, 7, id, 0)
		e.Stack = event.StackOf([]event.Frame{{Kind: event.Python, Line: int(id)}})
		h.Apply(&e)
		e = free(id, 7, id)
		h.Apply(&e)
	}
	qt.Check(t, qt.IsTrue(len(h.CallSites()) <= 8192), qt.Commentf("%d are kept", len(h.CallSites())))
}

func TestHoldingsCountWhatWasAllocatedAndFreedAgain(t *testing.T) {
	h := aggregate.New()
	for id := range uint64(10) {
		e := tensor(id, 7, id, 0)
		h.Apply(&e)
		if id > 0 {
			e = free(id, 7, id)
			h.Apply(&e)
		}
	}
	list := h.CallSites()
	qt.Assert(t, qt.Equals(len(list), 1))
	qt.Check(t, qt.Equals(list[0].Count, 1))
	qt.Check(t, qt.Equals(list[0].Allocated.Count, 10))
}

// Programs use the same space in turn, and so does each chip.
func TestACallSiteHasTheProgramsOfItsCircularBuffers(t *testing.T) {
	s := after(wormhole(1, 7, 1, 0, 1), cb(2, 7, 1, 1000, 64, 0, 0, 0, 1), cb(3, 7, 2, 1000, 64, 0, 0, 0, 1), cb(4, 7, 2, 2000, 32, 0, 0, 0, 1),
		cb(5, 7, 3, 3000, 32, 0, 0, 0, 1), endCBs(6, 7, 3, 0, 1))
	list := s.CallSites()
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.DeepEquals(list[0].Devices, []int{0, 1}))
	qt.Check(t, qt.DeepEquals(list[0].Programs, []memory.ProgramShare{{ID: 1, BytesPerCore: 64}, {ID: 2, BytesPerCore: 96}}))
}

// BenchmarkHoldings is what one look costs: of 10,000 stacks that hold 100,000 buffers.
func BenchmarkHoldings(b *testing.B) {
	h := aggregate.New()
	for id := range uint64(100_000) {
		e := tensor(id, 7, id, 0)
		e.Stack = event.NewStack(1+id%10_000, nil)
		h.Apply(&e)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = h.CallSites()
	}
}
