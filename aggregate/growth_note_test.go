package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// reported is all that a Growth reports, as text.
func reported(t *testing.T, g *aggregate.Growth) (lines []string) {
	t.Helper()
	r, err := g.Report()
	qt.Assert(t, qt.IsNil(err))
	for _, one := range r.Left {
		frames := one.Stack.Frames()
		one.Stack = nil
		lines = append(lines, fmt.Sprintf("%+v %+v", one, frames))
	}
	r.Left = nil
	return append(lines, fmt.Sprintf("%+v", *r))
}

// resumed is a Growth that goes on at a note, with what lives in the state.
func resumed(note []byte, s *aggregate.State) (*aggregate.Growth, error) {
	r, err := aggregate.ResumeGrowth(note)
	if err != nil {
		return nil, err
	}
	for e := range s.Checkpoint() {
		r.Add(e)
	}
	return r.Growth()
}

// leakyModel makes random events of some programs: which leak at some stacks, collect now
// and then at others, open their device again, end, and are marked.
type leakyModel struct {
	r     *rand.Rand
	now   uint64
	id    uint64
	live  map[int][][2]uint64 // by process: buffers and their stacks
	marks int                 // one of so many events is one; 0: none
}

// next is the next event, with those that it implies before it.
func (m *leakyModel) next(stacks []*event.Stack, state *aggregate.State) (events []event.Event) {
	r := m.r
	m.now += 1 + r.Uint64N(50)
	pid := 1 + r.IntN(3)
	e := event.Event{TimeNs: m.now, PID: pid, Comm: fmt.Sprint("p", pid), Allocator: 1 + r.Uint64N(2)}
	switch n := r.IntN(1000); {
	case m.marks > 0 && r.IntN(m.marks) == 0:
		e = event.Event{TimeNs: m.now, Kind: event.Mark, Cause: fmt.Sprint("mark ", r.IntN(30))}
	case n < 2:
		e.Kind, e.Command = event.ProcessStart, fmt.Sprint("run ", m.now)
	case n < 4:
		e.Kind = event.ProcessExit
	case n < 8:
		e.Kind = event.DeviceClose
	case n < 560:
		stack := r.IntN(len(stacks))
		m.id++
		id := m.id
		if len(m.live[pid]) > 0 && r.IntN(40) == 0 {
			id = m.live[pid][r.IntN(len(m.live[pid]))][0] // its free was lost
		}
		e.Kind, e.BufferID, e.Stack, e.Region = event.Alloc, id, stacks[stack], event.Region(r.IntN(2))
		e.Devices, e.Layout = [][]int{{0}, {0, 1}}[r.IntN(2)], event.Layout(r.IntN(2))
		e.BytesPerBank, e.Banks = 1+r.Uint64N(100), 12
		e.BeforeAttach = r.IntN(50) == 0
		m.live[pid] = append(m.live[pid], [2]uint64{id, uint64(stack)})
	default:
		list := m.live[pid]
		i := len(list) - 1
		for ; i >= 0 && (list[i][1]%5 == 0 || r.IntN(8) == 0); i-- {
			// some stacks leak
		}
		if i < 0 {
			return nil
		}
		e.Kind, e.BufferID, e.Reason = event.Free, list[i][0], event.ReasonExplicit
		m.live[pid] = append(list[:i], list[i+1:]...)
	}
	var list []event.Event
	for implied := state.Implied(&e); implied.Next(); {
		list = append(list, *implied.Event())
	}
	return append(list, e)
}

// TestAGrowthGoesOnAtItsNote: exactly as if it had seen all events.
func TestAGrowthGoesOnAtItsNote(t *testing.T) {
	var stacks []*event.Stack
	for i := range 40 {
		stacks = append(stacks, event.StackOf([]event.Frame{
			{Kind: event.Native, Name: "ttnn::add", Module: "_ttnncpp.so", BuildID: "ab", Address: uint64(i % 3)},
			{Kind: event.Python, Name: "forward", File: "model.py", Line: i}, {Kind: event.Python, Name: "main", File: "run.py", Line: 3},
		}))
	}
	stacks = append(stacks, nil)
	for seed := range uint64(24) {
		m := &leakyModel{r: rand.New(rand.NewPCG(seed, 4)), now: 1000, live: make(map[int][][2]uint64), marks: []int{0, 0, 3000, 400, 20}[seed%5]}
		state, whole := aggregate.New(), aggregate.NewGrowth(aggregate.GrowthOptions{})
		var going []*aggregate.Growth
		for n := range 6000 {
			for _, e := range m.next(stacks, state) {
				state.Apply(&e)
				whole.Apply(&e)
				for _, g := range going {
					g.Apply(&e)
				}
			}
			if n%1000 == 400 {
				g, err := resumed(whole.Note()(), state)
				qt.Assert(t, qt.IsNil(err), qt.Commentf("seed %d, event %d", seed, n))
				going = append(going, g)
				if n > 3000 {
					again, err := resumed(going[0].Note()(), state)
					qt.Assert(t, qt.IsNil(err))
					going = append(going, again)
				}
			}
		}
		want := reported(t, whole)
		for i, g := range going {
			got := reported(t, g)
			for j := range min(len(got), len(want)) {
				qt.Assert(t, qt.Equals(got[j], want[j]), qt.Commentf("seed %d, note %d, line %d", seed, i, j))
			}
			qt.Assert(t, qt.HasLen(got, len(want)))
		}
	}
}

// TestANoteIsOfItsMoment: what happens before it is encoded is not in it.
func TestANoteIsOfItsMoment(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	state := aggregate.New()
	for i := range 3000 {
		w.mark(fmt.Sprint("mark ", i%100))
		w.step()
		if i%3 == 0 {
			w.free(w.alloc("temporary"))
		}
		w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
		ended := w.alloc("ended")
		_ = ended
		w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
	}
	encode, at := w.g.Note(), w.g.Note()()
	for range 3000 {
		w.mark("later")
		w.step()
		w.alloc("leak")
		w.apply(event.Event{Kind: event.ProcessExit})
	}
	late := encode()
	qt.Check(t, qt.IsTrue(len(at) > 0))
	one, err := resumed(late, state)
	qt.Assert(t, qt.IsNil(err))
	other, err := resumed(at, state)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(reported(t, one), reported(t, other)))
}

// TestANoteOfAnotherMomentIsRefused: what lives must be what it tells of.
func TestANoteOfAnotherMomentIsRefused(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	state := aggregate.New()
	both := func(id uint64) {
		e := event.Event{TimeNs: w.now, Kind: event.Alloc, PID: w.pid, BufferID: id, Allocator: 1, Devices: []int{0}, BytesPerBank: 100, Banks: 10, Stack: w.stacks["leak"]}
		state.Apply(&e)
	}
	both(w.alloc("leak"))
	note := w.g.Note()()
	_, err := resumed(note, state)
	qt.Assert(t, qt.IsNil(err))
	both(2)
	_, err = resumed(note, state)
	qt.Check(t, qt.ErrorMatches(err, ".*do not fit together"))
	_, err = resumed(note, aggregate.New())
	qt.Check(t, qt.ErrorMatches(err, ".*do not fit together"))
	note[0]++
	_, err = resumed(note, state)
	qt.Check(t, qt.ErrorMatches(err, ".*makes no sense.*"))
}

// TestWhatIsTooLongIsNotNoted: there is a limit to what one may take.
func TestWhatIsTooLongIsNotNoted(t *testing.T) {
	g := aggregate.NewGrowth(aggregate.GrowthOptions{})
	for id := range uint64(300_000) {
		g.Apply(&event.Event{TimeNs: id, Kind: event.Alloc, PID: 1, BufferID: id, Devices: []int{0}, BytesPerBank: 1, Banks: 1, Stack: &event.Stack{ID: id + 1}})
	}
	qt.Check(t, qt.IsNil(g.Note()()))
}

// TestWhatIsNotedAtMarksIsBounded: of many call stacks and many marks.
func TestWhatIsNotedAtMarksIsBounded(t *testing.T) {
	const stacks, marks = 6000, 400
	w := newGrower(aggregate.GrowthOptions{})
	id := uint64(0)
	for i := range marks {
		w.mark(fmt.Sprint("mark ", i))
		for stack := range uint64(stacks) {
			id++
			w.apply(event.Event{Kind: event.Alloc, BufferID: id, Allocator: 1, Devices: []int{0}, BytesPerBank: 100, Banks: 10, Stack: &event.Stack{ID: 1 + stack}})
		}
	}
	w.mark("last")
	r, err := w.g.Report()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(r.From.Name, "mark 0"))
	qt.Check(t, qt.Equals(r.To.Name, "last"))
	qt.Check(t, qt.IsTrue(len(r.Marks) >= 16 && len(r.Marks)*stacks < 5<<18), qt.Commentf("%d marks", len(r.Marks)))
	qt.Check(t, qt.Equals(r.Left[0].Count, marks))
	qt.Check(t, qt.IsTrue(r.Left[0].Between.Growing))
}

// FuzzResumeGrowth: whatever a note says, nothing breaks.
func FuzzResumeGrowth(f *testing.F) {
	w := newGrower(aggregate.GrowthOptions{})
	f.Add(w.g.Note()())
	for range 8 {
		w.step()
		w.alloc("leak")
	}
	f.Add(w.g.Note()())
	w.mark("a")
	w.step()
	w.free(w.alloc("temporary"))
	w.mark("b")
	w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
	f.Add(w.g.Note()())
	w.alloc("leak")
	w.mark("step (end)")
	w.apply(event.Event{Kind: event.ProcessExit})
	f.Add(w.g.Note()())
	f.Fuzz(func(t *testing.T, note []byte) {
		r, err := aggregate.ResumeGrowth(note)
		if err != nil {
			return
		}
		stack := event.StackOf([]event.Frame{{Name: "f"}})
		r.Add(&event.Event{Kind: event.Alloc, PID: 7, BufferID: 3, Devices: []int{0}, BytesPerBank: 100, Banks: 10, Stack: stack})
		g, err := r.Growth()
		if err != nil {
			return
		}
		for i := range uint64(20) {
			g.Apply(&event.Event{TimeNs: 1000 + i, Kind: event.Alloc, PID: 7, BufferID: 100 + i, Devices: []int{0}, BytesPerBank: 100, Banks: 10, Stack: stack})
			g.Apply(&event.Event{TimeNs: 1000 + i, Kind: event.Mark, Cause: "x"})
			g.Apply(&event.Event{TimeNs: 1000 + i, Kind: event.Free, PID: 7, BufferID: 100 + i/2})
		}
		g.Note()()
		report, err := g.Report()
		if err != nil {
			t.Fatal(err)
		}
		for i := range report.Left {
			report.Left[i].Stack.Frames()
		}
	})
}

// BenchmarkGrowthNote: of 50,000 call stacks with 20 buffers each. Events wait while it is
// taken, and not while it is encoded.
func BenchmarkGrowthNote(b *testing.B) {
	g := aggregate.NewGrowth(aggregate.GrowthOptions{})
	for id := range uint64(1_000_000) {
		g.Apply(&event.Event{TimeNs: id, Kind: event.Alloc, PID: 1, BufferID: id, Devices: []int{0}, BytesPerBank: 1, Banks: 1, Stack: &event.Stack{ID: 1 + id%50_000}})
	}
	for _, encode := range []bool{false, true} {
		b.Run(map[bool]string{false: "taken", true: "encoded"}[encode], func(b *testing.B) {
			n := 0
			for b.Loop() {
				if note := g.Note(); encode {
					n = len(note())
				}
			}
			b.ReportMetric(float64(n), "B")
		})
	}
}
