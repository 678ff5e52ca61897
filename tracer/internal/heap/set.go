package heap

// This file reads a std::unordered_set of pointers while it changes.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"ttmem/tracer/host"
)

const (
	// setFirst and setSingle are where a set has its first node, and the single bucket of a new one.
	setFirst, setSingle = 0x10, 0x30
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

// A Table is libstdc++'s std::unordered_set or std::unordered_map. It begins with the buckets, their
// number, the first node, the number of elements, the maximum load as a float, the size at which to
// grow, and the single bucket of a new table.
type Table struct{ Buckets, Count, First, Size uint64 }

// TableOf returns the table that begins with some words; false if they are none.
func TableOf(words []uint64) (t Table, ok bool) {
	if len(words) < tableHead || math.Float32frombits(uint32(words[4])) != 1 {
		return t, false
	}
	t = Table{words[0], words[1], words[2], words[3]}
	return t, t.Buckets != 0 && t.Buckets%8 == 0 && t.Count != 0 && t.Size <= t.Count
}

// TableWords is the size of a table in words, and tableHead the part that is read here.
const TableWords, tableHead = 7, 5

// pointerSet is a set of pointers in a process. A node has a pointer to the next one and
// its value; its bucket is the remainder of the value by the number of buckets, and the
// nodes of one bucket are adjacent. A bucket points to the node before its first.
type pointerSet struct {
	memory  *budget
	address uint64
	Table
}

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
		before := s.Table
		values, err := s.values(some)
		if err != nil && !errors.Is(err, errChanging) {
			return nil, err
		}
		if openErr := s.open(); openErr != nil {
			return nil, openErr
		}
		changed = changed || s.Table != before
		if err != nil || s.Buckets != before.Buckets || s.Count != before.Count {
			last = nil
			continue
		}
		if some != nil || uint64(len(values)) == s.Size || s.Table != before {
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
	o := &objects{memory: s.memory}
	words := o.words(span{s.address, s.address + 8*tableHead}, tableHead, 1)
	if o.err != nil {
		return o.err
	}
	var ok bool
	if s.Table, ok = TableOf(words[0]); !ok || (s.Buckets == s.address+setSingle) != (s.Count == 1) {
		return fmt.Errorf("%#x: %w", s.address, errNoSet)
	}
	if s.Count > maxBuffers {
		return fmt.Errorf("%#x: %w: it has %d buckets", s.address, errNoSet, s.Count)
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
			buckets = append(buckets, v%s.Count)
		}
		slices.Sort(buckets)
		buckets = slices.Compact(buckets)
		err = read()
	}
	for bucket := uint64(0); some == nil && bucket < s.Count && err == nil; bucket++ {
		if buckets = append(buckets, bucket); len(buckets) == bucketsAtOnce || bucket == s.Count-1 {
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
	var pieces []host.Piece
	for i, bucket := range buckets {
		if i > 0 && bucket == buckets[i-1]+1 {
			p := &pieces[len(pieces)-1]
			p.Data = p.Data[:len(p.Data)+8]
			continue
		}
		pieces = append(pieces, host.Piece{Address: s.Buckets + bucket*8, Data: data[i*8 : i*8+8]})
	}
	if err := s.memory.Read(pieces); err != nil {
		return nil, err
	}
	heads := make([]uint64, len(buckets))
	for i := range heads {
		heads[i] = word(data, i*8)
	}
	if slices.ContainsFunc(pieces, func(p host.Piece) bool { return !p.OK }) {
		return nil, errChanging // the set has grown, and freed them
	}
	return heads, nil
}

// cursor walks the nodes of a bucket.
type cursor struct {
	index                int // in the list of buckets
	bucket, before, node uint64
	// next is the bucket of the node after the last one, if there is a node
	next uint64
}

// walk reads the values of buckets; nil for those whose nodes are inconsistent.
func (s *pointerSet) walk(buckets []uint64) (values [][]uint64, err error) {
	heads, err := s.heads(buckets)
	if err != nil {
		return nil, err
	}
	values = make([][]uint64, len(buckets))
	var active, ended []cursor
	one := make([]uint64, len(buckets)) // most buckets have one
	for i, head := range heads {
		if values[i] = one[i : i : i+1]; head != 0 {
			active = append(active, cursor{index: i, bucket: buckets[i], before: head, node: head})
		}
	}
	// the node before a bucket's first is the last of another bucket, or no node
	for first := true; len(active) > 0; first = false {
		at := make([]uint64, len(active))
		for i, c := range active {
			at[i] = c.node
		}
		pieces := piecesOf(at, 16)
		if err := s.memory.Read(pieces); err != nil {
			return nil, err
		}
		going := active[:0]
		for i, c := range active {
			have := &values[c.index]
			next, value := word(pieces[i].Data, 0), word(pieces[i].Data, 8)
			switch bucket := value % s.Count; {
			case !pieces[i].OK:
				*have = nil
				continue
			case first:
				c.node = next
			case bucket != c.bucket && len(*have) > 0:
				c.next = bucket
				ended = append(ended, c)
				continue
			case bucket != c.bucket, len(*have) == maxBucket, slices.Contains(*have, value):
				*have = nil
				continue
			default:
				*have = append(*have, value)
				c.before, c.node = c.node, next
			}
			switch {
			case c.node != 0:
				going = append(going, c)
			case first: // a bucket with a pointer has a node
				*have = nil
			}
		}
		active = going
	}
	// the pointer of the next bucket must lead to this one's last node
	next := make([]uint64, len(ended))
	for i, c := range ended {
		next[i] = c.next
	}
	if heads, err = s.heads(next); err != nil {
		return nil, err
	}
	for i, c := range ended {
		if heads[i] != c.before {
			values[c.index] = nil
		}
	}
	return values, nil
}
