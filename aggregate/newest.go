package aggregate

import (
	"maps"
	"slices"

	"ttmem/tracer/codec"
)

// maxNewest is the number of failures, of marks of users and of marks of --mark-at that a
// State keeps: the newest, and as many of each user if there are too many.
const maxNewest = 1000

// A userValue belongs to a user, and comes with the event of a number.
type userValue interface {
	Origin() (uid int, number uint64)
}

// newest are the newest values of a series, oldest first. It only adds to the end of the list,
// so that snapshots may share it.
type newest[T userValue] struct {
	count uint64 // of all values
	all   []T    // up to twice maxNewest
	// missing is the number of the newest value that all does not have.
	missing uint64
}

func (n *newest[T]) add(one T) {
	n.count++
	if len(n.all) == 2*maxNewest {
		n.all, n.missing = n.kept()
	}
	n.all = append(n.all, one)
}

// list returns the newest values. It is never nil.
func (n *newest[T]) list() []T {
	list, _ := n.kept()
	if list == nil {
		return []T{}
	}
	return slices.Clip(list)
}

// completeFrom returns the number of the event after which no value is missing.
func (n *newest[T]) completeFrom() uint64 {
	_, missing := n.kept()
	return missing
}

// kept returns up to maxNewest values, and the number of the newest one that is missing. No
// user's values displace those of a user who has fewer.
func (n *newest[T]) kept() (list []T, missing uint64) {
	if len(n.all) <= maxNewest {
		return n.all, n.missing
	}
	drop := make(map[int]int) // at first how many each user has
	for _, one := range n.all {
		uid, _ := one.Origin()
		drop[uid]++
	}
	each := fairShare(drop, maxNewest)
	for uid := range drop {
		drop[uid] -= each
	}
	missing = n.missing
	for _, one := range n.all {
		uid, number := one.Origin()
		if drop[uid] > 0 {
			drop[uid]--
			missing = max(missing, number)
			continue
		}
		list = append(list, one)
	}
	return list, missing
}

// fairShare returns how many values each user may have, so that all have room: users with fewer
// leave the rest to the others.
func fairShare(have map[int]int, room int) (each int) {
	for i, count := range slices.Sorted(maps.Values(have)) {
		if each = room / (len(have) - i); count > each {
			break
		}
		room -= count
	}
	return each
}

// only returns the values that are selected.
func (n *newest[T]) only(selected func(*T) bool) (some newest[T]) {
	list, missing := n.kept()
	for _, one := range list {
		if selected(&one) {
			some.add(one)
		}
	}
	some.missing = missing
	return some
}

func (n *newest[T]) code(c *codec.Codec, each func(*T)) {
	list, missing := n.kept()
	c.Uints(&n.count, &missing)
	if codec.List(c, &list, each); c.Reads {
		n.all, n.missing = list, missing
	}
}
