// Package newest keeps the newest values of a series, with a share for each user.
package newest

import (
	"maps"
	"slices"

	"ttmem/tracer/codec"
)

// Most is the number of values that a List keeps: the newest. If there are too many, it keeps as
// many of each user.
const Most = 1000

// A Value belongs to a user. Its event has a number.
type Value interface {
	Origin() (uid int, number uint64)
}

// A List has the newest values of a series, oldest first. It only adds to the end, so that
// snapshots may share it.
type List[T Value] struct {
	Count uint64 // including dropped values
	all   []T    // up to twice Most
	// missing is the number of the newest value that is not in all.
	missing uint64
}

// Add adds a value.
func (n *List[T]) Add(one T) {
	n.Count++
	if len(n.all) == 2*Most {
		n.all, n.missing = n.kept()
	}
	n.all = append(n.all, one)
}

// List returns the newest values. It is never nil.
func (n *List[T]) List() []T {
	list, _ := n.kept()
	if list == nil {
		return []T{}
	}
	return slices.Clip(list)
}

// Each calls each with every value in the list.
func (n *List[T]) Each(each func(*T)) {
	for i := range n.all {
		each(&n.all[i])
	}
}

// CompleteFrom returns the number of the event after which no value is missing.
func (n *List[T]) CompleteFrom() uint64 {
	_, missing := n.kept()
	return missing
}

// kept returns up to Most values, and the number of the newest missing one. No user's values
// displace those of a user who has fewer.
func (n *List[T]) kept() (list []T, missing uint64) {
	list, dropped := Shared(n.all, Most)
	missing = n.missing
	for _, one := range dropped {
		_, number := one.Origin()
		missing = max(missing, number)
	}
	return list, missing
}

// Shared returns up to most of the values, the last ones of each user, and the dropped ones. No
// user's values displace those of a user who has fewer.
func Shared[T Value](all []T, most int) (kept, dropped []T) {
	if len(all) <= most {
		return all, nil
	}
	drop := make(map[int]int) // at first how many each user has
	for _, one := range all {
		uid, _ := one.Origin()
		drop[uid]++
	}
	each := FairShare(drop, most)
	for uid := range drop {
		drop[uid] -= each
	}
	kept, dropped = make([]T, 0, most), make([]T, 0, len(all)-most)
	for _, one := range all {
		if uid, _ := one.Origin(); drop[uid] > 0 {
			drop[uid]--
			dropped = append(dropped, one)
			continue
		}
		kept = append(kept, one)
	}
	return kept, dropped
}

// FairShare returns how many values each user may have so that all fit: users with fewer leave
// their room to the others.
func FairShare(have map[int]int, room int) (each int) {
	for i, count := range slices.Sorted(maps.Values(have)) {
		if each = room / (len(have) - i); count > each {
			break
		}
		room -= count
	}
	return each
}

// Only returns the values that are selected.
func (n *List[T]) Only(selected func(*T) bool) (some List[T]) {
	list, missing := n.kept()
	for _, one := range list {
		if selected(&one) {
			some.Add(one)
		}
	}
	some.missing = missing
	return some
}

// Code writes or reads the list.
func (n *List[T]) Code(c *codec.Codec, each func(*T)) {
	list, missing := n.kept()
	c.Uints(&n.Count, &missing)
	if codec.ListUpTo(c, &list, Most, each); c.Reads {
		n.all, n.missing = list, missing
	}
}
