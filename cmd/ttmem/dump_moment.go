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
	"ttmem/cmd/ttmem/source"
)

// list is what is live at a moment.
func (o *dumpOptions) list(at source.Moment, filter alloc.Filter, rules *name.Rules) (*dump.List, error) {
	if at.AtEnd() {
		s, err := o.source.Now()
		if err != nil {
			return nil, err
		}
		l, err := newListing(s, filter, rules)
		if err != nil {
			if missing := o.source.Missing(); missing != nil {
				return nil, missing
			}
			if o.source.File != "" && len(filter.PIDs) > 0 {
				err = fmt.Errorf("%w; --at peak lists what it held before", err)
			}
			return nil, err
		}
		l.Ended = o.source.File != ""
		return l, nil
	}
	of := at.Of(o.source.File)
	var l *dump.List
	var failed error
	var moments []dump.Moment
	// each region of each chip has its peak at a time of its own
	recording := source.Recording{Path: o.source.File}
	err := recording.StateAt(at, func(s *aggregate.State, regions source.Regions) {
		for _, some := range splitFilter(&filter, s, regions) {
			if failed != nil {
				return
			}
			one, err := newListing(&source.State{State: s, NowNs: s.Now(), Of: of}, some, rules)
			if err == nil && at.Kind == source.Peak {
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
		return nil, cmp.Or(o.source.Missing(), err)
	}
	end, summary, err := recording.End()
	switch {
	case err != nil:
		return nil, err
	case l == nil: // nothing was ever allocated in these regions
		return newListing(&source.State{State: end, NowNs: end.Now(), Of: of, Notes: summary.Notes, Failed: summary.Failed}, filter, rules)
	}
	l.Notes, l.Failed, l.Filter, l.Moments = summary.Notes, summary.Failed, filter, moments
	return l, nil
}

// splitFilter is the filter with only some regions: several filters if these are not the same
// of all chips.
func splitFilter(f *alloc.Filter, s *aggregate.State, some source.Regions) (list []alloc.Filter) {
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
			return !some(id, region) || len(f.Devices) > 0 && !slices.Contains(f.Devices, id)
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

// momentOf is the time of what a filter lets through.
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
