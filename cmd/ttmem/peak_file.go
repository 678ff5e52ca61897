package main

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// watchPeaks are the peaks of what the options name: of a long recording without reading
// most of it, if its notes tell enough. Of regions that are not wanted it need not be
// known what they were made of.
func (o *peakOptions) watchPeaks(wanted func(device int, region event.Region) bool) (*aggregate.Peaks, *watched, error) {
	// notes are of all processes; and a pipe can be read once
	if len(o.source.pids) == 0 && recording.IsRecording(o.source.file) {
		n := &notedFile{o: o, wanted: wanted}
		peaks, w, err := n.read()
		if peaks != nil || err != nil {
			return peaks, w, err
		}
	}
	peaks := aggregate.NewPeaks()
	w, err := o.source.watch(peaks.Apply, func() {})
	return peaks, w, err
}

// A notedFile is a recording that has checkpoints inside, and notes of ranges.
type notedFile struct {
	o      *peakOptions
	wanted func(device int, region event.Region) bool
	size   int64
	// starts are where reading can begin, in order: the beginning of the file, which
	// may be a checkpoint, and those inside.
	starts []recording.Checkpoint
	ends   []recording.Note // without their data
	// last is the start from which on all is read.
	last int
}

// A stretch is a part of the file that is to be read, from a start up to the end of a
// note.
type stretch struct{ start, end int }

// read returns the peaks of all events; nil where all are to be read for that: the file
// is short, its notes are missing or damaged, or it would be no quicker.
func (n *notedFile) read() (*aggregate.Peaks, *watched, error) {
	noted, err := n.survey()
	if noted == nil || err != nil {
		return nil, nil, err
	}
	if n.cost(n.stretches(noted)) > n.size*3/4 {
		return nil, nil, nil
	}
	return n.complete(noted)
}

// complete reads what is to be read for what notes tell.
func (n *notedFile) complete(noted *aggregate.NotedPeaks) (*aggregate.Peaks, *watched, error) {
	for _, s := range n.stretches(noted) {
		peaks, err := n.peaksOf(s)
		if peaks == nil || err != nil {
			return nil, nil, err
		}
		noted.Find(peaks)
	}
	if len(n.stretches(noted)) > 0 {
		return nil, nil, nil // some are not where the notes say
	}
	peaks := aggregate.NewPeaks()
	r, err := n.open(n.last)
	if r == nil || err != nil {
		return nil, nil, err
	}
	defer r.close()
	w, err := r.watch(&n.o.source, peaks.Apply, func() {})
	if err != nil || !noted.Complete(peaks, n.wanted) {
		return nil, nil, err
	}
	return peaks, w, nil
}

// survey reads the notes; nil where there are none that help.
func (n *notedFile) survey() (*aggregate.NotedPeaks, error) {
	r, err := openRecorded(n.o.source.file)
	if err != nil {
		return nil, err
	}
	defer r.close()
	n.size, n.starts = r.file.Size(), r.file.Checkpoints()
	leads := len(n.starts) > 0 && n.starts[0].Leads()
	begin := uint64(0)
	if leads {
		begin = n.starts[0].TimeNs
	} else if len(n.starts) > 0 {
		var first event.Event
		if r.next(&first) == nil {
			begin = first.TimeNs
		}
		n.starts = slices.Insert(n.starts, 0, recording.Checkpoint{})
	}
	if len(n.starts) < 2 || begin == 0 {
		return nil, nil
	}
	noted := aggregate.NewNotedPeaks(begin, leads)
	for note := range r.file.Notes() {
		if noted.Add(note.FirstNs, note.LastNs, note.Data) != nil {
			return nil, nil
		}
		note.Data = nil
		n.ends = append(n.ends, note)
	}
	if len(n.ends) == 0 {
		return nil, nil
	}
	covered := n.ends[len(n.ends)-1].Offset
	for i := range n.starts {
		if n.starts[i].Offset() <= covered {
			n.last = i
		}
	}
	return noted, nil
}

// startBefore is the last start before the events of a note.
func (n *notedFile) startBefore(note int) int {
	start := 0
	for i := range n.starts {
		if n.starts[i].Offset() < n.ends[note].Offset {
			start = i
		}
	}
	return start
}

// stretches are those with the peaks that are missing, in order, before the last start.
func (n *notedFile) stretches(noted *aggregate.NotedPeaks) []stretch {
	ends := make(map[int]int) // by start
	for _, peak := range noted.Missing() {
		if start := n.startBefore(peak.Note); start < n.last && n.wanted(peak.Device, peak.Region) {
			ends[start] = max(ends[start], peak.Note)
		}
	}
	var list []stretch
	for _, start := range slices.Sorted(maps.Keys(ends)) {
		list = append(list, stretch{start, ends[start]})
	}
	return list
}

// cost is how many bytes are to be read for the stretches, and from the last start on. It
// may be too low by a quarter: checkpoints are packed better than other events, of which
// there are four times as many.
func (n *notedFile) cost(stretches []stretch) int64 {
	bytes := n.starts[n.last].Size() + n.size - n.starts[n.last].Offset()
	for _, s := range stretches {
		bytes += n.starts[s.start].Size() + n.ends[s.end].Offset - n.starts[s.start].Offset()
	}
	return bytes
}

// open opens the file at a start; it is nil where that is damaged.
func (n *notedFile) open(start int) (*recorded, error) {
	r, err := openRecorded(n.o.source.file)
	if err != nil {
		return nil, err
	}
	if c := n.starts[start]; c.Size() > 0 {
		if intact, err := r.file.From(c); !intact || err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// peaksOf are the peaks of a stretch; nil where it cannot be read.
func (n *notedFile) peaksOf(s stretch) (*aggregate.Peaks, error) {
	r, err := n.open(s.start)
	if r == nil || err != nil {
		return nil, err
	}
	defer r.close()
	ctx, stop := n.o.source.until(unix.SIGINT, unix.SIGTERM)
	defer stop()
	over, done := context.WithCancel(ctx)
	defer done()
	peaks := aggregate.NewPeaks()
	_, err = r.play(over, func(e *event.Event) {
		if e.TimeNs > n.ends[s.end].LastNs {
			done()
			return
		}
		peaks.Apply(e)
	}, func() {})
	switch {
	case ctx.Err() != nil:
		return nil, term.ErrInterrupted
	case err != nil && over.Err() == nil:
		return nil, nil // all that can be read is
	}
	return peaks, nil
}
