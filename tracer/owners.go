package tracer

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"ttmem/tracer/host"
	"ttmem/tracer/owners"
)

// takeOwners reports the result of a search for owners. It returns false if the rest has to wait, because
// maxTaken were reported.
func (d *decoder) takeOwners(r *owners.Result) bool {
	n, done := d.searches.Take(r, max(r.EndedNs, d.newest, d.queue.released), maxTaken-d.taken)
	d.taken += n
	return done
}

// wantAtMark schedules the searches that a mark asks for: of the process whose call is the mark, or
// of all if that is nil.
func (d *decoder) wantAtMark(p *process) {
	switch {
	case !d.OwnersAtMarks:
	case p != nil:
		d.searches.WantNow(p.owners, false)
	default:
		for _, p := range d.processes {
			d.searches.WantNow(p.owners, false)
		}
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
