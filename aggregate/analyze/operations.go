package analyze

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
)

// An Operation is one or several call stacks of a process that run programs and have the same
// key. Stack and Peak are those of the call stack with the least headroom.
type Operation struct {
	memory.Operation
	Key string
}

// Operations adds up operations with the same key, and returns the sums with the least headroom
// first. Operations with the key "" are left out.
func Operations(list []memory.Operation, key func(*memory.Operation) string) (all []Operation) {
	type of struct {
		pid int
		key string
	}
	index := make(map[of]int)
	for i := range list {
		one := Operation{list[i], key(&list[i])}
		if one.Key == "" {
			continue
		}
		at, ok := index[of{one.PID, one.Key}]
		if !ok {
			index[of{one.PID, one.Key}] = len(all)
			all = append(all, one)
			continue
		}
		all[at].add(one)
	}
	slices.SortStableFunc(all, func(a, b Operation) int {
		return cmp.Or(comparePressure(&a.Peak, &b.Peak), cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Key, b.Key), cmp.Compare(a.PID, b.PID))
	})
	return all
}

// add adds another call stack.
func (o *Operation) add(b Operation) {
	o.Devices = slices.Compact(slices.Sorted(slices.Values(slices.Concat(o.Devices, b.Devices))))
	o.Runs += b.Runs
	o.Replays += b.Replays
	o.Failures += b.Failures
	o.FirstNs, o.LastNs = min(o.FirstNs, b.FirstNs), max(o.LastNs, b.LastNs)
	if comparePressure(&b.Peak, &o.Peak) < 0 {
		o.Peak, o.Stack = b.Peak, b.Stack
	}
}

// comparePressure orders uses by their headroom, the least first, and then by their bytes. Those
// of an unknown capacity are last.
func comparePressure(a, b *memory.CoreUse) int {
	return cmp.Or(
		memory.CompareBools(a.CapacityBytes > 0, b.CapacityBytes > 0),
		cmp.Compare(a.HeadroomBytes(), b.HeadroomBytes()), cmp.Compare(b.Bytes(), a.Bytes()))
}
