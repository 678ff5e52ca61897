// Package overlap counts the addresses that buffers of several allocators cover, each once.
package overlap

import (
	"math"
	"math/rand/v2"
)

// A cover is the union of blocks of addresses. A change costs O(log n). The zero value is empty.
//
// It is a treap of the addresses at which the number of blocks changes, so that adjacent blocks
// take no more room than one.
type cover struct{ root *node }

// insert adds the block from start up to but not including end, and returns how many of its bytes
// no other block covers.
func (c *cover) insert(start, end uint64) (newly uint64) {
	before := c.bytes()
	c.root = c.root.change(start, 1).change(end, -1)
	return c.bytes() - before
}

// remove removes a block that was inserted, and returns how many of its bytes no other block
// covers.
func (c *cover) remove(start, end uint64) (bare uint64) {
	before := c.bytes()
	c.root = c.root.change(start, -1).change(end, 1)
	return before - c.bytes()
}

// bytes returns the size of the union.
func (c *cover) bytes() uint64 {
	switch n := c.root; {
	case n == nil:
		return 0
	case n.least == 0:
		return n.last - n.first - n.bare
	default:
		return n.last - n.first
	}
}

// A node is an address at which delta more blocks begin than end.
type node struct {
	at, priority uint64
	delta        int
	left, right  *node
	// first and last are the addresses at both ends of the subtree, and sum is that of its deltas.
	first, last uint64
	sum         int
	// least is the lowest number of blocks between two addresses of the subtree, compared with the
	// number before it, and bare is the number of bytes with so few.
	least int
	bare  uint64
}

// change changes the number of blocks from an address on, and returns the new subtree.
func (n *node) change(at uint64, delta int) *node {
	switch {
	case n == nil:
		n = &node{at: at, delta: delta, priority: rand.Uint64()}
	case at == n.at:
		if n.delta += delta; n.delta == 0 {
			return merge(n.left, n.right)
		}
	case at < n.at:
		if n.left = n.left.change(at, delta); n.left != nil && n.left.priority > n.priority {
			top := n.left
			n.left, top.right = top.right, n
			n.update()
			n = top
		}
	default:
		if n.right = n.right.change(at, delta); n.right != nil && n.right.priority > n.priority {
			top := n.right
			n.right, top.left = top.left, n
			n.update()
			n = top
		}
	}
	n.update()
	return n
}

// merge joins two subtrees; all addresses of the left one are lower.
func merge(left, right *node) *node {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.priority > right.priority:
		left.right = merge(left.right, right)
		left.update()
		return left
	}
	right.left = merge(left, right.left)
	right.update()
	return right
}

// update computes what a node says about its subtree.
func (n *node) update() {
	n.first, n.last, n.sum = n.at, n.at, n.delta
	n.least, n.bare = math.MaxInt, 0
	if l := n.left; l != nil {
		n.first, n.sum = l.first, l.sum+n.delta
		n.add(0, l)
		n.gap(l.sum, n.at-l.last)
	}
	if r := n.right; r != nil {
		n.last = r.last
		n.gap(n.sum, r.first-n.at)
		n.add(n.sum, r)
		n.sum += r.sum
	}
}

// add counts the gaps of a part of the subtree before which there are this many blocks.
func (n *node) add(blocks int, part *node) {
	if part.bare > 0 {
		n.gap(blocks+part.least, part.bare)
	}
}

// gap counts bytes that this many blocks cover.
func (n *node) gap(blocks int, bytes uint64) {
	switch {
	case blocks < n.least:
		n.least, n.bare = blocks, bytes
	case blocks == n.least:
		n.bare += bytes
	}
}
