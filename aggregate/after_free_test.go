package aggregate_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestUsedAfterFree: a run has the address of a buffer that was freed, if nothing was allocated there since and the free is not
// one of its own operation.
func TestUsedAfterFree(t *testing.T) {
	calls := func(line int, op string) *event.Stack {
		return event.StackOf([]event.Frame{{Kind: event.Native, Name: op}, {Kind: event.Python, Name: "main", File: "a.py", Line: line}})
	}
	at := func(stack *event.Stack, e event.Event) event.Event { e.Stack = stack; return e }
	run := func(addresses ...uint32) event.Event { return at(calls(5, "run"), used(0, 9, addresses, nil)) }
	free := func(line int) event.Event {
		return at(calls(line, "free"), event.Event{Kind: event.Free, BufferID: 1, Reason: event.ReasonExplicit})
	}
	const address = 0x110000
	for name, c := range map[string]struct {
		region event.Region
		events []event.Event
		want   uint64
	}{
		"DRAM":              {event.DRAM, []event.Event{free(4), run(address), run(0x200000), run(address)}, 2},
		"L1":                {event.L1, []event.Event{free(4), run(address)}, 1},
		"circular buffer":   {event.L1, []event.Event{free(4), at(calls(5, "run"), used(0, 9, nil, []uint32{address}))}, 1},
		"live":              {event.DRAM, []event.Event{run(address)}, 0},
		"in use again":      {event.DRAM, []event.Event{free(4), born(0, 1, 2, event.DRAM, address), run(address)}, 0},
		"in another buffer": {event.DRAM, []event.Event{free(4), born(0, 1, 2, event.DRAM, address-512), run(address)}, 0},
		"other chip":        {event.DRAM, []event.Event{free(4), used(1, 9, []uint32{address}, nil)}, 0},
		"freed by the same call, as by ttnn.move":   {event.DRAM, []event.Event{free(5), run(address)}, 0},
		"freed by the call before at the same line": {event.DRAM, []event.Event{free(5), run(), run(address)}, 1},
		"lost events":    {event.DRAM, []event.Event{free(4), {Kind: event.Lost, Count: 1}, run(address)}, 0},
		"without stacks": {event.DRAM, []event.Event{at(nil, free(4)), at(nil, run(address))}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := usesOf(t, append([]event.Event{run(0x300000), born(0, 1, 1, c.region, address)}, c.events...)...)
			count := func(list []memory.AfterFree) (n uint64) {
				for _, a := range list {
					n += a.Count
					qt.Check(t, qt.DeepEquals([]any{a.Address, a.Region, a.PID}, []any{uint64(address), c.region.String(), 7}))
				}
				return n
			}
			qt.Check(t, qt.Equals(count(s.Snapshot().AfterFree), c.want))
			qt.Check(t, qt.Equals(count(restored(t, s).Snapshot().AfterFree), c.want))
		})
	}
}
