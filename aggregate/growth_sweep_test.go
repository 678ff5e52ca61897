package aggregate

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// manyProcesses plays processes one after the other. Each allocates at stacks of its own.
type manyProcesses struct {
	g            *Growth
	now, id      uint64
	pid          int
	stack        uint64
	each         uint64 // bytes of a bank
	most, sweeps int    // of sites
}

func newManyProcesses(o GrowthOptions) *manyProcesses {
	return &manyProcesses{g: NewGrowth(o), now: 100, pid: 1, each: 100}
}

func (m *manyProcesses) apply(e event.Event) {
	before := len(m.g.sites)
	m.now += 10
	e.TimeNs, e.PID = m.now, m.pid
	m.g.Apply(&e)
	if m.most = max(m.most, len(m.g.sites)); len(m.g.sites) < before {
		m.sweeps++
	}
}

// alloc allocates, 1000 bytes if nothing else is said, at a stack and gives the buffer's id.
func (m *manyProcesses) alloc(stack uint64) uint64 {
	m.id++
	m.apply(event.Event{
		Kind: event.Alloc, BufferID: m.id, Allocator: 1, Devices: []int{0}, BytesPerBank: m.each, Banks: 10,
		Stack: &event.Stack{ID: stack},
	})
	return m.id
}

func (m *manyProcesses) free(id uint64) {
	m.apply(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit})
}

// newStack is a stack that was not there before.
func (m *manyProcesses) newStack() uint64 {
	m.stack++
	return m.stack
}

// pairs allocates and frees at so many new stacks.
func (m *manyProcesses) pairs(n int) {
	for range n {
		m.free(m.alloc(m.newStack()))
	}
}

func (m *manyProcesses) exit() {
	m.apply(event.Event{Kind: event.ProcessExit})
	m.pid++
}

// TestManyShortProcessesAreForgotten: whatever they do, what is kept of processes that
// are gone is bounded, and it is not looked for at each new stack.
func TestManyShortProcessesAreForgotten(t *testing.T) {
	const processes, stacks = 1500, 100
	for name, test := range map[string]struct {
		o    GrowthOptions
		play func(m *manyProcesses)
		// left is how many buffers they left.
		left uint64
	}{
		"which free all":             {GrowthOptions{}, func(m *manyProcesses) { m.pairs(stacks) }, 0},
		"which free all, with marks": {GrowthOptions{EveryNs: 100_000}, func(m *manyProcesses) { m.pairs(stacks) }, 0},
		"which free all, before the mark": {GrowthOptions{From: "warm"}, func(m *manyProcesses) {
			m.pairs(stacks)
			if m.pid == processes {
				m.apply(event.Event{Kind: event.Mark, Cause: "warm"})
			}
		}, 0},
		"which hold all, before the mark": {GrowthOptions{From: "warm"}, func(m *manyProcesses) {
			for range stacks {
				m.alloc(m.newStack())
			}
			if m.pid == processes {
				m.exit()
				m.apply(event.Event{Kind: event.Mark, Cause: "warm"})
			}
		}, 0},
		"which hold all": {GrowthOptions{}, func(m *manyProcesses) {
			for range stacks {
				m.alloc(m.newStack())
			}
		}, processes * stacks},
		"which hold all, with marks": {GrowthOptions{EveryNs: 100_000}, func(m *manyProcesses) {
			for range stacks {
				m.alloc(m.newStack())
			}
		}, processes * stacks},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManyProcesses(test.o)
			for range processes {
				test.play(m)
				m.exit()
			}
			g := m.g
			qt.Check(t, qt.IsTrue(m.most <= maxGrowthSites+2*stacks), qt.Commentf("%d sites", m.most))
			qt.Check(t, qt.IsTrue(m.sweeps > 0 && m.sweeps <= processes*stacks/maxOverSites), qt.Commentf("%d sweeps", m.sweeps))
			qt.Check(t, qt.IsTrue(len(g.touched) <= m.most), qt.Commentf("%d touched", len(g.touched)))
			qt.Check(t, qt.IsTrue(len(g.touchedProcesses) <= m.most/stacks), qt.Commentf("%d processes", len(g.touchedProcesses)))
			r, err := g.Report()
			qt.Assert(t, qt.IsNil(err))
			sum := r.Others
			for i := range r.Left {
				sum.add(r.Left[i].Amount)
			}
			qt.Check(t, qt.Equals(sum, Amount{test.left, test.left * 1000}))
			qt.Check(t, qt.Equals(r.Others.Count > 0, test.left > 0))
		})
	}
}

// TestSitesWithBuffersCostNoLook: as long as nothing can be forgotten, it is looked for
// less and less often.
func TestSitesWithBuffersCostNoLook(t *testing.T) {
	m := newManyProcesses(GrowthOptions{})
	for range maxGrowthSites + 20_000 {
		m.alloc(m.newStack())
	}
	qt.Check(t, qt.HasLen(m.g.sites, maxGrowthSites+20_000))
	qt.Check(t, qt.Equals(m.g.keptSites, maxGrowthSites)) // of the first look, the only one
}

// TestWhatGrewIsKept: of processes that are gone what grew is told, and what was there
// at the mark To.
func TestWhatGrewIsKept(t *testing.T) {
	const leak, held = 1 << 40, 1<<40 + 1
	crowd := func(m *manyProcesses) {
		for range 2 * maxGrowthSites / 100 {
			for range 100 {
				m.each = 100_000 // more than the others have together
				m.alloc(m.newStack())
				m.each = 100
			}
			m.exit()
		}
	}
	t.Run("what grew", func(t *testing.T) {
		m := newManyProcesses(GrowthOptions{})
		for range 20 {
			m.pairs(3)
			m.alloc(leak)
		}
		m.exit()
		crowd(m)
		r, err := m.g.Report()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(r.Others.Count > 0))
		found := Amount{}
		for _, one := range r.Left {
			if one.Trend.Growing {
				qt.Check(t, qt.Equals(one.Stack.ID, leak))
				found.add(one.Amount)
			}
		}
		qt.Check(t, qt.Equals(found, Amount{20, 20_000}))
	})
	t.Run("what was there at the mark", func(t *testing.T) {
		m := newManyProcesses(GrowthOptions{From: "a", To: "b"})
		m.apply(event.Event{Kind: event.Mark, Cause: "a"})
		for range 4 { // too few for a trend
			m.alloc(held)
		}
		m.apply(event.Event{Kind: event.Mark, Cause: "b"})
		m.exit()
		crowd(m)
		r, err := m.g.Report()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(r.Left, 1))
		qt.Check(t, qt.Equals(r.Left[0].Stack.ID, held))
		qt.Check(t, qt.Equals(r.Left[0].Amount, Amount{4, 4000}))
		qt.Check(t, qt.Equals(r.Others, Amount{}))
	})
}

// TestOthersAreToldAtTheMark: what of them was there at To, and what was over by then.
func TestOthersAreToldAtTheMark(t *testing.T) {
	const stacks = maxGrowthSites * 3 / 4
	m := newManyProcesses(GrowthOptions{From: "a", To: "b"})
	m.apply(event.Event{Kind: event.Mark, Cause: "a"})
	for range stacks {
		m.alloc(m.newStack())
	}
	m.exit() // over by the mark
	for range stacks {
		m.alloc(m.newStack())
	}
	m.apply(event.Event{Kind: event.Mark, Cause: "b"})
	m.exit()
	m.pairs(maxGrowthSites)
	r, err := m.g.Report()
	qt.Assert(t, qt.IsNil(err))
	sum := r.Others
	for i := range r.Left {
		sum.add(r.Left[i].Amount)
	}
	qt.Check(t, qt.Equals(sum, Amount{stacks, 1000 * stacks}))
	qt.Check(t, qt.IsTrue(r.Others.Count > 0))
	qt.Check(t, qt.Equals(r.Over, Amount{stacks, 1000 * stacks}))
}

func TestHistoriesAreAdded(t *testing.T) {
	step := func(mark int, live uint64) growthStep { return growthStep{mark: mark, live: Amount{live, live * 10}} }
	a := []growthStep{step(1, 5), step(4, 2), step(9, 0)}
	b := []growthStep{step(2, 1), step(4, 3), step(5, 0), step(10, 7)}
	sum := addHistories(a, b)
	qt.Check(t, qt.DeepEquals(fmt.Sprint(sum), fmt.Sprint([]growthStep{step(1, 5), step(2, 6), step(4, 5), step(5, 2), step(9, 0), step(10, 7)})))
}
