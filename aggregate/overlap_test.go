package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// overlapBanks is the number of banks of a chip's DRAM in these tests.
const overlapBanks = 4

func openAllocator(pid int, allocator uint64, devices ...int) *event.Event {
	e := &event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: pid, Devices: devices, Allocator: allocator}
	e.Open = new(event.Open)
	for _, region := range []event.Region{event.DRAM, event.L1} {
		e.Open.Capacities[region] = event.Capacity{Banks: overlapBanks, BytesPerBank: 1 << 20, Base: 1}
	}
	return e
}

func allocAt(now uint64, pid int, allocator, id, address, perBank uint64, region event.Region, devices ...int) *event.Event {
	return &event.Event{
		TimeNs: now, Kind: event.Alloc, PID: pid, Devices: devices, Allocator: allocator, BufferID: id, Region: region, Address: address,
		SizeBytes: perBank * overlapBanks, BytesPerBank: perBank, Banks: overlapBanks, Stack: frame(fmt.Sprintf("f%d_%d", pid, allocator)),
	}
}

func frame(name string) *event.Stack {
	return event.StackOf([]event.Frame{{Kind: event.Python, Name: name, File: name + ".py", Line: 1}})
}

// TestOverlaps compares the use of chips by random buffers at overlapping addresses, of several
// allocators and processes, with a count for each address; also after checkpoints.
func TestOverlaps(t *testing.T) {
	type live struct {
		pid, allocator int
		id             uint64
	}
	const space = 200
	devicesOf := func(b live) []int { return [][]int{{0}, {0, 1}, {1}, {1, 2}}[(b.pid+b.allocator)%4] }
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 9))
		s := aggregate.New()
		buffers := make(map[live]*event.Event)
		peaks := make(map[int]uint64)
		for now := uint64(2); now < 300; now++ {
			b := live{1 + r.IntN(3), r.IntN(3), 1 + r.Uint64N(6)}
			b.id += 10 * uint64(b.allocator) // of the process
			var e *event.Event
			end := func(gone func(live) bool) {
				for other := range buffers {
					if gone(other) {
						delete(buffers, other)
					}
				}
			}
			switch {
			case now%5 == 0 && now < 40:
				e = openAllocator(b.pid, uint64(b.allocator), devicesOf(b)...)
			case buffers[b] != nil:
				e = &event.Event{Kind: event.Free, PID: b.pid, BufferID: b.id}
				delete(buffers, b)
			case r.IntN(40) == 0:
				e = &event.Event{Kind: event.ProcessExit, PID: b.pid}
				end(func(o live) bool { return o.pid == b.pid })
			case r.IntN(40) == 0:
				e = &event.Event{Kind: event.DeviceClose, PID: b.pid, Allocator: uint64(b.allocator)}
				end(func(o live) bool { return o.pid == b.pid && o.allocator == b.allocator })
			default:
				// an allocator does not assign an address twice
				e = allocAt(now, b.pid, uint64(b.allocator), b.id, 1+10*b.id%60+r.Uint64N(5)*20, 10, event.DRAM, devicesOf(b)...)
				free := true
				for o, other := range buffers {
					free = free && (o.pid != b.pid || o.allocator != b.allocator || other.Address+10 <= e.Address || e.Address+10 <= other.Address)
				}
				if !free {
					continue
				}
				buffers[b] = e
			}
			e.TimeNs = now
			s.Apply(e)
			if r.IntN(30) == 0 {
				s = restored(t, s)
			}
			snap := s.Snapshot()
			for i := range snap.Devices {
				d := &snap.Devices[i]
				var used [space]bool
				count, sum := uint64(0), uint64(0)
				for _, e := range buffers {
					for _, id := range e.Devices {
						if id != d.ID {
							continue
						}
						count++
						sum += e.BytesPerBank
						for a := e.Address; a < e.Address+e.BytesPerBank; a++ {
							used[a] = true
						}
					}
				}
				union := uint64(0)
				for _, is := range used {
					if is {
						union++
					}
				}
				comment := qt.Commentf("seed %d, time %d, chip %d, %v", seed, now, d.ID, e)
				got := d.Regions.DRAM
				qt.Assert(t, qt.Equals(got.Buffers, count), comment)
				qt.Assert(t, qt.Equals(got.BytesPerBank, union), comment)
				qt.Assert(t, qt.Equals(got.OverlapBytesPerBank, sum-union), comment)
				if got.Banks > 0 {
					qt.Assert(t, qt.Equals(got.AllocatedBytes, union*overlapBanks), comment)
					qt.Assert(t, qt.Equals(s.Space(d.ID, event.DRAM).BytesPerBank, union), comment)
				}
				peaks[d.ID] = max(peaks[d.ID], union*overlapBanks)
			}
		}
		for _, p := range s.RegionPeaks() {
			qt.Check(t, qt.Equals(p.Bytes, peaks[p.Device]), qt.Commentf("seed %d, chip %d", seed, p.Device))
		}
	}
}

// TestSearchesForOverlapsAreBounded: many call sites have the same stack, so that the list has no entry for each, but
// each is searched for. Events and time make room for further searches.
func TestSearchesForOverlapsAreBounded(t *testing.T) {
	s := aggregate.New()
	const live = 10_000
	for i := range uint64(live) {
		s.Apply(allocAt(1, 7, 1, 1+i, 100+10*i, 10, event.DRAM, 0))
	}
	s.Apply(&event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: 8, UID: 1001})
	id := uint64(0)
	overlap := func(now uint64, stack *event.Stack) {
		id++
		e := allocAt(now, 8, 2+id/6, id, 100, 10, event.DRAM, 0)
		e.Layout, e.Stack = event.Layout(id%6), stack
		s.Apply(e)
	}
	listed := func(stack *event.Stack) bool {
		return slices.ContainsFunc(s.Snapshot().Overlaps, func(o memory.Overlap) bool { return o.Later.Stack == stack })
	}
	a, b := frame("a"), frame("b")
	for range 200 {
		overlap(2, a)
	}
	overlap(3, b)
	qt.Check(t, qt.IsTrue(listed(a)))
	qt.Check(t, qt.IsFalse(listed(b)))
	for range live {
		s.Apply(&event.Event{TimeNs: 1e9, Kind: event.Mark, Cause: "a mark"})
	}
	overlap(1e9, b)
	qt.Check(t, qt.IsTrue(listed(b)))
}

// TestOverlapsAreListed: a parent mesh and its submesh, a third allocator of another process, and
// what another user may see.
func TestOverlapsAreListed(t *testing.T) {
	s := aggregate.New()
	for pid, uid := range map[int]int{1: 10, 2: 20} {
		s.Apply(&event.Event{TimeNs: 1, Kind: event.ProcessStart, PID: pid, UID: uid, Comm: "p"})
	}
	s.Apply(openAllocator(1, 1, 0, 1, 2))
	s.Apply(openAllocator(1, 2, 1))
	s.Apply(openAllocator(2, 1, 1, 2))
	s.Apply(allocAt(5, 1, 1, 1, 100, 60, event.DRAM, 0, 1, 2))
	s.Apply(allocAt(6, 1, 2, 2, 100, 200, event.DRAM, 1))
	s.Apply(allocAt(7, 1, 2, 3, 300, 200, event.DRAM, 1))
	s.Apply(allocAt(8, 1, 2, 4, 100, 10, event.L1, 1)) // another region
	snap := s.Snapshot()
	qt.Assert(t, qt.HasLen(snap.Overlaps, 1))
	o := snap.Overlaps[0]
	qt.Check(t, qt.Equals(o.TimeNs, 6))
	qt.Check(t, qt.DeepEquals(o.Devices, []int{1}))
	qt.Check(t, qt.DeepEquals([]uint64{o.Address, o.BytesPerBank, o.Earlier.SizeBytes, o.Later.SizeBytes}, []uint64{100, 60, 240, 800}))
	qt.Check(t, qt.DeepEquals([]string{o.Earlier.Stack.Frames()[0].Name, o.Later.Stack.Frames()[0].Name}, []string{"f1_1", "f1_2"}))
	qt.Check(t, qt.Equals(snap.OverlapCount, 1))
	qt.Check(t, qt.Equals(snap.Devices[1].Regions.DRAM.BytesPerBank, 400))
	qt.Check(t, qt.Equals(snap.Devices[2].Regions.DRAM.BytesPerBank, 60))

	s.Apply(allocAt(9, 2, 1, 1, 150, 10, event.DRAM, 1, 2)) // overlaps both
	snap = restored(t, s).Snapshot()
	qt.Assert(t, qt.HasLen(snap.Overlaps, 3))
	qt.Check(t, qt.Equals(snap.OverlapCount, 2))
	qt.Check(t, qt.DeepEquals(snap.Overlaps[1].Devices, []int{1, 2}))
	qt.Check(t, qt.DeepEquals(snap.Overlaps[2].Devices, []int{1}))
	qt.Check(t, qt.Equals(snap.Devices[1].Regions.DRAM.BytesPerBank, 400))

	for uid, want := range map[int]int{10: 3, 20: 2, 30: 0} {
		part := aggregate.New()
		part.Apply(s.Freeze(func(of int) bool { return of == uid })())
		own := part.Snapshot().Overlaps
		qt.Assert(t, qt.HasLen(own, want))
		if uid == 20 {
			qt.Check(t, qt.DeepEquals(own[0].Earlier, memory.OverlapBuffer{Hidden: true}))
			qt.Check(t, qt.Equals(own[0].Later.PID, 2))
		}
	}

	s.Apply(&event.Event{TimeNs: 10, Kind: event.DeviceClose, PID: 1, Allocator: 2})
	s.Apply(&event.Event{TimeNs: 11, Kind: event.ProcessExit, PID: 2})
	snap = s.Snapshot()
	qt.Check(t, qt.Equals(snap.Devices[1].Regions.DRAM.BytesPerBank, 60))
	qt.Check(t, qt.Equals(snap.Devices[1].Regions.DRAM.OverlapBytesPerBank, 0))
	qt.Check(t, qt.HasLen(snap.Overlaps, 3)) // what was
}
