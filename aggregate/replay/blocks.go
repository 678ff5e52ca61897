package replay

import (
	"math/rand/v2"

	"ttmem/tracer/event"
)

// A block is an allocated part of each bank, and a node of a tree: the blocks left of it are below it,
// and those above it have smaller priorities, which are random. So the tree is about as deep as the
// logarithm of its size.
type block struct {
	start, end uint64
	// of says what allocated it.
	of          *event.Stack
	left, right *block
	priority    uint32
	region      event.Region // in a changed program
	// low and high are where the blocks of the subtree begin and end, and gap is the largest gap between them.
	low, high, gap uint64
}

// between returns the bytes between two addresses; 0 if they are not in order.
func between(low, high uint64) uint64 { return high - min(low, high) }

// update computes what a block has of its subtree.
func (b *block) update() {
	b.low, b.high, b.gap = b.start, b.end, 0
	if l := b.left; l != nil {
		b.low, b.gap = l.low, max(l.gap, between(l.high, b.start))
	}
	if r := b.right; r != nil {
		b.high, b.gap = r.high, max(b.gap, r.gap, between(b.end, r.low))
	}
}

// split divides a tree into the blocks below an address and the others.
func split(b *block, at uint64) (below, above *block) {
	if b == nil {
		return nil, nil
	}
	if b.start < at {
		b.right, above = split(b.right, at)
		below = b
	} else {
		below, b.left = split(b.left, at)
		above = b
	}
	b.update()
	return below, above
}

// join is the opposite of split.
func join(below, above *block) *block {
	switch {
	case below == nil:
		return above
	case above == nil:
		return below
	case below.priority < above.priority:
		below.right = join(below.right, above)
		below.update()
		return below
	}
	above.left = join(below, above.left)
	above.update()
	return above
}

// A space is one region of an allocator: addresses of each bank, from base to end, and the blocks
// there. Blocks do not overlap. All of its functions but each take time by the logarithm of the blocks.
type space struct {
	base, end uint64
	root      *block
	// count and bytes are of all blocks.
	count int
	bytes uint64
	// spare are dropped blocks, which new ones take the place of: each is left of the one before.
	spare *block
}

// block returns a new block, which is not in the space yet.
func (s *space) block(start, bytes uint64, of *event.Stack) *block {
	b := s.spare
	if b == nil {
		b = &block{priority: rand.Uint32()}
	} else {
		s.spare = b.left
	}
	*b = block{start: start, end: start + bytes, of: of, priority: b.priority}
	b.update()
	return b
}

// fit returns the address that the library's allocator chooses: the lowest free one that is followed
// by enough free bytes or, from the top, the highest.
func (s *space) fit(bytes uint64, fromTop bool) (address uint64, fits bool) {
	return s.root.fit(s.base, s.end, max(bytes, 1), fromTop)
}

// fit is space.fit between two addresses, which the blocks next to the subtree leave.
func (b *block) fit(low, high, bytes uint64, fromTop bool) (uint64, bool) {
	if b == nil {
		if between(low, high) < bytes {
			return 0, false
		}
		if fromTop {
			return high - bytes, true
		}
		return low, true
	}
	if max(b.gap, between(low, b.low), between(b.high, high)) < bytes {
		return 0, false
	}
	if fromTop {
		if address, fits := b.right.fit(max(low, b.end), high, bytes, fromTop); fits {
			return address, true
		}
		return b.left.fit(low, min(high, b.start), bytes, fromTop)
	}
	if address, fits := b.left.fit(low, min(high, b.start), bytes, fromTop); fits {
		return address, true
	}
	return b.right.fit(max(low, b.end), high, bytes, fromTop)
}

// first returns the lowest block that ends above an address; nil if there is none.
func (s *space) first(above uint64) (found *block) {
	for b := s.root; b != nil; {
		if b.end > above {
			found, b = b, b.left
		} else {
			b = b.right
		}
	}
	return found
}

// in returns a block that has a part of the addresses; nil if all are free.
func (s *space) in(start, end uint64) *block {
	if b := s.first(start); b != nil && b.start < end {
		return b
	}
	return nil
}

// add adds a block where none is.
func (s *space) add(b *block) {
	below, above := split(s.root, b.start)
	s.root = join(join(below, b), above)
	s.count++
	s.bytes += b.end - b.start
}

// remove removes a block that is there.
func (s *space) remove(b *block) {
	below, rest := split(s.root, b.start)
	_, above := split(rest, b.start+1)
	b.left, b.right = nil, nil
	b.update()
	s.root = join(below, above)
	s.count--
	s.bytes -= b.end - b.start
}

// drop removes a block that is there, and that nothing else refers to.
func (s *space) drop(b *block) {
	s.remove(b)
	b.left, s.spare = s.spare, b
}

// has reports whether a block is still there.
func (s *space) has(b *block) bool { return s.in(b.start, b.start+1) == b }

// lowest returns where the lowest block begins; 0 if there is none.
func (s *space) lowest() uint64 {
	if s.root == nil {
		return 0
	}
	return s.root.low
}

// isOutside reports whether a block is not in the region, which was resized.
func (s *space) isOutside() bool {
	return s.root != nil && (s.root.low < s.base || s.root.high > s.end)
}

// state returns the figures of the library's message of a failure.
func (s *space) state() event.BankState {
	capacity := between(s.base, s.end)
	state := event.BankState{CapacityBytes: capacity, AllocatedBytes: s.bytes, FreeBytes: between(s.bytes, capacity)}
	if state.LargestFreeBytes = capacity; s.root != nil {
		state.LargestFreeBytes = max(s.root.gap, between(s.base, s.root.low), between(s.root.high, s.end))
	}
	return state
}

// each calls do with the blocks of a subtree in order. It must not change the space.
func (b *block) each(do func(*block)) {
	if b != nil {
		b.left.each(do)
		do(b)
		b.right.each(do)
	}
}
