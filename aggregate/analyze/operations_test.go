package analyze

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// TestAnOperationHasTheTightestRun: an operation adds up call stacks, and has the peak of the one with the
// least headroom.
func TestAnOperationHasTheTightestRun(t *testing.T) {
	one := func(runs, peak, capacity uint64, chip int) memory.Operation {
		return memory.Operation{
			PID: 1, Devices: []int{chip}, Stack: event.StackOf([]event.Frame{{Name: "tight"}}), Runs: runs, FirstNs: 10 - runs, LastNs: 10 + runs,
			Peak: memory.CoreUse{CBBytes: peak, CapacityBytes: capacity, Device: chip},
		}
	}
	sum, tight, unknown := one(2, 500, 1000, 1), one(3, 900, 1000, 0), one(1, 5000, 0, 0)
	AddOperation(&sum, &tight)
	AddOperation(&sum, &unknown)
	qt.Check(t, qt.Equals(sum.Stack, tight.Stack))
	want := tight
	want.Devices, want.Runs, want.FirstNs, want.LastNs = []int{0, 1}, 6, 7, 13
	sum.Stack, want.Stack = nil, nil
	qt.Check(t, qt.DeepEquals(sum, want))
}
