package heap

// Sets and buffers in a synthetic memory: damaged, and changing while they are read.

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/host"
)

// fakeMemory is a memory made of pages; the rest is not readable.
type fakeMemory struct {
	pages map[uint64][]byte
	// between is called before each read of a piece
	between func()
}

const fakePage = 4096

func newFakeMemory() *fakeMemory { return &fakeMemory{pages: make(map[uint64][]byte)} }

func (m *fakeMemory) Read(pieces []host.Piece) error {
	for i := range pieces {
		if m.between != nil {
			m.between()
		}
		p := &pieces[i]
		p.OK = true
		for k := range p.Data {
			page := m.pages[(p.Address+uint64(k))/fakePage]
			if page == nil {
				p.OK = false
				break
			}
			p.Data[k] = page[(p.Address+uint64(k))%fakePage]
		}
	}
	return nil
}

// put writes words, and makes pages for them.
func (m *fakeMemory) put(address uint64, words ...uint64) {
	for _, w := range words {
		page := m.pages[address/fakePage]
		if page == nil {
			page = make([]byte, fakePage)
			m.pages[address/fakePage] = page
		}
		binary.LittleEndian.PutUint64(page[address%fakePage:], w)
		address += 8
	}
}

func (m *fakeMemory) get(address uint64) uint64 {
	return binary.LittleEndian.Uint64(m.pages[address/fakePage][address%fakePage:])
}

// The addresses that fakeSet uses.
const (
	fakeSetAt   = 0x10000
	fakeBuckets = 0x1000000
	fakeNodes   = 0x9000000
)

// fakeSet behaves like libstdc++'s unordered_set<T*>.
type fakeSet struct {
	*fakeMemory
	count uint64
	free  []uint64 // nodes, the last freed first
	nodes uint64
	moved uint64 // how often the buckets moved
}

func newFakeSet(count uint64) *fakeSet {
	s := &fakeSet{fakeMemory: newFakeMemory(), count: count, nodes: fakeNodes}
	s.put(fakeSetAt, s.buckets(), count, 0, 0, uint64(math.Float32bits(1)), 0, 0)
	s.put(s.buckets(), make([]uint64, count)...)
	return s
}

func (s *fakeSet) buckets() uint64              { return fakeBuckets + s.moved*0x100000 }
func (s *fakeSet) head(value uint64) uint64     { return s.buckets() + value%s.count*8 }
func (s *fakeSet) resize(by int)                { s.put(fakeSetAt+0x18, s.get(fakeSetAt+0x18)+uint64(by)) }
func (s *fakeSet) next(node uint64) (at uint64) { return s.get(node) }

func (s *fakeSet) insert(value uint64) {
	node := s.nodes
	if n := len(s.free); n > 0 {
		node, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.nodes += 32
	}
	s.link(node, value)
	s.resize(1)
}

func (s *fakeSet) link(node, value uint64) {
	if before := s.get(s.head(value)); before != 0 {
		s.put(node, s.next(before), value)
		s.put(before, node)
		return
	}
	first := uint64(fakeSetAt + setFirst)
	next := s.next(first)
	s.put(node, next, value)
	s.put(first, node)
	if next != 0 {
		s.put(s.head(s.get(next+8)), node)
	}
	s.put(s.head(value), first)
}

func (s *fakeSet) erase(value uint64) {
	before := s.get(s.head(value))
	node := s.next(before)
	for s.get(node+8) != value {
		before, node = node, s.next(node)
	}
	next := s.next(node)
	last := next == 0 || s.head(s.get(next+8)) != s.head(value)
	if last && next != 0 {
		s.put(s.head(s.get(next+8)), before)
	}
	if last && s.get(s.head(value)) == before {
		s.put(s.head(value), 0)
	}
	s.put(before, next)
	s.put(node, 0x5a5a5a5a5a5a, rand.Uint64()) // as free(3) does
	s.free = append(s.free, node)
	s.resize(-1)
}

// grow allocates more buckets, and frees the old ones.
func (s *fakeSet) grow() {
	node := s.next(fakeSetAt + setFirst)
	s.put(s.buckets(), slices.Repeat([]uint64{0xdead}, int(s.count))...)
	s.moved++
	s.count = s.count*2 + 1
	s.put(s.buckets(), make([]uint64, s.count)...)
	s.put(fakeSetAt, s.buckets(), s.count, 0)
	for node != 0 {
		next, value := s.next(node), s.get(node+8)
		s.link(node, value)
		node = next
	}
}

// pointers returns n different ones like those of malloc.
func pointers(n int, dice *rand.Rand) []uint64 {
	set := make(map[uint64]bool)
	for len(set) < n {
		set[0x7f0000000000+16*dice.Uint64N(1<<24)] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func TestSet(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 12, 13, 500, 5000} {
		s := newFakeSet(uint64(max(n, 13)))
		want := pointers(n, dice)
		for _, v := range want {
			s.insert(v)
		}
		got, err := readSet(budgetOf(s), fakeSetAt, nil)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(slices.Equal(got, want)), qt.Commentf("%d of %d", len(got), n))
	}
}

func TestNewSet(t *testing.T) {
	m := newFakeMemory()
	m.put(fakeSetAt, fakeSetAt+setSingle, 1, 0, 0, uint64(math.Float32bits(1)), 0, 0)
	got, err := readSet(budgetOf(m), fakeSetAt, nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(got, 0))
}

func TestChangingSet(t *testing.T) {
	for _, size := range []int{5, 100, 3000} {
		dice := rand.New(rand.NewPCG(3, uint64(size)))
		s := newFakeSet(uint64(size*5/4 + 8))
		all := pointers(size+6, dice)
		dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		stay, come := all[:size], all[size:]
		for _, v := range stay {
			s.insert(v)
		}
		in := make(map[uint64]bool)
		reads := 0
		s.between = func() {
			reads++
			if dice.IntN(3) > 0 {
				return
			}
			if reads%7000 == 0 && s.moved < 3 {
				s.grow()
			}
			v := come[dice.IntN(len(come))]
			if in[v] {
				s.erase(v)
			} else {
				s.insert(v)
			}
			in[v] = !in[v]
		}
		for range 30 {
			got, err := readSet(budgetOf(s), fakeSetAt, nil)
			if errors.Is(err, errChanging) && size == 3000 && s.moved < 3 {
				continue
			}
			qt.Assert(t, qt.IsNil(err))
			for _, v := range stay {
				_, found := slices.BinarySearch(got, v)
				qt.Assert(t, qt.IsTrue(found), qt.Commentf("%d: %#x is missing", size, v))
			}
			for _, v := range got {
				qt.Assert(t, qt.IsTrue(slices.Contains(all, v)), qt.Commentf("%d: %#x was never there", size, v))
			}
		}
	}
}

func TestDamagedSets(t *testing.T) {
	one := uint64(math.Float32bits(1))
	for _, c := range []struct {
		name   string
		damage func(*fakeSet)
	}{
		{"no memory", func(s *fakeSet) { clear(s.pages) }},
		{"other load", func(s *fakeSet) { s.put(fakeSetAt+0x20, uint64(math.Float32bits(2))) }},
		{"no buckets", func(s *fakeSet) { s.put(fakeSetAt+8, 0) }},
		{"more elements than buckets", func(s *fakeSet) { s.put(fakeSetAt+0x18, 1000) }},
		{"too many buckets", func(s *fakeSet) { s.put(fakeSetAt+8, maxBuffers+1) }},
		{"far too many buckets", func(s *fakeSet) { s.put(fakeSetAt+8, 1<<62) }},
		{"as many buckets as there may be", func(s *fakeSet) { s.put(fakeSetAt+8, maxBuffers) }},
		{"buckets nowhere", func(s *fakeSet) { s.put(fakeSetAt, 0xffff000000000000) }},
		{"buckets at the end of all addresses", func(s *fakeSet) { s.put(fakeSetAt, ^uint64(0)&^7) }},
		{"one bucket elsewhere", func(s *fakeSet) { s.put(fakeSetAt, fakeBuckets, 1, 0, 0, one) }},
		{"elements that are not counted", func(s *fakeSet) { s.resize(-1) }},
		{"a node nowhere", func(s *fakeSet) { s.put(s.next(s.next(fakeSetAt+setFirst)), 0x123456789000) }},
		{"a circle of one node", func(s *fakeSet) {
			node := s.next(fakeSetAt + setFirst)
			s.put(node, node)
		}},
		{"a circle of all", func(s *fakeSet) {
			first := s.next(fakeSetAt + setFirst)
			last := first
			for s.next(last) != 0 {
				last = s.next(last)
			}
			s.put(last, first)
		}},
		{"all buckets at one node in a circle", func(s *fakeSet) {
			node := s.next(fakeSetAt + setFirst)
			s.put(node, node)
			for i := range s.count {
				s.put(s.buckets()+i*8, node)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFakeSet(97)
			for _, v := range pointers(60, rand.New(rand.NewPCG(4, 5))) {
				s.insert(v)
			}
			c.damage(s)
			var err error
			fuzztest.Ends("reading the set", func() { _, err = readSet(budgetOf(s), fakeSetAt, nil) })
			qt.Check(t, qt.IsNotNil(err))
		})
	}
}

func TestLargeAllocationsAreSkipped(t *testing.T) {
	const at, size = 0x7f0000000000, 0x4000000
	for _, c := range []struct {
		before, size, end uint64
		skipped           bool
	}{
		{0, size | 2, at + size, true},
		{0, size | 2, at + 2*size, true},
		{0, size | 2, at + size - 1, false}, // not in the mapping
		{0, size | 1, at + size, false},     // a chunk of a heap
		{0, size | 4, at + size, false},
		{16, size | 2, at + size, false},
		{0, 0x2000 | 2, at + size, false}, // not worth skipping
		{0, size + 16 | 2, at + 2*size, false},
		{0, ^uint64(0) &^ 5, at + size, false},
	} {
		m := newFakeMemory()
		m.put(at, c.before, c.size)
		got := skipMapped(m.pages[at/fakePage], at, c.end)
		qt.Check(t, qt.Equals(got != at, c.skipped), qt.Commentf("%+v", c))
		if c.skipped {
			qt.Check(t, qt.Equals(got, at+c.size&^7))
		}
	}
}
