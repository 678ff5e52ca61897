package heap

// This file reads a std::unordered_set of pointers while it changes.

import (
	"cmp"
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
	// maxTries is how often buckets that change while they are read are read again, and
	// maxRereads how often a set.
	maxTries   = 50
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

// values reads the buckets, and again those whose last two readings differ.
func (s *pointerSet) values() ([]uint64, error) {
	var values []uint64
	var pending map[uint64]bool // the buckets to read; nil: all
	var last []cursor           // the last reading
	for try := range maxTries {
		if try%8 == 7 {
			time.Sleep(time.Duration(try) * time.Microsecond) // get out of step with the program
		}
		if err := s.readHeads(); err != nil {
			return nil, err
		}
		now := make([]cursor, 0, s.size)
		for bucket, before := range s.heads {
			if before != 0 && (pending == nil || pending[uint64(bucket)]) {
				now = append(now, cursor{bucket: uint64(bucket), before: before, node: before})
			}
		}
		if err := s.walk(now); err != nil {
			return nil, err
		}
		if try > 0 {
			differ := make(map[uint64]bool)
			for _, reading := range [][]cursor{last, now} {
				for i := range reading {
					bucket := reading[i].bucket
					a, b := readingOf(last, bucket), readingOf(now, bucket)
					if (pending == nil || pending[bucket]) && (a.bad || b.bad || !slices.Equal(a.values, b.values)) {
						differ[bucket] = true
					}
				}
			}
			for i := range now {
				if !differ[now[i].bucket] {
					values = append(values, now[i].values...)
				}
			}
			if pending = differ; len(pending) == 0 {
				slices.Sort(values)
				return slices.Compact(values), nil
			}
		}
		last = now
	}
	return nil, errChanging
}

// readingOf returns a bucket's cursor in a reading, which ascends; one without values if the
// bucket was empty.
func readingOf(reading []cursor, bucket uint64) *cursor {
	i, found := slices.BinarySearchFunc(reading, bucket, func(c cursor, b uint64) int { return cmp.Compare(c.bucket, b) })
	if !found {
		return &cursor{}
	}
	return &reading[i]
}

// headsAtOnce is the number of buckets in one read.
const headsAtOnce = 1 << 17

// readHeads reads the buckets. It takes memory for those that it could read, not for those that
// the set claims to have.
func (s *pointerSet) readHeads() error {
	s.heads = s.heads[:0]
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

// cursor walks the nodes of a bucket.
type cursor struct {
	bucket       uint64
	before, node uint64
	values       []uint64
	one          [1]uint64 // most buckets have one
	bad          bool      // the nodes are inconsistent
}

// node is a node of the set.
type node struct{ next, value uint64 }

// walk moves cursors from before their first nodes to the ends of their buckets.
func (s *pointerSet) walk(cursors []cursor) error {
	active := make([]*cursor, len(cursors))
	for i := range cursors {
		active[i] = &cursors[i]
	}
	// the node before a bucket's first is the last of another bucket, or no node
	advance := func(step func(c *cursor, n node) (more bool)) error {
		at := make([]uint64, len(active))
		for i, c := range active {
			at[i] = c.node
		}
		pieces := piecesOf(at, 16)
		if err := s.memory.read(pieces); err != nil {
			return err
		}
		going := active[:0]
		for i, c := range active {
			if c.bad = !pieces[i].ok; !c.bad && step(c, node{word(pieces[i].data, 0), word(pieces[i].data, 8)}) {
				going = append(going, c)
			}
		}
		active = going
		return nil
	}
	err := advance(func(c *cursor, n node) bool { c.node = n.next; return !c.ended() })
	for left := 4 * (s.count + maxBucket); len(active) > 0 && err == nil; { // steps left
		if left -= min(left, uint64(len(active))); left == 0 {
			return fmt.Errorf("%#x: %w: its elements form a cycle", s.address, errNoSet)
		}
		err = advance(func(c *cursor, n node) bool { return s.take(c, n) && !c.ended() })
	}
	return err
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
func (s *pointerSet) take(c *cursor, n node) bool {
	if bucket := n.value % s.count; bucket != c.bucket {
		c.bad = len(c.values) == 0 || s.heads[bucket] != c.before
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
