package memory

import "sort"

// An Interval is the time from FromNs to ToNs, with both.
type Interval struct{ FromNs, ToNs uint64 }

// Intervals are in order and do not overlap; nil is all time.
type Intervals []Interval

// Has reports whether a time is in one of the intervals.
func (l Intervals) Has(ns uint64) bool {
	i := sort.Search(len(l), func(i int) bool { return l[i].ToNs >= ns })
	return l == nil || i < len(l) && l[i].FromNs <= ns
}
