// Package ended keeps the survivors of call sites whose allocators were closed.
package ended

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/newest"
)

// Most is the number of call sites that Sites keeps: those with the most survivors, and as many of each user.
const Most = 4096

// A Site is the survivors of a call site. P identifies its process, also after its PID is reused.
type Site[P comparable] struct {
	memory.Survivors
	Process P
}

// Sites has the survivors of up to twice Most call sites. The zero value is empty.
type Sites[P comparable] struct {
	All []*Site[P]
	// Others is the sum of the survivors that are not in All.
	Others memory.Amount
}

// Trim, once the list has twice the limit, keeps the call sites with the most survivors, as many of each
// user, and adds up the others.
func (l *Sites[P]) Trim(userOf func(P) int) {
	if len(l.All) < 2*Most {
		return
	}
	slices.SortStableFunc(l.All, func(a, b *Site[P]) int {
		return cmp.Or(cmp.Compare(b.Run.Total(), a.Run.Total()), cmp.Compare(b.Bytes, a.Bytes))
	})
	has := make(map[int]int)
	for _, v := range l.All {
		has[userOf(v.Process)]++
	}
	each := newest.FairShare(has, Most)
	clear(has)
	l.All = slices.DeleteFunc(l.All, func(v *Site[P]) bool {
		user := userOf(v.Process)
		if has[user]++; has[user] <= each {
			return false
		}
		l.Others.Add(v.Amount)
		return true
	})
}

// Amounts returns the survivors of each call site, with the bytes on each chip.
func (l *Sites[P]) Amounts() (list []memory.SiteAmount) {
	for _, v := range l.All {
		bytes := v.Bytes / uint64(max(1, len(v.Devices)))
		list = append(list, memory.SiteAmount{Site: v.Site, Amount: memory.Amount{Count: v.Count, Bytes: bytes}})
	}
	return list
}

// Merge adds up the survivors of each call site, over all its allocators.
func Merge[P comparable](list []*Site[P]) (merged []memory.Survivors) {
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
		one.Fresh.Add(v.Fresh)
		one.AgeNs, one.Allocated = max(one.AgeNs, v.AgeNs), max(one.Allocated, v.Allocated)
		if v.Run.Total() > one.Run.Total() {
			one.Run = v.Run
		}
	}
	return merged
}
