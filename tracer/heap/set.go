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
	// maxBucket bounds the elements of a bucket: pointers are distributed by remainder, and
	// there are as many buckets as elements.
	maxBucket = 1 << 8
	// bucketsAtOnce is the number of buckets that are read together.
	bucketsAtOnce = 1 << 15
	// maxTries is how often buckets that change while they are read are read again.
	// maxRereads is the same for a set.
	maxTries   = 50
	maxRereads = 10
)

// pointerSet is a set of pointers in a process. A node has a pointer to the next one and
// its value; its bucket is the remainder of the value by the number of buckets, and the
// nodes of one bucket are adjacent. A bucket points to the node before its first.
type pointerSet struct {
	memory  *budget
	address uint64
	setHeader
}

type setHeader struct{ buckets, count, first, size uint64 }

var (
	// errNoSet means that the memory cannot be a set.
	errNoSet = errors.New("no set of buffers")
	// errChanging means that something changed during every read.
	errChanging = errors.New("it changes too fast to be read")
)

// readSet reads the pointers in a set; if some is not nil, only those in the buckets of some. It
// returns, in order, at least the pointers that are in the set all the time.
func readSet(m *budget, address uint64, some []uint64) ([]uint64, error) {
	s := &pointerSet{memory: m, address: address}
	var last []uint64
	changed := some != nil // then the number of elements may differ
	for range maxRereads {
		if err := s.open(); err != nil {
			return nil, err
		}
		before := s.setHeader
		values, err := s.values(some)
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
		if some != nil || uint64(len(values)) == s.size || s.setHeader != before {
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
	if s.count > maxBuffers {
		return fmt.Errorf("%#x: %w: it has %d buckets", s.address, errNoSet, s.count)
	}
	return nil
}

// values reads the buckets, or those of some pointers.
func (s *pointerSet) values(some []uint64) (values []uint64, err error) {
	buckets := make([]uint64, 0, bucketsAtOnce)
	read := func() error {
		found, err := s.settled(buckets)
		s.memory.found(len(found))
		values, buckets = append(values, found...), buckets[:0]
		return err
	}
	if some != nil {
		for _, v := range some {
			buckets = append(buckets, v%s.count)
		}
		slices.Sort(buckets)
		buckets = slices.Compact(buckets)
		err = read()
	}
	for bucket := uint64(0); some == nil && bucket < s.count && err == nil; bucket++ {
		if buckets = append(buckets, bucket); len(buckets) == bucketsAtOnce || bucket == s.count-1 {
			err = read()
		}
	}
	slices.Sort(values)
	return slices.Compact(values), err
}

// settled reads buckets until two consecutive readings of each are equal.
func (s *pointerSet) settled(buckets []uint64) (values []uint64, err error) {
	var last [][]uint64 // by bucket; nil: inconsistent
	for try := range maxTries {
		if try%8 == 7 {
			time.Sleep(time.Duration(try) * time.Microsecond) // get out of step with the program
		}
		now, err := s.walk(buckets)
		if err != nil {
			return nil, err
		}
		if try > 0 {
			differ := 0
			for i := range now {
				if now[i] != nil && last[i] != nil && slices.Equal(now[i], last[i]) {
					values = append(values, now[i]...)
					continue
				}
				buckets[differ], now[differ] = buckets[i], now[i]
				differ++
			}
			buckets, now = buckets[:differ], now[:differ]
		}
		if len(buckets) == 0 {
			return values, nil
		}
		last = now
	}
	return nil, errChanging
}

// heads reads the pointers of buckets, each to the node before its first one.
func (s *pointerSet) heads(buckets []uint64) ([]uint64, error) {
	data := make([]byte, 8*len(buckets))
	var pieces []piece
	for i, bucket := range buckets {
		if i > 0 && bucket == buckets[i-1]+1 {
			p := &pieces[len(pieces)-1]
			p.data = p.data[:len(p.data)+8]
			continue
		}
		pieces = append(pieces, piece{address: s.buckets + bucket*8, data: data[i*8 : i*8+8]})
	}
	if err := s.memory.read(pieces); err != nil {
		return nil, err
	}
	heads := make([]uint64, len(buckets))
	for i := range heads {
		heads[i] = word(data, i*8)
	}
	if slices.ContainsFunc(pieces, func(p piece) bool { return !p.ok }) {
		return nil, errChanging // the set has grown, and freed them
	}
	return heads, nil
}

// cursor walks the nodes of a bucket.
type cursor struct {
	index                int // in the list of buckets
	bucket, before, node uint64
	values               []uint64
	one                  [1]uint64 // most buckets have one
	// next is the bucket of the node after the last one, if there is a node
	next  uint64
	more  bool
	wrong bool // the nodes are inconsistent
}

// node is a node of the set.
type node struct{ next, value uint64 }

// walk reads the values of buckets; nil for those whose nodes are inconsistent.
func (s *pointerSet) walk(buckets []uint64) (values [][]uint64, err error) {
	heads, err := s.heads(buckets)
	if err != nil {
		return nil, err
	}
	values = make([][]uint64, len(buckets))
	full := 0
	for i, head := range heads {
		values[i] = []uint64{}
		if head != 0 {
			full++
		}
	}
	cursors, active := make([]cursor, full), make([]*cursor, 0, full)
	for i, head := range heads {
		if head != 0 {
			c := &cursors[len(active)]
			*c = cursor{index: i, bucket: buckets[i], before: head, node: head}
			c.values = c.one[:0]
			active = append(active, c)
		}
	}
	// the node before a bucket's first is the last of another bucket, or no node
	err = s.advance(&active, func(c *cursor, n node) bool { c.node = n.next; return !c.ended() })
	var ended []*cursor
	var next []uint64
	for len(active) > 0 && err == nil {
		err = s.advance(&active, func(c *cursor, n node) bool {
			more := s.take(c, n) && !c.ended()
			if c.more {
				ended, next = append(ended, c), append(next, c.next)
			}
			return more
		})
	}
	if err != nil {
		return nil, err
	}
	// the pointer of the next bucket must lead to this one's last node
	if heads, err = s.heads(next); err != nil {
		return nil, err
	}
	for i, c := range ended {
		c.wrong = c.wrong || heads[i] != c.before
	}
	for i := range cursors {
		c := &cursors[i]
		if values[c.index] = c.values; c.wrong {
			values[c.index] = nil
		}
	}
	return values, nil
}

// advance reads the nodes of cursors, and keeps those that step continues.
func (s *pointerSet) advance(active *[]*cursor, step func(c *cursor, n node) (more bool)) error {
	at := make([]uint64, len(*active))
	for i, c := range *active {
		at[i] = c.node
	}
	pieces := piecesOf(at, 16)
	if err := s.memory.read(pieces); err != nil {
		return err
	}
	going := (*active)[:0]
	for i, c := range *active {
		if c.wrong = !pieces[i].ok; !c.wrong && step(c, node{word(pieces[i].data, 0), word(pieces[i].data, 8)}) {
			going = append(going, c)
		}
	}
	*active = going
	return nil
}

// ended reports whether there is no next node. A bucket with a pointer has at least one.
func (c *cursor) ended() bool {
	if c.node == 0 && len(c.values) == 0 {
		c.wrong = true
	}
	return c.node == 0
}

// take adds a node to the bucket, and reports whether the bucket continues. It ends at the
// first node of another bucket.
func (s *pointerSet) take(c *cursor, n node) bool {
	if bucket := n.value % s.count; bucket != c.bucket {
		c.next, c.more, c.wrong = bucket, true, len(c.values) == 0
		return false
	}
	if c.wrong = len(c.values) == maxBucket || slices.Contains(c.values, n.value); c.wrong {
		return false
	}
	c.values = append(c.values, n.value)
	c.before, c.node = c.node, n.next
	return true
}
