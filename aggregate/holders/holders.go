// Package holders adds up buffers by the call stack that allocated them.
package holders

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Share is the buffers in one region that one call stack allocated, or several stacks
// together, and that ended for one reason; NoReason if they are live.
type Share struct {
	Region event.Region
	Reason event.Reason
	memory.Holder
	// SizeBytes is the sum of the buffers' sizes over all chips.
	SizeBytes uint64
}

// A Table has the shares of several call stacks.
type Table map[key]*Share

type key struct {
	region event.Region
	reason event.Reason
	// stack is 0 for several stacks and for an unknown one.
	stack                 uint64
	several, beforeAttach bool
}

func (s *Share) key() key {
	if s.Stack != nil {
		return key{region: s.Region, reason: s.Reason, stack: s.Stack.ID}
	}
	return key{region: s.Region, reason: s.Reason, several: s.Stacks > 0, beforeAttach: s.BeforeAttach}
}

// Add adds a share.
func (t Table) Add(s Share) {
	k := s.key()
	sum := t[k]
	if sum == nil {
		first := s // so that only the first share of a key is on the heap
		t[k] = &first
		return
	}
	sum.Bytes += s.Bytes
	sum.Count += s.Count
	sum.Stacks += s.Stacks
	sum.SizeBytes += s.SizeBytes
}

// Sorted returns the shares: those of one call stack first, and of these the largest first.
func (t Table) Sorted() []*Share {
	type keyed struct {
		key
		*Share
	}
	list := make([]keyed, 0, len(t))
	for k, s := range t {
		list = append(list, keyed{k, s})
	}
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(memory.CompareBools(a.stack != 0, b.stack != 0),
			cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.stack, b.stack),
			cmp.Compare(a.region, b.region), cmp.Compare(a.reason, b.reason),
			memory.CompareBools(a.beforeAttach, b.beforeAttach), memory.CompareBools(a.several, b.several))
	})
	shares := make([]*Share, len(list))
	for i := range list {
		shares[i] = list[i].Share
	}
	return shares
}

// Largest returns a table with the shares of the n largest call stacks. The shares of the
// other stacks are added up.
func (t Table) Largest(n int) Table {
	largest := make(Table, min(len(t), 2*n))
	for i, s := range t.Sorted() {
		share := *s
		if i >= n {
			share.MergeStack()
		}
		largest.Add(share)
	}
	return largest
}

// MergeStack turns the share of a known call stack into one of several stacks.
func (s *Share) MergeStack() {
	if s.Stack != nil {
		s.Stack, s.Stacks = nil, 1
	}
}

// Totals returns the totals by reason and region, with the n largest call stacks. A total has
// no holders if neither a call stack nor the reason for its absence is known.
func (t Table) Totals(n int) (list []memory.RegionTotal) {
	shares := t.Largest(n).Sorted()
	slices.SortStableFunc(shares, func(a, b *Share) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Region, b.Region))
	})
	for i, s := range shares {
		if i == 0 || s.Reason != shares[i-1].Reason || s.Region != shares[i-1].Region {
			list = append(list, memory.RegionTotal{Region: s.Region.String(), Reason: s.Reason.String()})
		}
		total := &list[len(list)-1]
		total.Buffers += s.Count
		total.SizeBytes += s.SizeBytes
		total.AllocatedBytes += s.Bytes
		total.Holders = append(total.Holders, s.Holder)
	}
	for i := range list {
		if h := list[i].Holders; len(h) == 1 && h[0].Stack == nil && h[0].Stacks == 0 && !h[0].BeforeAttach {
			list[i].Holders = nil
		}
	}
	return list
}
