package tracer

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"ttmem/tracer/host"
	"ttmem/tracer/internal/owners"
)

// takeOwners reports the result of a search for owners. It returns false if the rest has to wait, because
// maxTaken were reported.
func (d *decoder) takeOwners(r *owners.Result) bool {
	n, done := d.searches.Take(r, max(r.EndedNs, d.newest, d.queue.Released), maxTaken-d.taken)
	d.taken += n
	return done
}

// SearchFor has the owners of a user's processes searched at new peaks and, with marks, at marks, too, until stop is
// called. These searches take a limited share of the time.
func (t *Tracer) SearchFor(uid int, marks bool) (stop func()) {
	change := func(by int) {
		t.inbox.add(result{report: func(d *decoder) bool {
			d.asked.Add(uid, marks, by)
			return true
		}})
	}
	change(1)
	return func() { change(-1) }
}

// wantAtPeaks schedules searches at new peaks, and after users' marks.
func (d *decoder) wantAtPeaks(nowNs uint64) {
	if nowNs-d.peaksNs <= peaksNs || !d.OwnersAtPeaks && len(d.asked) == 0 {
		return
	}
	d.peaksNs = nowNs
	for _, p := range d.processes {
		if d.OwnersAtPeaks || d.asked.AtPeaks(p.uid()) {
			d.searches.WantAtPeak(p.owners, nowNs)
		}
		if d.asked.Marked(p.uid()) {
			d.searches.WantNow(p.owners, true)
		}
	}
	d.asked.Look()
}

// wantAtMark schedules the searches that a mark of a user asks for: of the process whose call is the mark, or
// of all if that is nil.
func (d *decoder) wantAtMark(p *process, uid int) {
	switch {
	case d.OwnersAtMarks && p != nil:
		d.searches.WantNow(p.owners, false)
	case d.OwnersAtMarks:
		for _, p := range d.processes {
			d.searches.WantNow(p.owners, false)
		}
	case p == nil:
		d.asked.Mark(uid)
	case d.asked.AtMarks(p.uid()):
		d.searches.WantNow(p.owners, true)
	}
}

// FindOwners looks for who holds the buffers of processes, or of all that are traced if there are
// none. It returns when Run has handled what was found, and earlier if the context is done. counts is
// true if the users of the processes asked for it: their searches take a limited share of the time.
func (t *Tracer) FindOwners(ctx context.Context, pids []int, counts bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(t.closing, stop)()
	type wanted struct {
		list []*owners.Search
		err  error // why there are not all
	}
	answer := make(chan wanted, 1)
	t.inbox.add(result{atNs: host.Now(), report: func(d *decoder) bool { // with the buffers that are allocated by now
		var w wanted
		if len(pids) == 0 {
			pids = slices.Collect(maps.Keys(d.processes))
		}
		for _, pid := range pids {
			if p := d.processes[pid]; p != nil {
				s, err := d.searches.Request(p.owners, counts, host.Now())
				if w.err = cmp.Or(err, w.err); s != nil {
					w.list = append(w.list, s)
				}
			}
		}
		answer <- w
		return true
	}})
	var w wanted
	select {
	case w = <-answer:
	case <-ctx.Done():
	}
	for _, s := range w.list {
		select {
		case <-s.Over:
		case <-ctx.Done():
		}
	}
	return cmp.Or(w.err, ctx.Err())
}

// Searching reports whether searches after late attaches are not over yet. It leaves out others,
// which a program that fails again and again causes without end.
func (t *Tracer) Searching() bool { return t.searches.Late.Load() > 0 }
