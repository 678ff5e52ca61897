package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// settled reports that no event refuses the latest runs.
func settled(s *aggregate.State) *aggregate.State {
	s.Advance(s.Now() + 1e9)
	return s
}

// chipOf opens a chip whose L1 has this capacity.
func chipOf(capacity uint64) event.Event {
	e := event.Event{TimeNs: 1, Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}}
	e.Open = new(event.Open)
	e.Open.Capacities[event.L1] = event.Capacity{Banks: 64, BytesPerBank: capacity}
	return e
}

// refused says that the library refused to run a program of process 7.
func refused(now, program uint64) event.Event {
	return event.Event{
		TimeNs: now, Kind: event.AllocFailed, PID: 7, ProgramID: program, Devices: []int{0}, Region: event.CB, Reason: event.ReasonStaticClash,
	}
}

func TestThePeakOfL1IsTheHighestSample(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []event.Event
		want   memory.L1Peak
	}{
		{"a run beside buffers", []event.Event{
			inL1(2, 1, 500, 0), runs(3, 5, 1, 0), static(4, 5, 100, event.CircularBuffer, 1, 0),
		}, memory.L1Peak{TimeNs: 4, BufferBytes: 500, CBBytes: 100}},
		{"a cached program takes nothing beside later buffers", []event.Event{
			runs(2, 5, 1, 0), static(3, 5, 600, event.CircularBuffer, 1, 0), inL1(4, 1, 900, 0),
		}, memory.L1Peak{TimeNs: 4, BufferBytes: 900}},
		{"a run from the cache", []event.Event{
			runs(2, 5, 1, 0), static(3, 5, 100, event.CircularBuffer, 1, 0), inL1(4, 1, 800, 0), runs(5, 5, 1, 0), free(6, 7, 1),
		}, memory.L1Peak{TimeNs: 5, BufferBytes: 800, CBBytes: 100}},
		{"programs do not add up", []event.Event{
			runs(2, 5, 1, 0), static(3, 5, 100, event.CircularBuffer, 1, 0), runs(4, 6, 1, 0), static(5, 6, 150, event.DataflowBuffer, 1, 0),
		}, memory.L1Peak{TimeNs: 5, CBBytes: 150}},
		{"a refused run never was", []event.Event{
			inL1(2, 1, 500, 0), runs(3, 5, 1, 0), static(4, 5, 400, event.CircularBuffer, 1, 0), refused(5, 5), endCBs(6, 7, 5), free(7, 7, 1),
		}, memory.L1Peak{TimeNs: 2, BufferBytes: 500}},
		{"a refused run from the cache", []event.Event{
			runs(2, 5, 1, 0), static(3, 5, 400, event.CircularBuffer, 1, 0), inL1(4, 1, 500, 0), runs(5, 5, 1, 0), refused(6, 5), free(7, 7, 1),
		}, memory.L1Peak{TimeNs: 4, BufferBytes: 500}},
		{"an allocation that fails after a run does not refuse it", []event.Event{
			runs(2, 5, 1, 0), static(3, 5, 400, event.CircularBuffer, 1, 0),
			{TimeNs: 4, Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory},
		}, memory.L1Peak{TimeNs: 3, CBBytes: 400}},
		{"what does not fit is no state that was", []event.Event{
			inL1(2, 1, 700, 0), runs(3, 5, 1, 0), static(4, 5, 400, event.CircularBuffer, 1, 0),
		}, memory.L1Peak{TimeNs: 2, BufferBytes: 700}},
		{"a buffer that is allocated while the program is compiled", []event.Event{
			runs(2, 5, 1, 0), inL1(3, 1, 300, 0), static(4, 5, 400, event.CircularBuffer, 1, 0),
		}, memory.L1Peak{TimeNs: 4, BufferBytes: 300, CBBytes: 400}},
		{"a library that reports no runs", []event.Event{
			inL1(2, 1, 300, 0), from(1, static(3, 5, 400, event.CircularBuffer, 1, 0)), inL1(4, 2, 200, 0), from(1, static(5, 6, 100, event.CircularBuffer, 1, 0)),
		}, memory.L1Peak{TimeNs: 3, BufferBytes: 300, CBBytes: 400, AtLeast: true}},
		{"circular buffers that are reported after the run", []event.Event{
			inL1(2, 1, 300, 0), static(3, 5, 400, event.CircularBuffer, 1, 0), runs(4, 5, 1, 0), runs(5, 6, 1, 0), static(6, 5, 100, event.Scratchpad, 1, 0), free(7, 7, 1),
		}, memory.L1Peak{TimeNs: 6, BufferBytes: 300, CBBytes: 500}},
		{"too late: another buffer is there", []event.Event{
			inL1(2, 1, 300, 0), static(3, 5, 400, event.CircularBuffer, 1, 0), runs(4, 5, 1, 0), runs(5, 6, 1, 0), inL1(6, 2, 10, 0), static(7, 5, 100, event.Scratchpad, 1, 0), free(8, 7, 1),
		}, memory.L1Peak{TimeNs: 4, BufferBytes: 300, CBBytes: 400}},
		{"beside a trace, which runs programs unseen", []event.Event{
			inL1(2, 1, 300, 0), {TimeNs: 3, Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: 9, Devices: []int{0}, Region: event.Trace, BytesPerBank: 10, Banks: 12},
		}, memory.L1Peak{TimeNs: 2, BufferBytes: 300, AtLeast: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := after(append([]event.Event{chipOf(1000)}, test.events...)...)
			for _, s := range []*aggregate.State{restored(t, s), s} {
				settled(s)
				qt.Check(t, qt.Equals(device(t, s, 0).L1PerCore.Peak, test.want))
				qt.Check(t, qt.Equals(s.Snapshot().Processes[0].Devices[0].L1PerCore.Peak, test.want))
				peaks := s.RegionPeaks()
				qt.Check(t, qt.Equals(peaks[0].Bytes, test.want.Bytes()))
				qt.Check(t, qt.Equals(peaks[0].StaticBytes, test.want.CBBytes))
				var spans uint64
				for _, span := range peaks[0].Timeline.Spans(100) {
					spans = max(spans, span.Max)
				}
				qt.Check(t, qt.Equals(spans, test.want.Bytes()))
				var static uint64
				for _, p := range peaks[0].Programs {
					static += p.Bytes
				}
				qt.Check(t, qt.Equals(static, test.want.CBBytes))
				most := uint64(0)
				list, _ := s.Operations()
				for _, op := range list {
					most = max(most, op.Peak.Bytes())
				}
				qt.Check(t, qt.IsTrue(most <= test.want.Bytes()))
				qt.Check(t, qt.IsTrue(test.want.CBBytes == 0 || most == test.want.Bytes()))
			}
		})
	}
}

// TestARunIsThereAtItsMomentOnly: the program is part of L1 while its run is the latest event.
func TestARunIsThereAtItsMomentOnly(t *testing.T) {
	s := after(chipOf(1000), inL1(2, 1, 500, 0), runs(3, 5, 1, 0), static(4, 5, 100, event.CircularBuffer, 1, 0))
	qt.Check(t, qt.DeepEquals(device(t, s, 0).L1PerCore, memory.L1PerCore{
		CapacityBytes: 1000, BufferBytes: 500, CBBytes: 100, FreeBytes: 400, LargestProgramBytes: 100,
		Peak: memory.L1Peak{TimeNs: 2, BufferBytes: 500},
	}))
	qt.Check(t, qt.IsTrue(s.Runs(&s.Statics(0)[0], 0)))
	e := inL1(5, 2, 10, 0)
	s.Apply(&e)
	qt.Check(t, qt.DeepEquals(device(t, s, 0).L1PerCore, memory.L1PerCore{
		CapacityBytes: 1000, BufferBytes: 510, FreeBytes: 490, LargestProgramBytes: 100,
		Peak: memory.L1Peak{TimeNs: 4, BufferBytes: 500, CBBytes: 100},
	}))
	qt.Check(t, qt.IsFalse(s.Runs(&s.Statics(0)[0], 0)))
}

// TestAProgramInsideABufferTakesNothing: its circular buffers are in an L1 buffer, which counts them.
func TestAProgramInsideABufferTakesNothing(t *testing.T) {
	global := static(4, 5, 100, event.CircularBuffer, 1, 0)
	global.Global = true
	s := after(chipOf(1000), inL1(2, 1, 500, 0), runs(3, 5, 1, 0), global)
	for _, s := range []*aggregate.State{s, restored(t, s)} {
		qt.Check(t, qt.IsTrue(s.Runs(&s.Statics(0)[0], 0)))
		qt.Check(t, qt.Equals(device(t, s, 0).L1PerCore.CBBytes, 0))
		qt.Check(t, qt.Equals(device(t, settled(s), 0).L1PerCore.Peak, memory.L1Peak{TimeNs: 2, BufferBytes: 500}))
	}
}

// TestAStepBeginsWithoutCachedPrograms: what ran before is no part of a step's peak.
func TestAStepBeginsWithoutCachedPrograms(t *testing.T) {
	s := after(chipOf(1000), runs(2, 5, 1, 0), static(3, 5, 900, event.CircularBuffer, 1, 0), inL1(4, 1, 50, 0))
	s.RestartPeaks()
	e := inL1(5, 2, 30, 0)
	s.Apply(&e)
	qt.Check(t, qt.Equals(peakOfL1(s), 80))
}

// TestRunsAreReportedOnce, and not those that the library refused.
func TestRunsAreReportedOnce(t *testing.T) {
	var list []memory.ProgramRun
	s := aggregate.New()
	s.OnRun(func(r memory.ProgramRun) { r.Of = nil; list = append(list, r) })
	for _, e := range []event.Event{
		chipOf(1000), inL1(2, 1, 500, 0),
		runs(3, 5, 1, 0), static(4, 5, 100, event.CircularBuffer, 1, 0),
		runs(5, 6, 1, 0), static(6, 6, 450, event.CircularBuffer, 1, 0), refused(7, 6),
		runs(8, 5, 1, 0), inL1(9, 2, 10, 0),
	} {
		s.Apply(&e)
	}
	settled(s).Snapshot()
	at := func(number, ns uint64) memory.Point { return memory.Point{Number: number, TimeNs: ns} }
	qt.Check(t, qt.DeepEquals(list, []memory.ProgramRun{
		{Point: at(4, 4), Bytes: 600, StaticBytes: 100}, {Point: at(8, 8), Bytes: 600, StaticBytes: 100},
	}))
}

// TestPeaksOfAPart: samples count from the beginning of a part on, but for pauses, after which the present
// use is the first one.
func TestPeaksOfAPart(t *testing.T) {
	s := after(chipOf(1000), inL1(2, 1, 500, 0), inL1(3, 2, 100, 0), free(4, 7, 2))
	apply := func(events ...event.Event) {
		for i := range events {
			s.Apply(&events[i])
		}
	}
	own := func() uint64 {
		peak := s.Snapshot().Processes[0].Devices[0].L1PerCore.Peak
		return peak.BufferBytes + peak.CBBytes
	}
	s.BeginPeaks()
	qt.Check(t, qt.Equals(peakOfL1(s), 500))
	apply(runs(5, 5, 1, 0), static(6, 5, 50, event.CircularBuffer, 1, 0))
	s.CountPeaks(false) // the run was before
	apply(inL1(7, 3, 400, 0), runs(8, 5, 1, 0))
	s.Settle()
	qt.Check(t, qt.Equals(peakOfL1(s), 550))
	qt.Check(t, qt.Equals(own(), 550))
	apply(free(9, 7, 3), inL1(10, 4, 60, 0))
	qt.Check(t, qt.Equals(peakOfL1(s), 550))
	s.CountPeaks(true)
	qt.Check(t, qt.Equals(peakOfL1(s), 560))
	qt.Check(t, qt.Equals(own(), 560))
	var held uint64
	for _, peak := range s.RegionPeaks() {
		for _, holder := range peak.Holders {
			held += holder.Bytes
		}
	}
	qt.Check(t, qt.Equals(held, 560))
}
