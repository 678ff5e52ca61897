package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// missing is an error where none of the processes that are asked for is in the file. It
// is to be called where nothing was found: it reads the file's end once more.
func (o *sourceOptions) missing() error {
	if o.file == "" || len(o.pids) == 0 {
		return nil
	}
	p, err := presentOfFile(o.file)
	if err != nil {
		return nil // which was told of before
	}
	var pids []int
	for _, one := range p.Snapshot().Processes {
		if slices.Contains(o.pids, one.PID) {
			return nil
		}
		if !slices.Contains(pids, one.PID) {
			pids = append(pids, one.PID)
		}
	}
	if len(pids) == 0 {
		return fmt.Errorf("--pid %s: there is no process in %s", listPIDs(o.pids), o.file)
	}
	slices.Sort(pids)
	var names []string
	for _, pid := range pids {
		names = append(names, fmt.Sprint(pid))
	}
	return fmt.Errorf("--pid %s: in %s is PID %s", listPIDs(o.pids), o.file, listSome(names, "process"))
}

// list is what there is to list at the moment that the options name.
func (o *dumpOptions) list(at moment, filter dumpFilter, rules *aggregate.Rules) (*listing, error) {
	if at.atEnd() {
		p, err := o.source.read()
		if err != nil {
			return nil, err
		}
		l, err := newListing(p, filter, rules)
		if err != nil {
			if err = cmp.Or(o.source.missing(), err); o.source.file != "" && len(filter.pids) > 0 {
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
