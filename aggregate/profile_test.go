package aggregate_test

import (
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// stacks are a few to allocate from; the first is none.
var stacks = func() []*event.Stack {
	list := []*event.Stack{nil}
	for id := range uint64(4) {
		list = append(list, event.NewStack(id+1, nil))
	}
	return list
}()

func from(stack int, e event.Event) event.Event {
	e.Stack = stacks[stack]
	return e
}

// profileOf is that of some events.
func profileOf(events ...event.Event) *memory.Profile {
	s := aggregate.New()
	s.KeepSites()
	for i := range events {
		feed(s, &events[i])
	}
	return s.Profile()
}

// feed applies an event as a session does.
func feed(s *aggregate.State, e *event.Event) {
	for implied := range s.Implied(e) {
		s.Apply(implied)
	}
	s.Complete(e)
	s.Apply(e)
}

func amount(count, bytes uint64) memory.Amount {
	return memory.Amount{Count: count, Bytes: bytes}
}

func TestAStackKeepsWhatItHadAtThePeak(t *testing.T) {
	// stack 1 has two at the peak (time 3), stack 2 one, stack 3 none.
	p := profileOf(
		from(1, tensor(1, 7, 1, 0)), from(1, tensor(2, 7, 2, 0)), from(2, tensor(3, 7, 3, 0)),
		free(4, 7, 1), free(5, 7, 3), from(3, tensor(6, 7, 4, 0)), free(7, 7, 2),
	)
	const n = 540672
	qt.Check(t, qt.IsTrue(slices.Equal(p.Samples, []memory.Sample{
		{PID: 7, Stack: stacks[1], Allocated: amount(2, 2*n), Peak: amount(2, 2*n)},
		{PID: 7, Stack: stacks[2], Allocated: amount(1, n), Peak: amount(1, n)},
		{PID: 7, Stack: stacks[3], Allocated: amount(1, n), Live: amount(1, n)},
	})), qt.Commentf("%+v", p.Samples))
	qt.Check(t, qt.DeepEquals(p.Peaks, []memory.PeakPoint{{Point: memory.Point{Number: 3, TimeNs: 3}, Region: event.DRAM, Bytes: 3 * n}}))
	first, last := p.FirstNs, p.LastNs
	qt.Check(t, qt.Equals(first, 1))
	qt.Check(t, qt.Equals(last, 7))
}

func TestThePeakIsOfAllProcesses(t *testing.T) {
	// process 7 alone has most at time 2, but both together at time 5
	p := profileOf(
		from(1, tensor(1, 7, 1, 0)), from(1, tensor(2, 7, 2, 0)), free(3, 7, 1),
		from(1, tensor(4, 8, 1, 0)), from(1, tensor(5, 8, 2, 0)),
	)
	samples := p.Samples
	qt.Assert(t, qt.HasLen(samples, 2))
	qt.Check(t, qt.Equals(samples[0].Peak.Count, 1))
	qt.Check(t, qt.Equals(samples[1].Peak.Count, 2))
}

func TestUnfreedBuffersAreLive(t *testing.T) {
	closed := tensor(1, 7, 1, 0)
	closed.Allocator = 5
	p := profileOf(
		from(1, closed), from(1, tensor(2, 7, 2, 0)), from(1, tensor(3, 7, 3, 0)),
		from(2, cb(4, 7, 1, 1000, 100, 1, 0, 0)), from(2, cb(4, 7, 2, 1000, 100, 1, 0, 0)),
		from(3, kernels(5, 7, 1, 300, 10, 0)),
		event.Event{TimeNs: 6, Kind: event.DeviceClose, PID: 7, Allocator: 5, Devices: []int{0}},
		free(7, 7, 3), endCBs(8, 7, 1),
		event.Event{TimeNs: 9, Kind: event.ProcessExit, PID: 7},
	)
	live := make(map[event.Region]memory.Amount)
	for _, s := range p.Samples {
		live[s.Region] = s.Unfreed()
	}
	qt.Check(t, qt.DeepEquals(live, map[event.Region]memory.Amount{
		event.DRAM: amount(2, 2*540672), event.CB: amount(1, 200), event.Kernel: amount(1, 300),
	}))
}

func TestAProfileWithoutImpliedExitsLeavesTheSame(t *testing.T) {
	s := aggregate.New()
	s.KeepSites()
	for _, e := range []event.Event{
		from(1, tensor(1, 7, 1, 0)), from(2, cb(2, 7, 1, 1000, 100, 1, 0, 0)), from(3, kernels(3, 7, 1, 300, 10, 0)),
		{TimeNs: 4, Kind: event.ProcessExit, PID: 7},
	} {
		s.Apply(&e)
	}
	for _, s := range s.Profile().Samples {
		qt.Check(t, qt.Equals(s.Unfreed(), s.Allocated))
	}
}

func TestAStackOnSeveralSetsOfChipsIsOneSampleAChip(t *testing.T) {
	p := profileOf(from(1, tensor(1, 7, 1, 0, 1)), from(1, tensor(2, 7, 2, 1, 1)), from(1, tensor(3, 7, 3)))
	var got []uint64
	var devices []int
	for _, s := range p.Samples {
		got, devices = append(got, s.Allocated.Count), append(devices, s.Device)
	}
	qt.Check(t, qt.DeepEquals(devices, []int{memory.NoDevice, 0, 1}))
	qt.Check(t, qt.DeepEquals(got, []uint64{1, 1, 2}))
}

func TestProcessesHaveTheNamesThatTheyStartedWith(t *testing.T) {
	named := tensor(1, 8, 1, 0)
	named.Comm = "worker"
	p := profileOf(named, event.Event{TimeNs: 2, Kind: event.ProcessStart, PID: 7, Comm: "python3", Start: &event.Start{Command: "python3 x.py"}})
	qt.Check(t, qt.DeepEquals(p.Processes, []memory.ProfileProcess{
		{PID: 7, Comm: "python3", Command: "python3 x.py"}, {PID: 8, Comm: "worker"},
	}))
}
