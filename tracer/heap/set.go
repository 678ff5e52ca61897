package heap

// This file reads a std::unordered_set of pointers while it changes.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// setBytes is the size of libstdc++'s std::unordered_set: the buckets, their number,
	// the first node, the number of elements, the maximum load as a float, the size at
	// which to grow, and the single bucket of a new set.
	setBytes  = 0x38
	setFirst  = 0x10
	setSingle = 0x30
	// maxElements bounds the plausible number of buckets, elements or blocks.
	maxElements = 1 << 24
	// maxBucket bounds the elements of a bucket: pointers are distributed by remainder, and
	// there are as many buckets as elements.
	maxBucket = 1 << 8
	// maxTries is how often a bucket that changes while it is read is read again, and
	// maxRereads how often a set.
	maxTries   = 200
	maxRereads = 10
)

// pointerSet is a set of pointers in a process. A node has a pointer to the next one and
// its value; its bucket is the remainder of the value by the number of buckets, and the
// nodes of one bucket are adjacent. A bucket points to the node before its first.
type pointerSet struct {
	memory  memory
	address uint64
	setHeader
	heads []uint64 // the buckets' pointers at the last read
}

type setHeader struct{ buckets, count, first, size uint64 }

var (
	// errNoSet means that the memory cannot be a set.
	errNoSet = errors.New("no set of buffers")
	// errChanging means that something changed during every read.
	errChanging = errors.New("it changes too fast to be read")
)

// readSet reads the pointers in a set. It returns at least those that are in the set all
// the time.
func readSet(m memory, address uint64) ([]uint64, error) {
	s := &pointerSet{memory: m, address: address}
	var last []uint64
	changed := false // then the number of elements may differ
	for range maxRereads {
		if err := s.open(); err != nil {
			return nil, err
		}
		before := s.setHeader
		values, err := s.values()
		if err != nil && !errors.Is(err, errChanging) {
			return nil, err
		}
		if openErr := s.open(); openErr != nil {
			return nil, openErr
		}
		changed = changed || s.setHeader != before
		if err != nil || s.buckets != before.buckets || s.count != before.count {
			last = nil
			continue
		}
		if uint64(len(values)) == s.size || s.setHeader != before {
			return values, nil
		}
		last = values
	}
	if changed && last != nil {
		return last, nil
	}
	return nil, fmt.Errorf("set of buffers at %#x: %w", address, errChanging)
}

// open reads the header.
func (s *pointerSet) open() error {
	b, err := readBytes(s.memory, s.address, setBytes)
	if err != nil {
		return err
	}
	s.setHeader = setHeader{word(b, 0), word(b, 8), word(b, 0x10), word(b, 0x18)}
	load := math.Float32frombits(uint32(word(b, 0x20)))
	single := s.buckets == s.address+setSingle
	if load != 1 || s.count == 0 || single != (s.count == 1) || s.buckets%8 != 0 || s.buckets == 0 || s.size > s.count {
		return fmt.Errorf("%#x: %w", s.address, errNoSet)
	}
	if s.count > maxElements {
		return fmt.Errorf("%#x: %w: it has %d buckets", s.address, errNoSet, s.count)
	}
	return nil
}

// values reads all buckets twice, and again those whose two readings differ.
func (s *pointerSet) values() ([]uint64, error) {
	var readings [2][]cursor
	for i := range readings {
		if err := s.readHeads(); err != nil {
			return nil, err
		}
		cursors := make([]cursor, 0, s.size)
		for bucket, before := range s.heads {
			if before != 0 {
				cursors = append(cursors, cursor{bucket: uint64(bucket), before: before})
			}
		}
		if err := s.walk(cursors, s.head); err != nil {
			return nil, err
		}
		readings[i] = cursors
	}
	values := make([]uint64, 0, s.size)
	a, b := readings[0], readings[1]
	for len(a) > 0 || len(b) > 0 {
		bucket := s.count
		if len(a) > 0 {
			bucket = a[0].bucket
		}
		if len(b) > 0 {
			bucket = min(bucket, b[0].bucket)
		}
		var x, y cursor
		if len(a) > 0 && a[0].bucket == bucket {
			x, a = a[0], a[1:]
		}
		if len(b) > 0 && b[0].bucket == bucket {
			y, b = b[0], b[1:]
		}
		if !x.agrees(&y) {
			var err error
			if y, err = s.readBucket(bucket); err != nil {
				return nil, err
			}
		}
		values = append(values, y.values...)
	}
	slices.Sort(values)
	return slices.Compact(values), nil
}

// headsAtOnce is the number of buckets in one read.
const headsAtOnce = 1 << 17

func (s *pointerSet) readHeads() error {
	s.heads = make([]uint64, 0, s.count)
	for at := uint64(0); at < s.count; at += headsAtOnce {
		n := min(headsAtOnce, s.count-at)
		b, err := readBytes(s.memory, s.buckets+at*8, int(n)*8)
		if errors.Is(err, errUnreadable) {
			return errChanging // the set has grown, and freed them
		}
		if err != nil {
			return err
		}
		for i := range int(n) {
			s.heads = append(s.heads, word(b, i*8))
		}
	}
	return nil
}

// head is a bucket's pointer at the time when all were read.
func (s *pointerSet) head(bucket uint64) (uint64, error) { return s.heads[bucket], nil }

// headNow reads a bucket's pointer again.
func (s *pointerSet) headNow(bucket uint64) (uint64, error) {
	b, err := readBytes(s.memory, s.buckets+bucket*8, 8)
	if err != nil {
		return 0, err
	}
	return word(b, 0), nil
}

// readBucket reads one bucket until two readings agree.
func (s *pointerSet) readBucket(bucket uint64) (cursor, error) {
	var last cursor
	for try := range maxTries {
		if try%16 == 15 {
			time.Sleep(time.Duration(try) * time.Microsecond) // get out of step with the program
		}
		before, err := s.headNow(bucket)
		if errors.Is(err, errUnreadable) {
			return cursor{}, errChanging
		}
		if err != nil {
			return cursor{}, err
		}
		c := []cursor{{bucket: bucket, before: before}}
		if before != 0 {
			if err := s.walk(c, s.headNow); err != nil {
				return cursor{}, err
			}
		}
		if try > 0 && last.agrees(&c[0]) {
			return c[0], nil
		}
		last = c[0]
	}
	return cursor{}, errChanging
}

// cursor walks the nodes of a bucket.
type cursor struct {
	bucket       uint64
	before, node uint64
	values       []uint64
	one          [1]uint64 // most buckets have one
	bad          bool      // the nodes are inconsistent
}

func (c *cursor) agrees(o *cursor) bool {
	return !c.bad && !o.bad && slices.Equal(c.values, o.values)
}

// node is a node of the set.
type node struct{ next, value uint64 }

// walk moves cursors from before their first nodes to the ends of their buckets. head
// returns the pointers of other buckets.
func (s *pointerSet) walk(cursors []cursor, head func(uint64) (uint64, error)) error {
	// the nodes in front of buckets are most of all nodes: single ones, and the last of
	// each other bucket
	at := make([]uint64, len(cursors))
	for i := range cursors {
		at[i] = cursors[i].before
	}
	known := make(map[uint64]node, len(cursors))
	pieces := piecesOf(at, 16)
	if err := s.memory.read(pieces); err != nil {
		return err
	}
	active := make([]*cursor, 0, len(cursors))
	for i := range cursors {
		c := &cursors[i]
		if c.bad = !pieces[i].ok; c.bad {
			continue
		}
		n := node{word(pieces[i].data, 0), word(pieces[i].data, 8)}
		c.node = n.next
		active = append(active, c)
		if c.before != s.address+setFirst { // which is no node
			known[c.before] = n
		}
	}
	left := 4 * (s.count + maxBucket) // steps left
	for len(active) > 0 {
		going := active[:0]
		at = at[:0]
		for _, c := range active {
			more := true
			for n, ok := known[c.node]; ok && more && left > 0; n, ok = known[c.node] {
				left--
				more = c.take(n, s.count, head)
			}
			if more && !c.ended() {
				going, at = append(going, c), append(at, c.node)
			}
		}
		active = going
		if left -= min(left, uint64(len(active))); left == 0 {
			return fmt.Errorf("%#x: %w: its elements form a cycle", s.address, errNoSet)
		}
		pieces = piecesOf(at, 16)
		if err := s.memory.read(pieces); err != nil {
			return err
		}
		going = active[:0]
		for i, c := range active {
			if !pieces[i].ok {
				c.bad = true
			} else if c.take(node{word(pieces[i].data, 0), word(pieces[i].data, 8)}, s.count, head) && !c.ended() {
				going = append(going, c)
			}
		}
		active = going
	}
	return nil
}

// ended reports whether there is no next node. A bucket with a pointer has at least one.
func (c *cursor) ended() bool {
	if c.node == 0 && len(c.values) == 0 {
		c.bad = true
	}
	return c.node == 0
}

// take adds a node to the bucket, and reports whether the bucket continues. It ends at the
// first node of another bucket, whose pointer must lead to this one's last node.
func (c *cursor) take(n node, count uint64, head func(uint64) (uint64, error)) bool {
	if bucket := n.value % count; bucket != c.bucket {
		before, err := head(bucket)
		c.bad = len(c.values) == 0 || err != nil || before != c.before
		return false
	}
	if c.values == nil {
		c.values = c.one[:0]
	}
	if c.bad = len(c.values) == maxBucket || slices.Contains(c.values, n.value); c.bad {
		return false
	}
	c.values = append(c.values, n.value)
	c.before, c.node = c.node, n.next
	return true
}
