package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/cmd/ttmem/page/dump"
)

// list is what there is to list at the moment that the options name.
func (o *dumpOptions) list(at moment, filter alloc.Filter, rules *name.Rules) (*dump.List, error) {
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
			if o.source.file != "" && len(filter.PIDs) > 0 {
				err = fmt.Errorf("%w; --at peak lists what it held before", err)
			}
			return nil, err
		}
		l.Ended = o.source.file != ""
		return l, nil
	}
	of := at.of(o.source.file)
	var l *dump.List
	var failed error
	var moments []dump.Moment
	// at the peak each region of each chip is of another time
	w, state, err := visit(o.source.file, []moment{at}, everyEvent, nil, func(_ int, s *aggregate.State, wanted wantedFunc) {
		for _, some := range splitFilter(&filter, s, wanted) {
			if failed != nil {
				return
			}
			one, err := newListing(&present{State: s, nowNs: s.Snapshot().TimeNs, of: of}, some, rules)
			if err == nil && at.peak {
				moments = append(moments, momentOf(&some, one.Snap))
			}
			if err != nil || l == nil {
				l, failed = one, err
				continue
			}
			l.Rows, l.All, l.NowNs, l.Snap = append(l.Rows, one.Rows...), l.All+one.All, one.NowNs, one.Snap
			l.There = max(l.There, one.There)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, cmp.Or(o.source.missing(), err)
	}
	if l == nil { // nothing of these regions was ever there
		return newListing(&present{State: state, nowNs: state.Snapshot().TimeNs, of: of, notes: w.notes, failed: w.failed}, filter, rules)
	}
	l.Notes, l.Failed, l.Filter, l.Moments = w.notes, w.failed, filter, moments
	return l, nil
}

// splitFilter is the filter with only what is wanted: several, where that is not the same
// regions of all chips.
func splitFilter(f *alloc.Filter, s *aggregate.State, wanted wantedFunc) (list []alloc.Filter) {
	var all, devices []int
	for _, d := range s.Snapshot().Devices {
		all = append(all, d.ID)
	}
	if all == nil {
		return []alloc.Filter{*f}
	}
	for _, region := range alloc.Regions {
		if len(f.Regions) > 0 && !slices.Contains(f.Regions, region) {
			continue
		}
		devices = slices.DeleteFunc(slices.Clone(all), func(id int) bool {
			return !wanted(id, region) || len(f.Devices) > 0 && !slices.Contains(f.Devices, id)
		})
		switch {
		case len(devices) == 0:
			continue
		case len(devices) == len(all):
			devices = f.Devices // also what is on no known chip
		}
		same := slices.IndexFunc(list, func(other alloc.Filter) bool { return slices.Equal(other.Devices, devices) })
		if same < 0 {
			same = len(list)
			one := *f
			one.Devices, one.Regions = devices, nil
			list = append(list, one)
		}
		list[same].Regions = append(list[same].Regions, region)
	}
	return list
}

// momentOf is when what a filter lets through is listed.
func momentOf(f *alloc.Filter, snap *aggregate.Snapshot) dump.Moment {
	m := dump.Moment{Devices: f.Devices, TimeNs: snap.TimeNs}
	for _, region := range f.Regions {
		m.Regions = append(m.Regions, region.String())
	}
	for i := range snap.Devices {
		if f.Devices == nil {
			m.Devices = append(m.Devices, snap.Devices[i].ID)
		}
	}
	return m
}
