package heap

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/host"
)

// countedMemory counts what is read, and continues a memory with zeros at these addresses.
type countedMemory struct {
	host.Memory
	zeros span
	bytes int
}

func (m *countedMemory) Read(pieces []host.Piece) error {
	for i := range pieces {
		p := &pieces[i]
		m.bytes += int(host.Cost(len(p.Data)))
		if m.zeros.begin <= p.Address && p.Address+uint64(len(p.Data)) <= m.zeros.end {
			clear(p.Data)
			p.OK = true
		} else if err := m.Memory.Read(pieces[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// Claims cost what can be read, not what they claim, and end the reading of the process.
func TestClaimsAreBounded(t *testing.T) {
	const (
		zeros = 0x40000000
		set   = worldAllocator + 0x100
		l1    = worldFreeList + 0x100
	)
	for name, c := range map[string]struct {
		claim func(w *fakeSet)
		most  int // bytes read
		err   string
	}{
		"nothing": {func(*fakeSet) {}, 1 << 20, ""},
		"too many buckets": {func(w *fakeSet) {
			w.put(set, zeros, maxBuffers+1)
		}, 1 << 20, "no set of buffers"},
		"empty buckets": {func(w *fakeSet) {
			w.put(set, zeros, maxBuffers)
		}, processBudget, "more memory than"},
		"a set of one element in many buckets": {func(w *fakeSet) {
			w.put(set, zeros, maxBuffers, 0, 0)
		}, 64 << 20, ""},
		"elements for ever": {func(w *fakeSet) {
			for bucket := range w.count { // each node is the next bucket's
				node := fakeNodes + bucket*32
				w.put(w.get(set)+bucket*8, node)
				w.put(node, node, bucket)
			}
		}, 64 << 20, "changes too fast"},
		"too many blocks": {func(w *fakeSet) {
			w.put(l1+0x40, zeros, zeros+8*(maxBuffers+1))
		}, 1 << 20, "2 sharded buffers in L1: bytes per bank unknown"},
		"blocks of zeros": {func(w *fakeSet) {
			w.put(l1+0x40, zeros, zeros+8*maxBuffers)
			w.put(l1+0x58, zeros, zeros+8*maxBuffers)
			w.put(l1+0x70, zeros, zeros+maxBuffers)
		}, 64 << 20, "2 sharded buffers in L1: bytes per bank unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := fakeWorld()
			c.claim(w)
			m := &countedMemory{Memory: w, zeros: span{zeros, zeros + 1<<30}}
			s.memory = budgetOf(m)
			_, _, err := s.readAll(worldMesh)
			for _, problem := range s.problems {
				err = problem
			}
			t.Logf("%d KiB read: %v", m.bytes>>10, err)
			qt.Check(t, qt.Equals(LacksSizesOnly(s.failed(nil)), strings.HasSuffix(c.err, "bytes per bank unknown")))
			if c.err == "" {
				qt.Check(t, qt.IsNil(err))
			} else {
				qt.Check(t, qt.ErrorMatches(err, ".*"+c.err+".*"))
			}
			qt.Check(t, qt.IsTrue(m.bytes <= c.most))
		})
	}
}

// What many buffers take stays within what they allow to be read.
func TestManyBuffersAreWithinTheBudget(t *testing.T) {
	const n = 4000
	w, s := fakeWorldOf(n, 2*n+1)
	m := &countedMemory{Memory: w}
	s.memory = budgetOf(m)
	s.memory.Left = 1<<20 + bucketsAtOnce*host.Cost(0)
	_, buffers, err := s.readAll(worldMesh)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(s.problems, 0))
	qt.Check(t, qt.HasLen(buffers, n))
	t.Logf("%d bytes for each buffer", m.bytes/n)
	qt.Check(t, qt.IsTrue(m.bytes/n < bufferBudget*3/4))
}

// A process has only so many live buffers.
func TestTooManyBuffers(t *testing.T) {
	_, s := fakeWorld()
	s.live = maxBuffers - 5
	_, buffers, err := s.readAll(worldMesh)
	qt.Check(t, qt.ErrorIs(err, errTooMuch))
	qt.Check(t, qt.HasLen(buffers, 0))
}
