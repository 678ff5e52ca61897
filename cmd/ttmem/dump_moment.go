package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// list is what there is to list at the moment that the options name.
func (o *dumpOptions) list(at moment, filter dumpFilter, rules *aggregate.Rules) (*listing, error) {
	if at.atEnd() {
		p, err := o.source.read()
		if err != nil {
			return nil, err
		}
		l, err := newListing(p, filter, rules)
		if err != nil {
			if missing := o.source.missing(); missing != nil {
				return nil, missing
			}
			if o.source.file != "" && len(filter.pids) > 0 {
				err = fmt.Errorf("%w; --at peak lists what was there before", err)
			}
			return nil, err
		}
		l.ended = o.source.file != ""
		return l, nil
	}
	of := at.of(o.source.file)
	var l *listing
	var failed error
	// at the peak each region is of another time
	w, state, err := visit(o.source.file, []moment{at}, everyEvent, func(*event.Event) {}, func(_ int, s *aggregate.State, wanted func(event.Region) bool) {
		some := filter
		some.regions = slices.DeleteFunc(slices.Clone(shownRegions), func(r event.Region) bool {
			return !wanted(r) || len(filter.regions) > 0 && !slices.Contains(filter.regions, r)
		})
		if len(some.regions) == 0 || failed != nil {
			return
		}
		one, err := newListing(&present{State: s, nowNs: s.Snapshot().TimeNs, of: of}, some, rules)
		if err != nil || l == nil {
			l, failed = one, err
			return
		}
		l.rows, l.all, l.nowNs, l.snap = append(l.rows, one.rows...), l.all+one.all, one.nowNs, one.snap
		l.there = max(l.there, one.there)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, cmp.Or(o.source.missing(), err)
	}
	if l == nil { // nothing of these regions was ever there
		return newListing(&present{State: state, nowNs: state.Snapshot().TimeNs, of: of, notes: w.notes, failed: w.failed}, filter, rules)
	}
	l.notes, l.failed, l.filter = w.notes, w.failed, filter
	return l, nil
}
