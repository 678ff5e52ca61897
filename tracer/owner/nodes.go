package owner

import "math/rand/v2"

// A node is an object that was reached, with the reference that leads to it.
type node struct {
	object uint64
	// ref says which reference of its kind it is: an index, or the address of a str or a key.
	ref  uint64
	from uint32
	kind stepKind
	cost uint8
	typ  uint16 // the number of its type
}

// noNode is before the first node of a path.
const noNode = ^uint32(0)

const chunk = 1 << 16

// maxNodes bounds the nodes, so that the rest of the bits of a slot tell most objects apart.
const maxNodes = 1<<23 - 1

// nodes are numbered as they were added, and can be found by their objects: a table of their numbers
// takes a fraction of a map's memory.
type nodes struct {
	n      int
	chunks []*[chunk]node
	// slots have a node's number, from 1, below some bits of the hash of its object.
	slots  []uint32
	factor uint64 // a random one, or objects could be placed to collide
}

func (t *nodes) at(number uint32) *node { return &t.chunks[number/chunk][number%chunk] }

// find returns the node of an object; ok is false if there is none.
func (t *nodes) find(object uint64) (number uint32, ok bool) {
	if t.n == 0 {
		return 0, false
	}
	hash := object * t.factor
	for i := t.first(hash); ; i = t.next(i) {
		slot := t.slots[i]
		if slot == 0 {
			return 0, false
		}
		if slot&^maxNodes == uint32(hash>>32)&^maxNodes && t.at(slot&maxNodes-1).object == object {
			return slot&maxNodes - 1, true
		}
	}
}

func (t *nodes) first(hash uint64) uint64 { return hash >> 20 & uint64(len(t.slots)-1) }

func (t *nodes) next(i uint64) uint64 { return (i + 1) & uint64(len(t.slots)-1) }

// add adds a node of an object that has none.
func (t *nodes) add(n node) (number uint32) {
	if t.n*4 >= len(t.slots)*3 {
		t.factor = rand.Uint64() | 1
		t.slots = make([]uint32, max(1<<12, len(t.slots)*2))
		for i := range uint32(t.n) {
			t.insert(t.at(i).object, i)
		}
	}
	number = uint32(t.n)
	if number%chunk == 0 {
		t.chunks = append(t.chunks, new([chunk]node))
	}
	t.n++
	*t.at(number) = n
	t.insert(n.object, number)
	return number
}

func (t *nodes) insert(object uint64, number uint32) {
	hash := object * t.factor
	i := t.first(hash)
	for t.slots[i] != 0 {
		i = t.next(i)
	}
	t.slots[i] = uint32(hash>>32)&^maxNodes | (number + 1)
}
