package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// list is what there is to list at the moment that the options name.
func (o *dumpOptions) list(at moment, filter dumpFilter, rules *name.Rules) (*listing, error) {
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
				err = fmt.Errorf("%w; --at peak lists what it held before", err)
			}
			return nil, err
		}
		l.ended = o.source.file != ""
		return l, nil
	}
	of := at.of(o.source.file)
	var l *listing
	var failed error
	var moments []dumpMoment
	// at the peak each region of each chip is of another time
	w, state, err := visit(o.source.file, []moment{at}, everyEvent, func(*event.Event) {}, func(_ int, s *aggregate.State, wanted wantedFunc) {
		for _, some := range filter.split(s, wanted) {
			if failed != nil {
				return
			}
			one, err := newListing(&present{State: s, nowNs: s.Snapshot().TimeNs, of: of}, some, rules)
			if err == nil && at.peak {
				moments = append(moments, momentOf(&some, one.snap))
			}
			if err != nil || l == nil {
				l, failed = one, err
				continue
			}
			l.rows, l.all, l.nowNs, l.snap = append(l.rows, one.rows...), l.all+one.all, one.nowNs, one.snap
			l.there = max(l.there, one.there)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, cmp.Or(o.source.missing(), err)
	}
	if l == nil { // nothing of these regions was ever there
		return newListing(&present{State: state, nowNs: state.Snapshot().TimeNs, of: of, notes: w.notes, failed: w.failed}, filter, rules)
	}
	l.notes, l.failed, l.filter, l.moments = w.notes, w.failed, filter, moments
	return l, nil
}

// split is the filter with only what is wanted: several, where that is not the same
// regions of all chips.
func (f *dumpFilter) split(s *aggregate.State, wanted wantedFunc) (list []dumpFilter) {
	var all, devices []int
	for _, d := range s.Snapshot().Devices {
		all = append(all, d.ID)
	}
	if all == nil {
		return []dumpFilter{*f}
	}
	for _, region := range shownRegions {
		if len(f.regions) > 0 && !slices.Contains(f.regions, region) {
			continue
		}
		devices = slices.DeleteFunc(slices.Clone(all), func(id int) bool {
			return !wanted(id, region) || len(f.devices) > 0 && !slices.Contains(f.devices, id)
		})
		switch {
		case len(devices) == 0:
			continue
		case len(devices) == len(all):
			devices = f.devices // also what is on no known chip
		}
		same := slices.IndexFunc(list, func(other dumpFilter) bool { return slices.Equal(other.devices, devices) })
		if same < 0 {
			same = len(list)
			one := *f
			one.devices, one.regions = devices, nil
			list = append(list, one)
		}
		list[same].regions = append(list[same].regions, region)
	}
	return list
}

// momentOf is when what a filter lets through is listed.
func momentOf(f *dumpFilter, snap *aggregate.Snapshot) dumpMoment {
	m := dumpMoment{Devices: f.devices, TimeNs: snap.TimeNs}
	for _, region := range f.regions {
		m.Regions = append(m.Regions, region.String())
	}
	for i := range snap.Devices {
		if f.devices == nil {
			m.Devices = append(m.Devices, snap.Devices[i].ID)
		}
	}
	return m
}
