package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// notedRecording is a recording of so many random events and up to as many more, with notes and with a checkpoint each
// 200 events: the files in order of time.
func notedRecording(t *testing.T, seed uint64, events int, o recording.FileOptions) []string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 10))
	var stacks []*event.Stack
	for i := range 9 {
		stacks = append(stacks, event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "model.py", Line: i}}))
	}
	state := aggregate.New()
	header := recording.NewHeader()
	o.Header, o.Checkpoint, o.CheckpointEvents = &header, frozen(state), 200
	if o.Note == nil {
		o.Note = state.TakeRanges
	}
	f, err := recording.Create(filepath.Join(t.TempDir(), "x.ttmem"), o)
	qt.Assert(t, qt.IsNil(err))
	record := applying(state, func(e *event.Event) { f.Add(e) })
	now := header.MonotonicNs
	for range events + r.IntN(events) {
		e := randomEvent(r, now, stacks)
		record(&e)
		if r.IntN(20) == 0 {
			qt.Assert(t, qt.IsNil(f.Flush()))
			qt.Assert(t, qt.IsNil(f.Settle()))
		}
		now += r.Uint64N(1 << 24)
	}
	qt.Assert(t, qt.IsNil(f.Close(recording.End{TimeNs: now + 10})))
	return f.Paths()
}

// peaksByBothWays are the pages of a file, from its notes and from all of its events;
// noted is nil where the notes do not help.
func peaksByBothWays(t *testing.T, path string, filter alloc.Filter) (noted, all *peakDocument) {
	t.Helper()
	o := &peakOptions{dumpOptions: dumpOptions{source: sourceOptions{file: path}}}
	document := func(peaks *aggregate.Peaks, w *watched) *peakDocument {
		page, err := newPeakPage(peaks, w, filter, nil, "stack")
		qt.Assert(t, qt.IsNil(err))
		var b bytes.Buffer
		qt.Assert(t, qt.IsNil(page.writeJSON(&b)))
		doc := &peakDocument{}
		qt.Assert(t, qt.IsNil(json.Unmarshal(b.Bytes(), doc)))
		doc.Notes = append(doc.Notes, fmt.Sprint(w.failed))
		return doc
	}
	peaks := aggregate.NewPeaks()
	w, err := o.source.watch(peaks.Apply, func() {})
	if err != nil {
		return nil, nil
	}
	all = document(peaks, w)
	n := &notedFile{o: o, wanted: filter.SelectsPeak}
	survey, err := n.survey()
	qt.Assert(t, qt.IsNil(err))
	if survey == nil {
		return nil, all
	}
	if peaks, w, err = n.complete(survey); err != nil || peaks == nil {
		return nil, all
	}
	return document(peaks, w), all
}

// checkSamePeaks checks that two pages are the same, but that the timelines of one have
// more than those of the other.
func checkSamePeaks(t *testing.T, coarse, fine *peakDocument, comment qt.Comment) {
	t.Helper()
	contains := func(a, b *timelineJSON) {
		qt.Assert(t, qt.Equals(a.BeginNs, b.BeginNs), comment)
		qt.Assert(t, qt.Equals(a.StepNs, b.StepNs), comment)
		qt.Assert(t, qt.HasLen(a.MinBytes, len(b.MinBytes)), comment)
		for i := range b.MinBytes {
			qt.Assert(t, qt.IsTrue(a.MinBytes[i] <= b.MinBytes[i] && b.MaxBytes[i] <= a.MaxBytes[i]), comment)
		}
		qt.Assert(t, qt.Equals(slices.Max(a.MaxBytes), slices.Max(b.MaxBytes)), comment)
		*a, *b = timelineJSON{}, timelineJSON{}
	}
	qt.Assert(t, qt.HasLen(coarse.Peaks, len(fine.Peaks)), comment)
	for i := range fine.Peaks {
		a, b := &coarse.Peaks[i], &fine.Peaks[i]
		contains(&a.Timeline, &b.Timeline)
		if b.Statics != nil {
			contains(a.Statics, b.Statics)
		}
	}
	a, err := json.MarshalIndent(coarse, "", " ")
	qt.Assert(t, qt.IsNil(err))
	b, err := json.MarshalIndent(fine, "", " ")
	qt.Assert(t, qt.IsNil(err))
	got, want := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%v, line %d: got\n%s\nwant\n%s", comment, i, strings.Join(got[max(0, i-20):i+1], "\n"), want[i])
		}
	}
	qt.Assert(t, qt.HasLen(got, len(want)), comment)
}

func TestPeaksFromNotesAreThoseOfAllEvents(t *testing.T) {
	for seed := range uint64(20) {
		path := notedRecording(t, seed, 2000, recording.FileOptions{})[0]
		filter := []alloc.Filter{{}, {Regions: []event.Region{event.DRAM}}, {Devices: []int{1}}, {Regions: []event.Region{event.CB}}}[seed%4]
		coarse, fine := peaksByBothWays(t, path, filter)
		qt.Assert(t, qt.IsNotNil(coarse), qt.Commentf("seed %d", seed))
		qt.Assert(t, qt.IsTrue(len(fine.Peaks) > 0))
		checkSamePeaks(t, coarse, fine, qt.Commentf("seed %d", seed))
	}
}

func TestPeaksOfEachFileOfARecording(t *testing.T) {
	following := 0 // files with another checkpoint than that at their beginning
	for seed := range uint64(2) {
		paths := notedRecording(t, seed, 40_000, recording.FileOptions{MaxBytes: 500 << 10})
		for i, path := range paths {
			coarse, fine := peaksByBothWays(t, path, alloc.Filter{})
			comment := qt.Commentf("seed %d, file %d of %d", seed, i, len(paths))
			qt.Check(t, qt.Equals(fine.Restored, i > 0), comment)
			if coarse == nil {
				continue
			}
			checkSamePeaks(t, coarse, fine, comment)
			if i > 0 {
				following++
			}
		}
	}
	qt.Check(t, qt.IsTrue(following > 0), qt.Commentf("%d", following))
}

// TestPeaksOfAFileThatIsCutOrDamaged: whatever is wrong, what is shown is what all the
// events say that can be read, or is not shown.
func TestPeaksOfAFileThatIsCutOrDamaged(t *testing.T) {
	path := notedRecording(t, 3, 2000, recording.FileOptions{})[0]
	whole, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	f, err := recording.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	var notes []int64
	for note := range f.Notes() {
		notes = append(notes, note.Offset)
	}
	r := rand.New(rand.NewPCG(1, 1))
	compared := make(map[string]int)
	for range 20 {
		offset := notes[len(notes)/4+r.IntN(len(notes)*3/4)]
		for what, b := range map[string][]byte{
			"killed within a block": whole[:len(whole)*2/3+r.IntN(len(whole)/3)],
			"killed after a note":   whole[:offset],
			"damaged note":          append(append(slices.Clone(whole[:offset-1]), whole[offset-1]^1), whole[offset:]...),
		} {
			qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))
			coarse, fine := peaksByBothWays(t, path, alloc.Filter{})
			if fine == nil || coarse == nil {
				continue
			}
			compared[what]++
			qt.Assert(t, qt.HasLen(fine.Notes, 3), qt.Commentf("%s", what)) // it is told, and what ran already
			checkSamePeaks(t, coarse, fine, qt.Commentf("%s at %d", what, offset))
		}
	}
	for what, n := range compared {
		qt.Check(t, qt.IsTrue(n > 10), qt.Commentf("%s: %d", what, n))
	}
	qt.Check(t, qt.HasLen(compared, 3))
}

func TestNotesThatDoNotHelpAreNotUsed(t *testing.T) {
	other := func(note string) func() []byte { return func() []byte { return []byte(note) } }
	for name, note := range map[string]func() []byte{
		"none": other(""), "of another kind": other("\xffwhatever"), "cut": other("\x01\x00\x01"),
	} {
		coarse, fine := peaksByBothWays(t, notedRecording(t, 1, 2000, recording.FileOptions{Note: note})[0], alloc.Filter{})
		qt.Check(t, qt.IsNil(coarse), qt.Commentf("%s", name))
		qt.Check(t, qt.IsNotNil(fine), qt.Commentf("%s", name))
	}
}

// TestNotesAreUsedWhereThatIsQuicker: what has its peaks early, and goes on for long, is
// not read in between; what has them everywhere is read as a whole.
func TestNotesAreUsedWhereThatIsQuicker(t *testing.T) {
	for chips, want := range map[int]bool{1: true, 200: false} {
		state := aggregate.New()
		path := filepath.Join(t.TempDir(), "x.ttmem")
		f, err := recording.Create(path, recording.FileOptions{Checkpoint: frozen(state), CheckpointEvents: 500, Note: state.TakeRanges})
		qt.Assert(t, qt.IsNil(err))
		record := applying(state, func(e *event.Event) { f.Add(e) })
		for n := range uint64(16_000) { // each chip has its peak at a time of its own
			chip := int(n) * chips / 16_000
			e, end := buffered(n, n, 64, heldAt, chip), freed(n, n)
			if n*uint64(chips)%16_000 < 10*uint64(chips) {
				end = freed(n, 1<<40) // which is not known: the buffer stays
			}
			record(&e)
			record(&end)
			if n%50 == 0 {
				qt.Assert(t, qt.IsNil(f.Flush()))
				qt.Assert(t, qt.IsNil(f.Settle()))
			}
		}
		qt.Assert(t, qt.IsNil(f.Close(recording.End{})))
		n := &notedFile{o: &peakOptions{dumpOptions: dumpOptions{source: sourceOptions{file: path}}}, wanted: (&alloc.Filter{}).SelectsPeak}
		peaks, _, err := n.read()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(peaks != nil, want), qt.Commentf("%d chips, %d starts, %d bytes", chips, len(n.starts), n.size))
		coarse, fine := peaksByBothWays(t, path, alloc.Filter{})
		qt.Assert(t, qt.HasLen(fine.Peaks, chips))
		checkSamePeaks(t, coarse, fine, qt.Commentf("%d chips", chips))
	}
}

func TestOneProcessIsReadFromAllEvents(t *testing.T) {
	path := notedRecording(t, 2, 2000, recording.FileOptions{})[0]
	o := &peakOptions{dumpOptions: dumpOptions{source: sourceOptions{file: path, pids: []int{101}}}}
	peaks, w, err := o.watchPeaks(func(int, event.Region) bool { return true })
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(w.notes, 0))
	want := aggregate.NewPeaks()
	_, err = watchFile(path, o.source.ofPIDs(want.Apply), func() {})
	qt.Assert(t, qt.IsNil(err))
	got, all := peaks.RegionPeaks(), want.RegionPeaks()
	qt.Assert(t, qt.HasLen(got, len(all)))
	for i := range all {
		qt.Check(t, qt.Equals(got[i].Bytes, all[i].Bytes))
		qt.Check(t, qt.Equals(got[i].TimeNs, all[i].TimeNs))
	}
}
