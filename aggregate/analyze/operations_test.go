package analyze

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Call stacks with one key are one operation, with the tightest of their runs.
func TestOperationsAreInOrderOfPressure(t *testing.T) {
	one := func(pid int, key string, runs, peak, capacity uint64, chip int) memory.Operation {
		return memory.Operation{
			PID: pid, Devices: []int{chip}, Stack: event.StackOf([]event.Frame{{Name: key}}), Runs: runs, FirstNs: 10 - runs, LastNs: 10 + runs,
			Peak: memory.CoreUse{CBBytes: peak, CapacityBytes: capacity, Device: chip},
		}
	}
	list := []memory.Operation{
		one(1, "unknown", 1, 5000, 0, 0),
		one(1, "relaxed", 5, 10, 1000, 0),
		one(1, "tight", 2, 500, 1000, 1),
		one(2, "tight", 1, 990, 1000, 0),
		one(1, "tight", 3, 900, 1000, 0),
		one(1, "skipped", 3, 999, 1000, 0),
	}
	got := Operations(list, func(o *memory.Operation) string {
		if name := o.Stack.Frames()[0].Name; name != "skipped" {
			return name
		}
		return ""
	})
	merged := list[4]
	merged.Devices, merged.Runs, merged.FirstNs, merged.LastNs = []int{0, 1}, 5, 7, 13
	want := []Operation{{list[3], "tight"}, {merged, "tight"}, {list[1], "relaxed"}, {list[0], "unknown"}}
	qt.Assert(t, qt.HasLen(got, len(want)))
	for i := range want {
		qt.Check(t, qt.Equals(got[i].Stack, want[i].Stack))
		got[i].Stack, want[i].Stack = nil, nil
		qt.Check(t, qt.DeepEquals(got[i], want[i]))
	}
}
