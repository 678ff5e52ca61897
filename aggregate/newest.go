package aggregate

import (
	"slices"

	"ttmem/tracer/codec"
)

// maxNewest is the number of failures, of marks of users and of marks of --mark-at that a
// State keeps: the newest.
const maxNewest = 1000

// newest are the newest values of a series, oldest first. It only adds to the end of the list,
// so that snapshots may share it.
type newest[T any] struct {
	count uint64 // of all values
	all   []T    // up to twice maxNewest
}

func (n *newest[T]) add(one T) {
	n.count++
	if len(n.all) == 2*maxNewest {
		n.all = slices.Clone(n.list())
	}
	n.all = append(n.all, one)
}

// list returns the newest values. It is never nil.
func (n *newest[T]) list() []T {
	if n.all == nil {
		return []T{}
	}
	return slices.Clip(n.all[max(0, len(n.all)-maxNewest):])
}

// only returns the values that are selected.
func (n *newest[T]) only(selected func(*T) bool) (some newest[T]) {
	for _, one := range n.list() {
		if selected(&one) {
			some.add(one)
		}
	}
	return some
}

// completeFrom returns the number of the event after which no value is missing.
func (n *newest[T]) completeFrom(number func(*T) uint64) uint64 {
	if list := n.list(); n.count > uint64(len(list)) && len(list) > 0 {
		return number(&list[0]) - 1
	}
	return 0
}

func (n *newest[T]) code(c *codec.Codec, each func(*T)) {
	c.Uint(&n.count)
	list := n.list()
	if codec.List(c, &list, each); c.Reads {
		n.all = list
	}
}
