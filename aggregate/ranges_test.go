package aggregate_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// chunk is what a recorder wrote between two flushes, and the checkpoint that it wrote
// before, if it did.
type chunk struct {
	checkpoint []event.Event
	events     []event.Event
	note       []byte
	from, to   uint64
}

// recorder makes the chunks of a recording.
type recorder struct {
	state  *aggregate.State
	chunks []chunk
	open   chunk
}

func (r *recorder) apply(e *event.Event) {
	for implied := r.state.Implied(e); implied.Next(); {
		r.add(implied.Event())
	}
	r.add(e)
}

func (r *recorder) add(e *event.Event) {
	r.state.Complete(e)
	r.state.Apply(e)
	r.open.events = append(r.open.events, *e)
	r.open.to = e.TimeNs
}

// flush ends a chunk; the next one begins with a checkpoint or none.
func (r *recorder) flush(checkpoint bool) {
	r.open.note = r.state.TakeRanges()
	r.chunks = append(r.chunks, r.open)
	r.open = chunk{from: r.open.to, to: r.open.to}
	if checkpoint {
		for e := range r.state.Checkpoint() {
			r.open.checkpoint = append(r.open.checkpoint, *e)
		}
	}
}

// peaksOf are the peaks of some chunks: of the checkpoint, if they begin with one, and
// then of all events.
func peaksOfChunks(chunks []chunk) *aggregate.Peaks {
	p := aggregate.NewPeaks()
	for i := range chunks[0].checkpoint {
		p.Apply(&chunks[0].checkpoint[i])
	}
	for _, c := range chunks {
		for i := range c.events {
			p.Apply(&c.events[i])
		}
	}
	return p
}

// notedPeaks are the peaks as the notes tell them, with those chunks that are needed.
func notedPeaks(t *testing.T, chunks []chunk, wanted func(int, event.Region) bool) *aggregate.Peaks {
	t.Helper()
	begin, _ := peaksOfChunks(chunks[:1]).Begin()
	noted := aggregate.NewNotedPeaks(begin, chunks[0].checkpoint != nil)
	for _, c := range chunks {
		if c.note != nil {
			qt.Assert(t, qt.IsNil(noted.Add(c.from, c.to, c.note)))
		}
	}
	start := func(note int) int {
		for note > 0 && chunks[note].checkpoint == nil {
			note--
		}
		return note
	}
	last := start(len(chunks) - 1)
	missing := noted.Missing()
	slices.SortFunc(missing, func(a, b aggregate.NotedPeak) int { return a.Note - b.Note })
	for _, peak := range missing {
		if from := start(peak.Note); from < last && wanted(peak.Device, peak.Region) {
			noted.Find(peaksOfChunks(chunks[from : peak.Note+1]))
		}
	}
	for _, peak := range noted.Missing() {
		qt.Assert(t, qt.IsTrue(start(peak.Note) == last || !wanted(peak.Device, peak.Region)))
	}
	p := peaksOfChunks(chunks[last:])
	qt.Assert(t, qt.IsTrue(noted.Complete(p, wanted)))
	return p
}

func allRegions(int, event.Region) bool { return true }

// checkSamePeaks checks that both have the same peaks, and that the first one's timelines
// have all that the other's have.
func checkSamePeaks(t *testing.T, got, want *aggregate.Peaks, wanted func(int, event.Region) bool, comment qt.Comment) {
	t.Helper()
	begin, restored := want.Begin()
	gotBegin, gotRestored := got.Begin()
	qt.Assert(t, qt.Equals(gotBegin, begin), comment)
	qt.Assert(t, qt.Equals(gotRestored, restored), comment)
	end := want.Snapshot().TimeNs
	lists := [2][]aggregate.RegionPeak{got.RegionPeaks(), want.RegionPeaks()}
	qt.Assert(t, qt.HasLen(lists[0], len(lists[1])), comment)
	for i := range lists[1] {
		a, b := lists[0][i], lists[1][i]
		if !wanted(b.Device, b.Region) {
			qt.Assert(t, qt.Equals(a.Bytes, b.Bytes), comment)
			continue
		}
		checkContains(t, a.Timeline, b.Timeline, end, comment)
		checkContains(t, a.StaticTimeline, b.StaticTimeline, end, comment)
		qt.Assert(t, qt.Equals(a.Timeline.Columns(end, 100)[a.Timeline.Column(a.TimeNs, end, 100)].Max, a.Bytes), comment)
		a.Timeline, a.StaticTimeline, b.Timeline, b.StaticTimeline = nil, nil, nil, nil
		qt.Assert(t, qt.DeepEquals(plainPeak(a), plainPeak(b)), comment)
	}
}

// plainPeak is a peak without pointers, which compare by what they point to.
func plainPeak(p aggregate.RegionPeak) (plain struct {
	Peak     aggregate.RegionPeak
	Earlier  aggregate.EarlierPeak
	Holders  []aggregate.PeakHolder
	Programs []aggregate.PeakProgram
	Stacks   []uint64
}) {
	id := func(s *event.Stack) uint64 {
		if s == nil {
			return 0
		}
		return s.ID
	}
	for _, h := range p.Holders {
		plain.Stacks = append(plain.Stacks, id(h.Stack))
		h.Stack = nil
		plain.Holders = append(plain.Holders, h)
	}
	for _, g := range p.Programs {
		plain.Stacks = append(plain.Stacks, id(g.Stack))
		g.Stack = nil
		plain.Programs = append(plain.Programs, g)
	}
	if p.Earlier != nil {
		plain.Earlier = *p.Earlier
	}
	p.Holders, p.Programs, p.Earlier = nil, nil, nil
	plain.Peak = p
	return plain
}

func checkContains(t *testing.T, coarse, fine *aggregate.Timeline, end uint64, comment qt.Comment) {
	t.Helper()
	qt.Assert(t, qt.Equals(coarse.BeginNs, fine.BeginNs), comment)
	a, b := coarse.Spans(end), fine.Spans(end)
	qt.Assert(t, qt.Equals(coarse.StepNs(), fine.StepNs()), comment)
	qt.Assert(t, qt.HasLen(a, len(b)), comment)
	for i := range b {
		qt.Assert(t, qt.IsTrue(a[i].Min <= b[i].Min && b[i].Max <= a[i].Max), qt.Commentf("span %d: %v, %v; %v", i, a[i], b[i], comment))
	}
}

func TestNotesTellThePeaksThatAllEventsDo(t *testing.T) {
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 5))
		rec := &recorder{state: aggregate.New()}
		if seed%3 < 2 && seed%8 > 3 { // what a file begins with has to fit
			rec.apply(smallL1())
		}
		for now := uint64(1); now <= 1500; now++ {
			e := randomEvent(r, now/uint64(1+seed%3)+1)
			e.Stack = stacks[r.IntN(len(stacks))]
			rec.apply(&e)
			if r.IntN(10) == 0 {
				rec.flush(r.IntN(6) == 0)
			}
		}
		chunks := rec.chunks
		if seed%3 == 1 { // the writer was killed before its last note
			chunks = append(chunks, rec.open)
		}
		wanted := allRegions
		if seed%4 == 1 {
			wanted = func(device int, region event.Region) bool { return device == 1 && region == event.L1 }
		}
		comment := qt.Commentf("seed %d", seed)
		if seed%3 == 2 { // the file begins in the middle
			chunks = chunks[slices.IndexFunc(chunks, func(c chunk) bool { return c.checkpoint != nil }):]
		}
		checkSamePeaks(t, notedPeaks(t, chunks, wanted), peaksOfChunks(chunks), wanted, comment)
	}
}

func TestRangesBeginAnewWhenTheyAreTaken(t *testing.T) {
	s := aggregate.New()
	e := tensor(1, 7, 1, 0, 1)
	s.Apply(&e)
	qt.Check(t, qt.DeepEquals(peaksInNote(t, s.TakeRanges()), map[chipRegion]uint64{{0, event.DRAM}: 540672, {1, event.DRAM}: 540672}))
	end := free(2, 7, 1)
	s.Apply(&end)
	// it was there until then
	qt.Check(t, qt.DeepEquals(peaksInNote(t, s.TakeRanges()), map[chipRegion]uint64{{0, event.DRAM}: 540672, {1, event.DRAM}: 540672}))
	qt.Check(t, qt.HasLen(peaksInNote(t, s.TakeRanges()), 0))
	qt.Check(t, qt.HasLen(s.TakeRanges(), 1))
}

func peaksInNote(t *testing.T, note []byte) map[chipRegion]uint64 {
	t.Helper()
	n := aggregate.NewNotedPeaks(1, false)
	qt.Assert(t, qt.IsNil(n.Add(1, 2, note)))
	peaks := make(map[chipRegion]uint64)
	for _, p := range n.Missing() {
		peaks[chipRegion{p.Device, p.Region}] = p.Bytes
	}
	return peaks
}

// TestChipsThatAreAlikeTakeLittleOfANote has a mesh of 32 chips.
func TestChipsThatAreAlikeTakeLittleOfANote(t *testing.T) {
	s := aggregate.New()
	mesh := make([]int, 32)
	for i := range mesh {
		mesh[i] = i
	}
	for id := range uint64(100) {
		e := tensor(id, 7, id, mesh...)
		s.Apply(&e)
	}
	note := s.TakeRanges()
	qt.Check(t, qt.IsTrue(len(note) < 80), qt.Commentf("%d bytes", len(note)))
	qt.Check(t, qt.HasLen(peaksInNote(t, note), 32))
}

func TestPeaksThatNotesContradictAreNotTold(t *testing.T) {
	rec := &recorder{state: aggregate.New()}
	for id := range uint64(10) {
		e := tensor(id+1, 7, id, 0)
		rec.apply(&e)
		rec.flush(id == 4)
	}
	end := free(20, 7, 1)
	rec.apply(&end)
	rec.flush(true)
	more := aggregate.New()
	for id := range uint64(3) {
		e := tensor(id+1, 7, id, 0)
		more.Apply(&e)
	}
	chunks := rec.chunks
	for name, change := range map[string]func(*aggregate.NotedPeaks){
		"less": func(n *aggregate.NotedPeaks) { n.Find(peaksOfChunks(chunks[5:])) }, // than there was
		"more": func(*aggregate.NotedPeaks) {},
	} {
		noted := aggregate.NewNotedPeaks(1, false)
		note := more.TakeRanges()
		if name == "more" {
			note = chunks[9].note
		}
		qt.Assert(t, qt.IsNil(noted.Add(1, 20, note)))
		change(noted)
		qt.Check(t, qt.IsFalse(noted.Complete(peaksOfChunks(chunks[len(chunks)-1:]), allRegions)), qt.Commentf("%s", name))
	}
}

// FuzzRanges reads what may be no ranges at all.
func FuzzRanges(f *testing.F) {
	s := aggregate.New()
	for _, e := range []event.Event{wormhole(1, 7, 1, 0, 1), tensor(2, 7, 1, 0, 1), tensor(3, 7, 2, 1), cb(4, 7, 1, 1000, 300, 1, 1, 0), free(5, 7, 1)} {
		s.Apply(&e)
		f.Add(s.TakeRanges())
	}
	f.Add([]byte{1, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 0})
	f.Add(append([]byte{1, 2, 1, 5, 0, 0}, bytes.Repeat([]byte{2, 0}, 1500)...))
	f.Fuzz(func(t *testing.T, note []byte) {
		n := aggregate.NewNotedPeaks(1, false)
		if n.Add(1, 1<<40, note) != nil {
			return
		}
		qt.Assert(t, qt.IsTrue(len(n.Missing()) <= 5*1024))
		n.Find(peaksOf(tensor(2, 7, 1, 0)))
		n.Complete(peaksOf(tensor(2, 7, 1, 0)), allRegions)
	})
}
