package aggregate_test

import (
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// floods are what a process can make up without end: each is called with the numbers from 0 up.
var floods = map[string]func(i uint64) event.Event{
	"buffers": func(i uint64) event.Event {
		return event.Event{Kind: event.Alloc, BufferID: 8 * i, Object: i, Allocator: 1, Devices: []int{0}, Address: i * 64, SizeBytes: 64, BytesPerBank: 64, Banks: 1}
	},
	"buffers of two allocators at the same addresses": func(i uint64) event.Event {
		return event.Event{Kind: event.Alloc, BufferID: i, Allocator: i % 2, Devices: []int{0}, Address: i / 2 * 64, SizeBytes: 64, BytesPerBank: 64, Banks: 1}
	},
	"buffers of ever new allocators": func(i uint64) event.Event {
		return event.Event{Kind: event.Alloc, BufferID: i, Allocator: i, Devices: []int{0}, SizeBytes: 64, BytesPerBank: 64, Banks: 1}
	},
	"buffers on single cores": func(i uint64) event.Event {
		a, b := uint16(i%1000), uint16(i/1000)
		return event.Event{Kind: event.Alloc, Region: event.L1, PerCore: true, BufferID: i, Devices: []int{0}, SizeBytes: 64, BytesPerBank: 64, Banks: 1,
			Cores: []event.CoreRange{{X1: 15, Y1: 15}, {X0: a / 32, Y0: a % 32, X1: a / 32, Y1: a % 32}, {X0: b / 32, Y0: b % 32, X1: b / 32, Y1: b % 32}}}
	},
	"call stacks": func(i uint64) event.Event {
		return event.Event{Kind: event.Alloc, BufferID: i, Devices: []int{0}, SizeBytes: 64, BytesPerBank: 64, Banks: 1, Stack: event.NewStack(i+1, nil)}
	},
	"chips": func(i uint64) event.Event {
		return event.Event{Kind: event.DeviceOpen, Allocator: 1, Devices: []int{int(i % 16000)}, Open: &event.Open{Capacities: capacities}}
	},
	"sets of chips": func(i uint64) event.Event {
		return event.Event{Kind: event.Alloc, BufferID: i, Devices: []int{int(i % 99), int(i / 99 % 99), int(i / 9801)}, SizeBytes: 64, BytesPerBank: 64, Banks: 1}
	},
	"open allocators": func(i uint64) event.Event {
		return event.Event{Kind: event.DeviceOpen, Allocator: i, Devices: []int{0}, Open: &event.Open{Capacities: capacities}}
	},
	"programs": func(i uint64) event.Event {
		return event.Event{Kind: event.CBAlloc, Region: event.CB, ProgramID: i, Devices: []int{0}, Address: i, SizeBytes: 64, Cores: []event.CoreRange{{X1: 7, Y1: 7}}}
	},
	"kernels": func(i uint64) event.Event {
		return event.Event{Kind: event.KernelLoad, Region: event.Kernel, ProgramID: i, Devices: []int{0}, SizeBytes: 64}
	},
	"circular buffers on different cores": func(i uint64) event.Event {
		a, b := uint16(i%1000), uint16(i/1000%1000)
		return event.Event{Kind: event.CBAlloc, Region: event.CB, ProgramID: i / 100, Devices: []int{0}, Address: i, SizeBytes: 64,
			Cores: []event.CoreRange{{X1: 15, Y1: 15}, {X0: a / 32, Y0: a % 32, X1: a / 32, Y1: a % 32}, {X0: b / 32, Y0: b % 32, X1: b / 32, Y1: b % 32}}}
	},
}

var capacities = [event.BankedRegions]event.Capacity{{Banks: 12, BytesPerBank: 1 << 30}, {Banks: 64, BytesPerBank: 1 << 20}}

// TestNoUserFillsAState: however many a user's process makes up, it takes a bounded amount of memory, says what
// is left out, and changes nothing of others. What is left can be written and read.
func TestNoUserFillsAState(t *testing.T) {
	const most = 330 << 20
	for name, flood := range floods {
		t.Run(name, func(t *testing.T) {
			s := aggregate.New()
			now := uint64(0)
			apply := func(pid int, e event.Event) {
				now += 1000
				e.TimeNs, e.PID, e.TID = now, pid, pid
				s.Apply(&e)
			}
			victim := func(from uint64) {
				for i := range uint64(100) {
					apply(8, event.Event{Kind: event.Alloc, BufferID: from + i, Allocator: 7, Devices: []int{300}, SizeBytes: 1000, BytesPerBank: 1000, Banks: 1, Stack: event.NewStack(1<<60+i%5, nil)})
				}
				apply(8, event.Event{Kind: event.CBAlloc, Region: event.CB, ProgramID: from, Devices: []int{300}, Address: 64, SizeBytes: 64, Cores: []event.CoreRange{{X1: 7, Y1: 7}}})
			}
			apply(7, event.Event{Kind: event.ProcessStart, UID: 1001})
			apply(8, event.Event{Kind: event.ProcessStart, UID: 1002})
			apply(8, event.Event{Kind: event.DeviceOpen, Allocator: 7, Devices: []int{300}, Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{{Banks: 1, BytesPerBank: 1 << 20}}}})
			victim(0)
			n := uint64(20_000)
			switch name {
			case "buffers":
				n = quota.Allocations + 1000
			case "programs", "kernels":
				s.Shrink(60_000)
				n = 61_000
			case "call stacks", "circular buffers on different cores", "buffers of two allocators at the same addresses":
				n = 300_000
			case "buffers on single cores":
				n = 3000
			}
			for i := range n {
				apply(7, flood(i))
			}
			victim(1000)
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			about := qt.Commentf("%d MiB", m.HeapAlloc>>20)
			t.Log(about)
			qt.Check(t, qt.IsTrue(m.HeapAlloc < most), about)
			check := func(s *aggregate.State) {
				snap := s.Snapshot()
				qt.Assert(t, qt.HasLen(snap.Processes, 2), about)
				attacker, other := snap.Processes[0], snap.Processes[1]
				qt.Check(t, qt.IsTrue(attacker.Lost[quota.Beyond] > 0), about)
				qt.Check(t, qt.HasLen(other.Lost, 0), about)
				qt.Check(t, qt.DeepEquals(other.Live, []memory.RegionTotal{{Region: "DRAM", Buffers: 200, SizeBytes: 200_000, AllocatedBytes: 200_000}}), about)
				qt.Assert(t, qt.HasLen(other.Devices, 1), about)
				qt.Check(t, qt.Equals(other.Devices[0].Regions.CB.Count, 2), about)
			}
			check(s)
			restored := aggregate.New()
			qt.Check(t, qt.IsNil(restored.Restore(s.Checkpoint().State)), about)
			check(restored)
			apply(7, event.Event{Kind: event.ProcessExit})
			apply(9, event.Event{Kind: event.ProcessStart, UID: 1001})
			apply(9, event.Event{Kind: event.Alloc, BufferID: 1, Devices: []int{0}, SizeBytes: 64, BytesPerBank: 64, Banks: 1, Stack: event.NewStack(1<<61, nil)})
			lost := s.Snapshot().Processes[1].Lost[quota.Beyond]
			qt.Check(t, qt.Equals(lost, 0), about) // there is room again
			runtime.KeepAlive(s)
		})
	}
}

// TestAProgramsPlacesCostInProportion: a program may claim circular buffers on any cores.
func TestAProgramsPlacesCostInProportion(t *testing.T) {
	fuzztest.Proportional(t, 40_000, func(n int) {
		s := aggregate.New()
		for i := range uint64(n) {
			for program := range uint64(2) {
				x := uint16(i % 1000)
				s.Apply(&event.Event{Kind: event.CBAlloc, TimeNs: i + 1, PID: 7, Region: event.CB, ProgramID: program, Devices: []int{0}, Address: i, SizeBytes: 64,
					Cores: []event.CoreRange{{X1: 15, Y1: 15}, {X0: x / 32, Y0: x % 32, X1: x / 32, Y1: x % 32}}, Stack: event.NewStack(5, nil)})
			}
		}
	})
}

// TestEndedProcessesOfAUserStay, however many of another user end.
func TestEndedProcessesOfAUserStay(t *testing.T) {
	s := aggregate.New()
	now := uint64(0)
	end := func(pid, uid, chips int) {
		devices := make([]int, chips)
		for i := range devices {
			devices[i] = i
		}
		for _, e := range []event.Event{
			{Kind: event.ProcessStart, UID: uid}, {Kind: event.Alloc, BufferID: 1, Devices: devices, SizeBytes: 8, BytesPerBank: 8, Banks: 1}, {Kind: event.ProcessExit},
		} {
			now++
			e.TimeNs, e.PID = now, pid
			s.Apply(&e)
		}
	}
	end(7, 1000, 8)
	for i := range 5000 {
		end(100+i, 1001+i%3, 1+i%40)
	}
	first, _ := s.Ended(7)
	qt.Check(t, qt.IsNotNil(first))
	kept := 0
	for _, p := range s.Snapshot().Processes {
		if p.UID == 1001 {
			kept++
		}
	}
	qt.Check(t, qt.IsTrue(kept > 10 && kept <= 64), qt.Commentf("%d", kept))
	for i := range 100 {
		end(10000+i, 1000, 1)
	}
	first, _ = s.Ended(7)
	qt.Check(t, qt.IsNil(first)) // of many of the same user, the newest stay
}

// TestTheEndOfAProcessDoesNotCountTheOthers that ended before, of all users.
func TestTheEndOfAProcessDoesNotCountTheOthers(t *testing.T) {
	s := aggregate.New()
	end := func(i int) {
		s.Apply(&event.Event{TimeNs: uint64(i), Kind: event.ProcessStart, PID: 7, UID: i % 1000})
	}
	for i := range 2000 {
		end(i)
	}
	fuzztest.Bounded(t, 0, 0, func() {
		for i := range 2000 {
			end(2000 + i)
		}
	})
	qt.Check(t, qt.HasLen(s.Snapshot().Processes, 1024+1))
}

// TestSubordinateIDsCountAsTheirUser: a user may have thousands of ids in a user namespace.
func TestSubordinateIDsCountAsTheirUser(t *testing.T) {
	s := aggregate.New()
	start := func(pid, uid int, outside uint64) {
		s.Apply(&event.Event{TimeNs: uint64(pid), Kind: event.ProcessStart, PID: pid, UID: uid, Count: outside})
	}
	for pid := 1; pid <= 8; pid++ { // the victim's
		start(pid, 1000, 0)
		s.Apply(&event.Event{TimeNs: uint64(pid), Kind: event.ProcessExit, PID: pid})
	}
	for pid := 10; pid < 2000; pid++ {
		start(pid, 100_000+pid, 1001)
		s.Apply(&event.Event{TimeNs: uint64(pid), Kind: event.ProcessExit, PID: pid})
	}
	of := make(map[bool]int)
	for _, p := range s.Snapshot().Processes {
		of[p.UID == 1000]++
	}
	qt.Check(t, qt.DeepEquals(of, map[bool]int{true: 8, false: 64}))

	// chips that only processes of one user named
	for pid := 3000; pid < 3100; pid++ {
		start(pid, 100_000+pid, 1001)
		for chip := range 10 {
			e := tensor(uint64(pid), pid, uint64(chip), 10*pid+chip)
			s.Apply(&e)
		}
	}
	qt.Check(t, qt.HasLen(s.Snapshot().Devices, 256))
}
