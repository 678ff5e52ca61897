package replay

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// A script is events of process 7, which has one device with allocator 1.
type script struct {
	*Replay
	ids uint64
}

const kib = 1 << 10

// play begins a process on a device with 64 KiB of L1, 16 KiB of L1_SMALL, 1 MiB of DRAM and 64 KiB of TRACE per bank.
func play(whatIfs ...*WhatIf) *script {
	s := &script{Replay: New(whatIfs...)}
	s.start(false)
	s.open("")
	return s
}

func (s *script) start(late bool) {
	s.Apply(&event.Event{Kind: event.ProcessStart, PID: 7, Start: &event.Start{AttachedLate: late}})
}

func (s *script) open(cause string) { s.Apply(device(1, 64, cause)) }

func device(allocator uint64, banks uint32, cause string) *event.Event {
	e := &event.Event{Kind: event.DeviceOpen, PID: 7, Devices: []int{0}, Allocator: allocator, Cause: cause, Open: new(event.Open)}
	e.Open.Capacities = [event.BankedRegions]event.Capacity{
		event.DRAM:    {Banks: 12, Base: 64 * kib, BytesPerBank: 1024 * kib},
		event.Trace:   {Banks: 12, Base: 1088 * kib, BytesPerBank: 64 * kib},
		event.L1:      {Banks: banks, Base: 16 * kib, BytesPerBank: 64 * kib},
		event.L1Small: {Banks: banks, Base: 80 * kib, BytesPerBank: 16 * kib},
	}
	return e
}

func at(names ...string) *event.Stack {
	var frames []event.Frame
	for _, name := range names {
		frames = append(frames, event.Frame{Kind: event.Native, Name: name})
	}
	return event.StackOf(frames)
}

// alloc allocates KiB of each bank at an address, which is in KiB, too, and returns the event.
func (s *script) alloc(region event.Region, address, bytes uint64, change ...func(*event.Event)) *event.Event {
	s.ids++
	e := &event.Event{
		Kind: event.Alloc, PID: 7, Devices: []int{0}, Allocator: 1, Region: region, BufferID: s.ids, Address: address * kib, BytesPerBank: bytes * kib,
	}
	for _, f := range change {
		f(e)
	}
	s.Apply(e)
	return e
}

func (s *script) free(e *event.Event) {
	s.Apply(&event.Event{Kind: event.Free, PID: 7, BufferID: e.BufferID})
}

// fail is an allocation of KiB that fails, and returns what is known at that moment.
func (s *script) fail(t *testing.T, region event.Region, bytes uint64, know func(f *Failure)) {
	t.Helper()
	called := false
	s.OnFailure = func(f *Failure) {
		called = true
		know(f)
	}
	s.Apply(&event.Event{
		Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Allocator: 1, Region: region, BytesPerBank: bytes * kib, Reason: event.ReasonOutOfMemory,
	})
	qt.Assert(t, qt.IsTrue(called))
}

func (s *script) check(t *testing.T, want map[Class]uint64) {
	t.Helper()
	got := make(map[Class]uint64)
	for class, n := range s.Counts {
		if n > 0 {
			got[Class(class)] = n
		}
	}
	qt.Check(t, qt.DeepEquals(got, want))
}

func TestAddressesArePredicted(t *testing.T) {
	s := play()
	s.alloc(event.DRAM, 64, 8)
	low := s.alloc(event.DRAM, 72, 8)
	s.alloc(event.DRAM, 80, 8)
	s.free(low)
	s.alloc(event.DRAM, 88, 16) // the hole is too small
	s.alloc(event.DRAM, 72, 4)
	high := s.alloc(event.L1, 72, 8)
	mid := s.alloc(event.L1, 64, 8)
	s.alloc(event.L1, 56, 8)
	s.free(high)
	s.free(mid) // they join
	s.alloc(event.L1, 64, 16)
	s.alloc(event.L1Small, 92, 4)
	s.alloc(event.Trace, 1088, 4)
	s.alloc(event.DRAM, 1080, 8) // from the other end
	s.check(t, map[Class]uint64{Predicted: 11, OtherEnd: 1})

	s.Apply(&event.Event{Kind: event.DeviceClose, PID: 7, Allocator: 1, Devices: []int{0}})
	s.open("")
	s.alloc(event.L1, 72, 8)
	s.start(false) // the same id again
	s.open("")
	s.alloc(event.L1, 72, 8)
	s.Apply(&event.Event{Kind: event.ProcessExit, PID: 7})
	s.check(t, map[Class]uint64{Predicted: 13, OtherEnd: 1})
	qt.Check(t, qt.Equals(s.live, 0))
}

// TestAllocatorsAreApart: a mesh and a submesh have the same addresses, and so has another process.
func TestAllocatorsAreApart(t *testing.T) {
	s := play()
	s.Apply(device(2, 64, ""))
	s.alloc(event.L1, 72, 8)
	s.alloc(event.L1, 72, 8, func(e *event.Event) { e.Allocator = 2 })
	s.check(t, map[Class]uint64{Predicted: 2})
}

// TestADifferenceHasAClass: what follows is predicted from the real address.
func TestADifferenceHasAClass(t *testing.T) {
	lost := func(s *script) { s.Apply(&event.Event{Kind: event.Lost, PID: 7, Count: 1}) }
	for _, c := range []struct {
		name   string
		want   Class
		before func(s *script)
		change func(e *event.Event)
		next   uint64 // where the next 8 KiB of L1 go
	}{
		{"nothing known", NotPredicted, nil, nil, 72},
		{"at an address", AtAddress, nil, func(e *event.Event) { e.Stack = at("FreeListOpt::allocate_at_address") }, 72},
		{"before the attach", BeforeAttach, nil, func(e *event.Event) { e.BeforeAttach = true }, 72},
		{"a late attach", BeforeAttach, func(s *script) { s.start(true); s.open("") }, nil, 72},
		{"lost events", LostEvents, lost, nil, 72},
		{"lost events of any process", LostEvents, func(s *script) { s.Apply(&event.Event{Kind: event.Lost, Count: 1}) }, nil, 72},
		{"a correction", LostEvents, nil, func(e *event.Event) { e.Reread = true }, 72},
		{"corrected", NotPredicted, func(s *script) { lost(s); s.Apply(&event.Event{Kind: event.Reread, PID: 7}) }, nil, 72},
		{"on single cores", PerCore, nil, func(e *event.Event) { e.PerCore = true }, 72},
		{"beside one on single cores", PerCore, func(s *script) {
			s.alloc(event.L1, 0, 8, func(e *event.Event) { e.PerCore = true })
			s.Counts[PerCore]--
		}, nil, 72},
		{"beside one on single cores of a mesh", PerCore, func(s *script) {
			e := device(1, 64, "")
			e.Devices = []int{0, 1}
			s.Apply(e)
			s.Apply(device(2, 64, "")) // of its first chip
			s.alloc(event.L1, 0, 8, func(e *event.Event) { e.PerCore, e.Allocator = true, 2 })
			s.Counts[PerCore]--
		}, nil, 72},
		{"resized", SubDevices, func(s *script) { s.open("sub-device manager") }, nil, 72},
		{"a sub-device", SubDevices, func(s *script) { s.Apply(device(2, 72, "")) }, nil, 72},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := play()
			if c.before != nil {
				c.before(s)
			}
			if c.change == nil {
				c.change = func(*event.Event) {}
			}
			s.alloc(event.L1, 40, 8, c.change)
			s.alloc(event.L1, c.next, 8)
			s.check(t, map[Class]uint64{c.want: 1, Predicted: 1})
		})
	}
}

// TestARecordingThatBeginsInTheMiddle begins with a checkpoint, which has all that the model needs.
func TestARecordingThatBeginsInTheMiddle(t *testing.T) {
	state, whole := aggregate.New(), play()
	for _, e := range []*event.Event{
		{Kind: event.ProcessStart, PID: 7}, device(1, 64, ""), whole.alloc(event.L1, 72, 8), whole.alloc(event.DRAM, 64, 8),
	} {
		state.Apply(e)
	}
	s := &script{Replay: New(), ids: 10}
	s.Apply(state.Checkpoint())
	s.alloc(event.L1, 64, 8)
	s.alloc(event.DRAM, 72, 8)
	s.check(t, map[Class]uint64{BeforeAttach: 2, Predicted: 2})
}

// TestDoubts: what cannot be known is said in one line.
func TestDoubts(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(s *script)
		want   string
	}{
		{"nothing", func(*script) {}, ""},
		{"late", func(s *script) { s.start(true); s.open("") }, unread},
		{"unsized", func(s *script) { s.alloc(event.L1, 72, 0, func(e *event.Event) { e.BeforeAttach = true }) }, unsized},
		{"lost", func(s *script) { s.Apply(&event.Event{Kind: event.Lost, Count: 1}) }, lost},
		{"no device", func(s *script) { s.start(false) }, unknownAllocator},
		{"single cores", func(s *script) { s.alloc(event.L1, 0, 8, func(e *event.Event) { e.PerCore = true }) }, onSingleCores},
		{"another address", func(s *script) { s.alloc(event.L1, 20, 8) }, wrongAddress},
		{"before the attach", func(s *script) { s.alloc(event.L1, 72, 8, func(e *event.Event) { e.BeforeAttach = true }) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := play()
			c.before(s)
			s.fail(t, event.L1, 70, func(f *Failure) {
				qt.Check(t, qt.Equals(f.Doubt, c.want))
				qt.Check(t, qt.Equals(f.Freeing(0, 1<<20).Doubt, c.want))
			})
			qt.Check(t, qt.Equals(s.FailuresPredicted, 1-uint64(min(len(c.want), 1))))
		})
	}
	s := play()
	s.fail(t, event.L1, 64, func(f *Failure) { qt.Check(t, qt.Equals(f.Doubt, fitsByModel)) })
}

// fragments are three buffers of 16 KiB with holes of 8 KiB between them, at the call sites a, b and a.
func fragments(s *script) {
	site := func(name string) func(*event.Event) { return func(e *event.Event) { e.Stack = at(name) } }
	s.alloc(event.L1, 64, 16, site("a"))
	one := s.alloc(event.L1, 56, 8)
	s.alloc(event.L1, 40, 16, site("b"))
	two := s.alloc(event.L1, 32, 8)
	s.alloc(event.L1, 16, 16, site("a"))
	s.free(one)
	s.free(two)
}

func selects(name string) Sites {
	return func(s *event.Stack) bool { return s.Frames()[0].Name == name }
}

func with(changes ...Change) *WhatIf { return &WhatIf{Changes: changes} }

// TestFreeing is asked at the moment of the failure, and changes nothing.
func TestFreeing(t *testing.T) {
	s := play()
	fragments(s)
	s.fail(t, event.L1, 32, func(f *Failure) {
		qt.Check(t, qt.Equals(f.Freeing(40*kib, 56*kib), Verdict{Fits: true, Address: 32 * kib}))
		qt.Check(t, qt.Equals(f.Freeing(64*kib, 72*kib), Verdict{}))
		qt.Check(t, qt.Equals(f.FreeingAll(selects("b")), Verdict{Fits: true, Address: 32 * kib}))
		qt.Check(t, qt.Equals(f.FreeingAll(selects("a")), Verdict{}))
	})
	s.alloc(event.L1, 56, 8)
	s.check(t, map[Class]uint64{Predicted: 6})
}

func TestWhatIfs(t *testing.T) {
	without := with(Without(selects("b")))
	small := with(Set(L1SmallSize, 40*kib, 0))
	both := with(Without(selects("a")), Set(L1SmallSize, 40*kib, 0))
	lower := with(Set(WorkerL1Size, 60*kib, 0))
	s := play(without, small, both, lower)
	fragments(s)
	s.fail(t, event.L1, 16, func(f *Failure) {
		qt.Check(t, qt.Equals(f.With(0), Verdict{Fits: true, Address: 48 * kib}))
		qt.Check(t, qt.Equals(f.With(1), Verdict{}))
		qt.Check(t, qt.Equals(f.With(2), Verdict{Fits: true, Address: 16 * kib}))
	})
	qt.Check(t, qt.Equals(without.LeftOut, 1))
	qt.Check(t, qt.Equals(without.Most[event.L1], 48*kib))
	qt.Check(t, qt.Equals(small.Failed, 2))
	qt.Check(t, qt.Equals(both.LeftOut, 2))
	qt.Check(t, qt.Equals(both.Failed, 0))
	qt.Check(t, qt.IsTrue(lower.Failed > 0))

	larger := with(Set(L1SmallSize, 32*kib, 0), Set(TraceRegionSize, 12*128*kib, 0))
	impossible := with(Set(L1SmallSize, 1024*kib, 0))
	beyond := with(Set(WorkerL1Size, 81*kib, 0))
	another := with(Set(L1SmallSize, 32*kib, 8))
	s = play(larger, impossible, beyond, another)
	s.alloc(event.L1Small, 80, 16)
	s.fail(t, event.L1Small, 16, func(f *Failure) {
		qt.Check(t, qt.Equals(f.With(0), Verdict{Fits: true, Address: 64 * kib}))
		qt.Check(t, qt.StringContains(f.With(1).Doubt, "does not open"))
		qt.Check(t, qt.StringContains(f.With(2).Doubt, "is not known"))
		qt.Check(t, qt.Equals(f.With(3), Verdict{}))
	})
	s.fail(t, event.Trace, 100, func(f *Failure) {
		qt.Check(t, qt.Equals(f.With(0), Verdict{Fits: true, Address: (1152 - 128) * kib}))
	})
}

// TestProgramsThatRan: circular buffers that overlap a tensor only with the changes are failures of the change.
func TestProgramsThatRan(t *testing.T) {
	larger := with(Set(L1SmallSize, 32*kib, 0))
	s := play(larger)
	s.alloc(event.L1, 64, 16)
	run := func(program, end uint64) {
		s.Apply(&event.Event{Kind: event.CBAlloc, PID: 7, Devices: []int{0}, ProgramID: program, Address: 16 * kib, SizeBytes: (end - 16) * kib})
		s.Apply(&event.Event{Kind: event.ProgramRun, PID: 7, Devices: []int{0}, ProgramID: program})
	}
	run(1, 48)
	qt.Check(t, qt.Equals(larger.Failed, 0))
	run(2, 49)
	qt.Check(t, qt.Equals(larger.Failed, 1))
	s.Apply(&event.Event{Kind: event.ProgramRun, PID: 7, Devices: []int{0}, ProgramID: 2})
	qt.Check(t, qt.Equals(larger.Failed, 1))
	run(3, 65) // it fails as recorded, too
	qt.Check(t, qt.Equals(larger.Failed, 1))
}

// TestAnAddressThatIsNotPredicted makes what would be with other sizes unknown.
func TestAnAddressThatIsNotPredicted(t *testing.T) {
	small := with(Set(L1SmallSize, 32*kib, 0))
	s := play(small)
	s.alloc(event.L1, 40, 8, func(e *event.Event) { e.BeforeAttach = true })
	s.fail(t, event.L1, 70, func(f *Failure) {
		qt.Check(t, qt.Equals(f.Doubt, ""))
		qt.Check(t, qt.StringContains(f.With(0).Doubt, "not predicted"))
	})
}

// TestLimits are failures of which the library's message has the figures.
func TestLimits(t *testing.T) {
	lower := with(Set(WorkerL1Size, 72*kib, 0)) // L1 begins 8 KiB higher
	free := with(Without(selects("low")))
	for _, c := range []struct {
		reason      event.Reason
		region      event.Region
		message     string
		lower, free Verdict
	}{
		{
			event.ReasonStaticClash, event.CB, "Statically allocated circular buffers in program 1 clash with L1 buffers on core range [0-0]. " +
				"L1 buffer allocated at 57344 and static circular buffer region ends at 65536",
			Verdict{End: 72 * kib, Lowest: 56 * kib}, Verdict{Fits: true, End: 64 * kib, Lowest: 64 * kib},
		},
		{
			event.ReasonKernelConfigTooSmall, event.Kernel, "Program size (20480) too large for kernel config buffer (16384)",
			Verdict{Fits: true}, Verdict{},
		},
		{
			event.ReasonKernelConfigTooSmall, event.Kernel, "Program size (656) too large for kernel config buffer (0)",
			Verdict{Fits: true}, Verdict{},
		},
		{
			event.ReasonStaticTooLarge, event.CB, "Statically allocated circular buffers on core range [0-0] grow to 102400 B which is beyond max L1 size of 98304 B",
			Verdict{End: 108 * kib}, Verdict{End: 100 * kib},
		},
	} {
		s := play(lower, free)
		s.alloc(event.L1, 64, 16)
		s.alloc(event.L1, 56, 8, func(e *event.Event) { e.Stack = at("low") })
		s.OnFailure = func(f *Failure) {
			qt.Check(t, qt.Equals(f.Doubt, ""), qt.Commentf("%s", c.reason))
			qt.Check(t, qt.Equals(f.With(0), c.lower), qt.Commentf("%s", c.reason))
			qt.Check(t, qt.Equals(f.With(1), c.free), qt.Commentf("%s", c.reason))
		}
		s.Apply(&event.Event{Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Region: c.region, Reason: c.reason, Message: c.message})
		qt.Check(t, qt.Equals(s.FailuresPredicted, 1))
	}
}

// TestTheMessageDecides: if the library counts otherwise, nothing is proved. If it does not, nothing was allocated before a late
// attach.
func TestTheMessageDecides(t *testing.T) {
	s := play()
	failed := &event.Event{
		Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Allocator: 1, Region: event.L1, BytesPerBank: 70 * kib, Reason: event.ReasonOutOfMemory,
		Message: "Out of Memory: Not enough space to allocate 4587520 B L1 buffer across 64 banks, where each bank needs to store 71680 B, " +
			"but bank size is 65536 B (allocated: 1 B, free: 65535 B, largest free block: 65535 B)",
	}
	s.OnFailure = func(f *Failure) { qt.Check(t, qt.StringContains(f.Doubt, "the library counts 65535 B free")) }
	s.Apply(failed)
	qt.Check(t, qt.Equals(s.Failures, 1))
	qt.Check(t, qt.Equals(s.FailuresPredicted, 0))

	s.start(true)
	s.open("")
	failed.Message = strings.NewReplacer("allocated: 1 B", "allocated: 0 B", "65535", "65536").Replace(failed.Message)
	s.OnFailure = nil
	s.Apply(failed)
	qt.Check(t, qt.Equals(s.FailuresPredicted, 1))
}

// BenchmarkApply allocates and frees beside 100,000 live buffers, as recorded and with one change.
func BenchmarkApply(b *testing.B) {
	const live = 100_000
	s := New(with(Without(func(*event.Stack) bool { return false })))
	open := device(1, 64, "")
	open.Open.Capacities[event.DRAM].BytesPerBank = 1 << 40
	s.Apply(open)
	for i := range b.N {
		e := event.Event{Kind: event.Alloc, PID: 7, Devices: []int{0}, Allocator: 1, BufferID: uint64(i), BytesPerBank: uint64(1+i%7) * kib}
		if i >= live {
			s.Apply(&event.Event{Kind: event.Free, PID: 7, BufferID: uint64(i - live + i%1000)})
		}
		e.Address, _ = s.process(7).allocator(1).spaces[event.DRAM].fit(e.BytesPerBank, false)
		s.Apply(&e)
	}
}
