package aggregate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// lies is a buffer at an address, which takes so much of each bank.
func lies(time uint64, pid int, id, address, perBank uint64, devices ...int) event.Event {
	return event.Event{
		TimeNs: time, Kind: event.Alloc, PID: pid, BufferID: id, Allocator: 5, Region: event.L1,
		Devices: devices, Address: address, SizeBytes: perBank * 64, BytesPerBank: perBank, Banks: 64,
	}
}

// opened is a device with an allocator that has 1000 bytes of L1 in each of 64 banks,
// from the address 100 on.
func opened(pid int, allocator uint64, devices ...int) event.Event {
	return event.Event{
		Kind: event.DeviceOpen, PID: pid, Allocator: allocator, Devices: devices,
		Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{event.L1: {Banks: 64, BytesPerBank: 1000, Base: 100}}},
	}
}

func TestSpaceHasHolesBetweenBuffers(t *testing.T) {
	s := after(
		opened(7, 5, 0), lies(1, 7, 1, 1000, 100, 0), lies(2, 7, 2, 600, 200, 0), lies(3, 7, 3, 500, 100, 0),
	)
	space := s.Space(0, event.L1)
	qt.Assert(t, qt.IsTrue(space.Known()))
	qt.Check(t, qt.DeepEquals([2]uint64{space.Start, space.End}, [2]uint64{100, 1100}))
	qt.Check(t, qt.Equals(space.Banks, 64))
	qt.Check(t, qt.DeepEquals(space.Holes, []memory.Hole{{Address: 100, Bytes: 400}, {Address: 800, Bytes: 200}}))
	qt.Check(t, qt.DeepEquals(space.FreeSpace, memory.FreeSpace{FreeBytesPerBank: 600, LargestFreeBytesPerBank: 400}))
	var ids []uint64
	for _, b := range space.Blocks {
		ids = append(ids, b.BufferID)
	}
	qt.Check(t, qt.DeepEquals(ids, []uint64{3, 2, 1}))
	qt.Check(t, qt.DeepEquals(s.Snapshot().Devices[0].Regions.L1.FreeSpace, &space.FreeSpace))
	qt.Check(t, qt.DeepEquals(s.AllocatorSpace(7, 5, event.L1), space))
}

// TestSpaceOfSeveralAllocators: what several give away is free where none has it; each
// of them counts for itself.
func TestSpaceOfSeveralAllocators(t *testing.T) {
	other := lies(2, 7, 2, 950, 100, 0)
	other.Allocator = 6
	s := after(opened(7, 5, 0, 1), opened(7, 6, 0), lies(1, 7, 1, 1000, 100, 0, 1), other)
	for _, c := range []struct {
		space *memory.Space
		free  uint64
	}{
		{s.Space(0, event.L1), 850}, {s.Space(1, event.L1), 900},
		{s.AllocatorSpace(7, 5, event.L1), 900}, {s.AllocatorSpace(7, 6, event.L1), 900},
	} {
		qt.Check(t, qt.Equals(c.space.FreeBytesPerBank, c.free))
	}
	snap := s.Snapshot()
	qt.Check(t, qt.Equals(snap.Devices[0].Regions.L1.FreeBytesPerBank, 850))
	qt.Check(t, qt.Equals(snap.Devices[1].Regions.L1.FreeBytesPerBank, 900))
}

// TestSpaceThatIsNotKnown: nothing is said where it is not known where a region lies.
func TestSpaceThatIsNotKnown(t *testing.T) {
	without := opened(7, 5, 0)
	without.Open.Capacities[event.L1].Base = 0
	s := after(without, lies(1, 7, 1, 1000, 100, 0))
	space := s.Space(0, event.L1)
	qt.Check(t, qt.IsFalse(space.Known()))
	qt.Check(t, qt.HasLen(space.Holes, 0))
	qt.Check(t, qt.HasLen(space.Blocks, 1))
	qt.Check(t, qt.IsNil(s.Snapshot().Devices[0].Regions.L1.FreeSpace))
	for _, none := range []*memory.Space{
		s.Space(9, event.L1), s.Space(0, event.CB), s.AllocatorSpace(7, 9, event.L1), s.AllocatorSpace(8, 5, event.L1),
	} {
		qt.Check(t, qt.IsNil(none))
	}
}

// TestSpaceEqualsACountOfEachByte: of any buffers, in any order, on any chips.
func TestSpaceEqualsACountOfEachByte(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := after(opened(7, 5, 0, 1), opened(7, 6, 1), opened(8, 5, 0))
		var used [2][1100]bool
		for id := range uint64(1 + r.IntN(12)) {
			devices := [][]int{{0, 1}, {1}, {0}}[r.IntN(3)]
			e := lies(id, 7+r.IntN(2), id, 100+r.Uint64N(900), 1+r.Uint64N(90), devices...)
			s.Apply(&e)
			for _, d := range devices {
				for a := e.Address; a < min(e.Address+e.BytesPerBank, 1100); a++ {
					used[d][a] = true
				}
			}
		}
		snap := s.Snapshot()
		for d := range used {
			var free, run, largest uint64
			for a := 100; a < 1100; a++ {
				if run++; used[d][a] {
					run = 0
				} else {
					free++
				}
				largest = max(largest, run)
			}
			want := memory.FreeSpace{FreeBytesPerBank: free, LargestFreeBytesPerBank: largest}
			qt.Check(t, qt.DeepEquals(s.Space(d, event.L1).FreeSpace, want), qt.Commentf("seed %d chip %d", seed, d))
			qt.Check(t, qt.DeepEquals(snap.Devices[d].Regions.L1.FreeSpace, &want), qt.Commentf("seed %d chip %d", seed, d))
		}
	}
}

// TestSpaceStaysRightWhileBuffersComeAndGo: what a snapshot says of what is free, which
// is kept from the one before, is what the buffers leave; however much happens between two.
func TestSpaceStaysRightWhileBuffersComeAndGo(t *testing.T) {
	for seed, test := range []struct{ processes, sets, every int }{{3, 3, 10}, {3, 3, 1000}, {1, 1, 6000}, {1, 1, 20_000}} {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		s := after(opened(7, 5, 0, 1), opened(8, 5, 0), opened(9, 5, 1))
		var live []event.Event
		for id := uint64(0); id < 40_000; id++ {
			switch n := r.IntN(20_000); {
			case n == 0: // a process closes its device, or ends
				e := event.Event{Kind: []event.Kind{event.DeviceClose, event.ProcessExit}[r.IntN(2)], PID: 7 + r.IntN(3), Allocator: 5}
				live = slices.DeleteFunc(live, func(one event.Event) bool { return one.PID == e.PID })
				s.Apply(&e)
				e = opened(e.PID, 5, 0, 1)
				s.Apply(&e)
			case n < 10_000 && len(live) > 0 || len(live) > 300:
				i := r.IntN(len(live))
				e := event.Event{Kind: event.Free, PID: live[i].PID, BufferID: live[i].BufferID}
				s.Apply(&e)
				live = slices.Delete(live, i, i+1)
			default: // at few addresses, so that many begin at the same one
				e := lies(id, 7+r.IntN(test.processes), id, 100+50*r.Uint64N(20), 1+r.Uint64N(3), [][]int{{0, 1}, {1}, {0}}[r.IntN(test.sets)]...)
				s.Apply(&e)
				live = append(live, e)
			}
			if r.IntN(test.every) > 0 {
				continue
			}
			for d, device := range s.Snapshot().Devices {
				want := s.Space(d, event.L1).FreeSpace
				qt.Assert(t, qt.DeepEquals(device.Regions.L1.FreeSpace, &want), qt.Commentf("seed %d chip %d after %d", seed, d, id))
			}
		}
	}
}

// BenchmarkSnapshotOfBuffers is of a million buffers in DRAM on a mesh, in no order, of
// which 10,000 are replaced between two snapshots.
func BenchmarkSnapshotOfBuffers(b *testing.B) {
	for _, bench := range []struct {
		name             string
		chips, processes int
	}{{"one chip", 1, 1}, {"32 chips", 32, 1}, {"32 chips of two processes", 32, 2}} {
		b.Run(bench.name, func(b *testing.B) {
			devices := make([]int, bench.chips)
			for i := range devices {
				devices[i] = i
			}
			s := aggregate.New()
			for i := range bench.processes {
				e := opened(7+i, 5, devices...)
				e.Open.Capacities[event.DRAM] = event.Capacity{Banks: 12, BytesPerBank: 1 << 30, Base: 1 << 20}
				s.Apply(&e)
			}
			order := rand.New(rand.NewPCG(1, 1)).Perm(1_000_000)
			next := uint64(0)
			alloc := func() {
				n := order[next%1_000_000]
				e := lies(1, 7+n%bench.processes, next, 1<<20+uint64(n)*1024, 512, devices...)
				e.Region = event.DRAM
				s.Apply(&e)
				next++
			}
			for range order {
				alloc()
			}
			s.Snapshot()
			for b.Loop() {
				b.StopTimer()
				for range 10_000 {
					freed := next - 1_000_000
					s.Apply(&event.Event{Kind: event.Free, PID: 7 + order[freed%1_000_000]%bench.processes, BufferID: freed})
					alloc()
				}
				b.StartTimer()
				s.Snapshot()
			}
		})
	}
}
