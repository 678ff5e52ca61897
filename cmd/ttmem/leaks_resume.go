package main

import (
	"errors"
	"io"
	"slices"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// leaksFile is what grew in a file, which has events that are counted as lost.
type leaksFile struct {
	*recorded
	growth *aggregate.Growth
	lost   uint64
	asked  *asked
}

// watchLeaks follows what grows by the events of a file. Where all are asked for that no
// checkpoint tells of, it reads all of them; else it goes on at the last checkpoint with
// a note on leaks.
func watchLeaks(path string, o *leaksOptions, marks aggregate.GrowthOptions) (*watched, *leaksFile, error) {
	r, err := openRecorded(path)
	if err != nil {
		return nil, nil, err
	}
	defer r.close()
	f := &leaksFile{recorded: r, asked: &o.asked}
	begun := false // before the file
	if r.file != nil {
		list := r.file.Checkpoints()
		begun = len(list) > 0 && list[0].Leads()
		if o.from == "" && o.to == "" && o.interval == 0 && len(o.source.pids) == 0 && !f.resume(list) && len(list) > 0 {
			// what was tried has moved on
			r.close()
			if f.recorded, err = openRecorded(path); err != nil {
				return nil, nil, err
			}
			defer f.close()
		}
	}
	resumed := f.growth != nil
	if !resumed {
		f.growth = aggregate.NewGrowth(marks)
	}
	w, err := f.watch(&o.source, o.source.ofPIDs(f.apply), func() {})
	if err != nil {
		return nil, nil, err
	}
	w.skipped = resumed
	if begun && !resumed {
		w.notes = append(w.notes, w.of+" goes on from an earlier file: what was freed before it is not known here, nor how what was there had grown")
	}
	return w, f, nil
}

func (f *leaksFile) apply(e *event.Event) {
	f.count(e)
	f.growth.Apply(e)
}

// count counts lost events, and notes what the event is of.
func (f *leaksFile) count(e *event.Event) {
	f.asked.meet(e)
	if e.Kind == event.Lost {
		f.lost += e.Count
	}
}

// resume goes on at the last of the checkpoints that is intact and has a note, and
// reports whether there is one.
func (f *leaksFile) resume(list []recording.Checkpoint) bool {
	for _, c := range slices.Backward(list) {
		note := f.file.CheckpointNote(c)
		if note == nil {
			continue
		}
		resume, err := aggregate.ResumeGrowth(note)
		if err != nil {
			continue
		}
		if intact, err := f.file.From(c); err != nil || !intact {
			continue
		}
		if f.add(resume) {
			return true
		}
	}
	return false
}

// add reads the events of a checkpoint, and reports whether they are what the note is of.
func (f *leaksFile) add(resume *aggregate.GrowthResume) bool {
	f.lost = 0
	var e event.Event
	err := f.file.Next(&e)
	for ; err == nil && f.file.Reader.Checkpoint(); err = f.file.Next(&e) {
		f.count(&e)
		resume.Add(&e)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.lost = 0
		return false
	}
	growth, unfit := resume.Growth()
	if unfit != nil {
		f.lost = 0
		return false
	}
	f.growth = growth
	if err == nil {
		f.first(e)
	}
	return true
}

// first has the first event come again, which was read already.
func (f *leaksFile) first(e event.Event) {
	next := f.next
	f.next = func(to *event.Event) error {
		*to = e
		f.next = next
		return nil
	}
}
