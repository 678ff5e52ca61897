package analyze

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
)

// AddOperation adds the runs of another call stack to those of an operation. Stack and Peak are those of
// the call stack with the least headroom.
func AddOperation(o, b *memory.Operation) {
	o.Devices = slices.Compact(slices.Sorted(slices.Values(slices.Concat(o.Devices, b.Devices))))
	o.Runs += b.Runs
	o.Replays += b.Replays
	o.Failures += b.Failures
	o.FirstNs, o.LastNs = min(o.FirstNs, b.FirstNs), max(o.LastNs, b.LastNs)
	if ComparePressure(&b.Peak, &o.Peak) < 0 {
		o.Peak, o.Stack = b.Peak, b.Stack
	}
}

// ComparePressure orders uses by their headroom, the least first, and then by their bytes. Those
// of an unknown capacity are last.
func ComparePressure(a, b *memory.CoreUse) int {
	return cmp.Or(
		memory.CompareBools(a.CapacityBytes > 0, b.CapacityBytes > 0),
		cmp.Compare(a.HeadroomBytes(), b.HeadroomBytes()), cmp.Compare(b.Bytes(), a.Bytes()))
}
