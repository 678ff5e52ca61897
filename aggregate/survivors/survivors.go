// Package survivors keeps the survivors of call sites whose allocators were closed, in bounded
// memory.
package survivors

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// Most is the number of call sites that a List keeps: those with the most survivors.
const Most = 4096

// Of are the survivors of a call site of a process. P still identifies the process after its PID
// is reused.
type Of[P comparable] struct {
	memory.Survivors
	Process P
}

// A List has the survivors of up to twice Most call sites. The zero value is empty.
type List[P comparable] struct {
	All []*Of[P]
	// Others is the sum of the survivors that are not in All.
	Others memory.Amount
}

// Add adds the survivors of a call site.
func (l *List[P]) Add(v *Of[P]) { l.All = append(l.All, v) }

// Trim, once the list has twice the limit, keeps the call sites with the most survivors and adds
// up the others.
func (l *List[P]) Trim() {
	if len(l.All) < 2*Most {
		return
	}
	slices.SortStableFunc(l.All, func(a, b *Of[P]) int {
		return cmp.Or(cmp.Compare(b.Run.Total(), a.Run.Total()), cmp.Compare(b.Bytes, a.Bytes))
	})
	for _, v := range l.All[Most:] {
		l.Others.Add(v.Amount)
	}
	l.All = slices.Delete(l.All, Most, len(l.All))
}

// Sites returns the survivors with the bytes on each chip.
func (l *List[P]) Sites() (list []memory.SiteAmount) {
	for _, v := range l.All {
		bytes := v.Bytes / uint64(max(1, len(v.Devices)))
		list = append(list, memory.SiteAmount{Site: v.Site, Amount: memory.Amount{Count: v.Count, Bytes: bytes}})
	}
	return list
}

// Only returns the survivors of the selected processes.
func (l *List[P]) Only(selected func(P) bool) (some List[P]) {
	for _, v := range l.All {
		if selected(v.Process) {
			some.Add(v)
		}
	}
	return some
}

// Code writes or reads the list. one writes or reads the survivors of a call site.
func (l *List[P]) Code(c *codec.Codec, one func(*Of[P])) {
	codec.List(c, &l.All, func(v **Of[P]) { one(codec.Made(c, v)) })
	c.Value(&l.Others)
}

// Merge adds up the survivors of each call site, over all its allocators.
func Merge[P comparable](list []Of[P]) (merged []memory.Survivors) {
	type site struct {
		process P
		memory.SiteKey
	}
	index := make(map[site]int)
	for _, v := range list {
		key := site{v.Process, v.Key()}
		i, ok := index[key]
		if !ok {
			index[key] = len(merged)
			merged = append(merged, v.Survivors)
			continue
		}
		one := &merged[i]
		one.Amount.Add(v.Amount)
		one.FreedAtTeardown.Add(v.FreedAtTeardown)
		one.AgeNs, one.Allocated = max(one.AgeNs, v.AgeNs), max(one.Allocated, v.Allocated)
		if v.Run.Total() > one.Run.Total() {
			one.Run = v.Run
		}
	}
	return merged
}
