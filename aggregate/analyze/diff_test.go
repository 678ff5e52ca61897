package analyze

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

func everything(int, event.Region) bool { return true }

func TestPartsAddUpWhatOneStackHas(t *testing.T) {
	s := aggregate.New()
	stack := func() *event.Stack {
		return event.StackOf([]event.Frame{{Kind: event.Python, Name: "f", File: "m.py", Line: 1}})
	}
	for id := range uint64(3) {
		s.Apply(&event.Event{
			Kind: event.Alloc, PID: 1, BufferID: id, Devices: []int{0, 1}, Region: event.DRAM, BytesPerBank: 10, Banks: 4, Stack: stack(),
		})
	}
	s.Apply(&event.Event{Kind: event.Alloc, PID: 1, BufferID: 9, Devices: []int{0}, Region: event.L1, BytesPerBank: 5, Banks: 2, Stack: stack()})
	cores := []event.CoreRange{{X1: 1}}
	s.Apply(&event.Event{Kind: event.CBAlloc, PID: 1, ProgramID: 1, Devices: []int{0}, Address: 64, SizeBytes: 32, Cores: cores, StaticKind: event.CircularBuffer})
	s.Apply(&event.Event{Kind: event.CBAlloc, PID: 1, ProgramID: 1, Devices: []int{0}, Address: 96, SizeBytes: 32, Cores: cores, StaticKind: event.CircularBuffer, Global: true})

	var p Parts
	p.AddLive(s, everything)
	type sum struct {
		Region       event.Region
		Count, Bytes uint64
	}
	sums := func(p *Parts) (list []sum) {
		for _, one := range p.List {
			list = append(list, sum{one.Region, one.Count, one.Bytes})
		}
		return list
	}
	qt.Check(t, qt.DeepEquals(sums(&p), []sum{{event.DRAM, 3, 120}, {event.L1, 1, 10}, {event.CB, 1, 64}}))

	var l1 Parts
	l1.AddLive(s, func(_ int, r event.Region) bool { return r == event.L1 })
	qt.Check(t, qt.DeepEquals(sums(&l1), []sum{{event.L1, 1, 10}}))
}

func TestPartsHaveWhatTheProgramDidNotFree(t *testing.T) {
	for _, before := range []bool{false, true} {
		for reason, want := range map[event.Reason][]memory.Amount{
			event.ReasonExplicit:    {},
			event.ReasonDeviceClose: {{Count: 3, Bytes: 120}},
			event.ReasonProcessExit: {{Count: 3, Bytes: 120}},
		} {
			s := aggregate.New()
			for id := range uint64(3) {
				s.Apply(&event.Event{
					Kind: event.Alloc, PID: 1, BufferID: id + 1, Allocator: 1, Devices: []int{0, 1}, Region: event.DRAM, BytesPerBank: 10, Banks: 4, BeforeAttach: before,
				})
			}
			switch reason {
			case event.ReasonExplicit:
				for id := range uint64(3) {
					s.Apply(&event.Event{Kind: event.Free, PID: 1, BufferID: id + 1, Reason: reason})
				}
				s.Apply(&event.Event{Kind: event.ProcessExit, PID: 1})
			case event.ReasonDeviceClose:
				s.Apply(&event.Event{Kind: event.DeviceClose, PID: 1, Allocator: 1, Devices: []int{0, 1}})
			default:
				s.Apply(&event.Event{Kind: event.ProcessExit, PID: 1})
			}
			var p Parts
			p.AddUnfreed(s)
			amounts := []memory.Amount{}
			for _, one := range p.List {
				amounts = append(amounts, one.Amount)
			}
			qt.Check(t, qt.DeepEquals(amounts, want), qt.Commentf("%s, before the attach: %t", reason, before))
		}
	}
}
