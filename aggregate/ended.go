package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
)

// maxEnded is the number of call sites whose survivors an endedSites keeps: those with the most.
const maxEnded = 4096

// siteSurvivors are the survivors of a call site of a process, which is known also after its PID is
// reused.
type siteSurvivors struct {
	memory.Survivors
	process *processName
}

// endedSites has the survivors of up to twice maxEnded call sites whose allocators were closed.
type endedSites struct {
	all []*siteSurvivors
	// others is the sum of the survivors that are not in all.
	others memory.Amount
}

// trim, once the list has twice the limit, keeps the call sites with the most survivors and adds
// up the others.
func (l *endedSites) trim() {
	if len(l.all) < 2*maxEnded {
		return
	}
	slices.SortStableFunc(l.all, func(a, b *siteSurvivors) int {
		return cmp.Or(cmp.Compare(b.Run.Total(), a.Run.Total()), cmp.Compare(b.Bytes, a.Bytes))
	})
	for _, v := range l.all[maxEnded:] {
		l.others.Add(v.Amount)
	}
	l.all = slices.Delete(l.all, maxEnded, len(l.all))
}

// merge adds up the survivors of each call site, over all its allocators.
func merge(list []*siteSurvivors) (merged []memory.Survivors) {
	type site struct {
		process *processName
		memory.SiteKey
	}
	index := make(map[site]int)
	for _, v := range list {
		key := site{v.process, v.Key()}
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

// EndedSurvivors returns the buffers that ended with their device or process, by call site, with
// the bytes on each chip. It has only the call sites with the most; others is the sum of the
// rest.
func (s *State) EndedSurvivors() (list []memory.SiteAmount, others memory.Amount) {
	for _, v := range s.ended.all {
		bytes := v.Bytes / uint64(max(1, len(v.Devices)))
		list = append(list, memory.SiteAmount{Site: v.Site, Amount: memory.Amount{Count: v.Count, Bytes: bytes}})
	}
	return list, s.ended.others
}
