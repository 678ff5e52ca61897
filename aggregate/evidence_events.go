package aggregate

import (
	"slices"

	"ttmem/aggregate/addresses"
	"ttmem/tracer/event"
)

// The causes of Evidence events.
const (
	causeSpace    = "space"
	causeHeld     = "held"
	causeHolder   = "holder"
	causePlace    = "place"
	causeBlocking = "blocking"
	causeBlocker  = "blocker"
	causeStatic   = "static"
)

// evidence tells what there is of a failure, after it.
func (c *collector) evidence(f *Failure) {
	found := f.Evidence
	if found == nil {
		return
	}
	part := func(cause string, fill func(*event.Event)) {
		c.now(f.TimeNs, func(e *event.Event) {
			e.Kind, e.PID, e.TID, e.UID, e.Region, e.Cause = event.Evidence, f.PID, f.TID, f.UID, found.Region, cause
			fill(e)
		})
	}
	part(causeSpace, func(e *event.Event) {
		e.Capacities[found.Region] = found.Capacity
		e.SizeBytes, e.BytesPerBank = found.LargestFreeBytesPerBank, found.FreeBytesPerBank
		e.Address = found.Lowest
	})
	blame := func(cause string, list ...Blame) {
		for i := range list {
			l := &list[i]
			part(cause, func(e *event.Event) {
				e.Address, e.SizeBytes = l.Address, l.End-l.Address
				e.BytesPerBank, e.Count, e.Stack, e.BeforeAttach = l.BytesPerBank, l.Count, l.Stack, l.BeforeAttach
			})
		}
	}
	blame(causeHeld, found.Held)
	blame(causeHolder, found.Holders...)
	part(causePlace, func(e *event.Event) { e.Address, e.SizeBytes = found.From, found.To-found.From })
	blame(causeBlocking, found.Blocking)
	blame(causeBlocker, found.Blockers...)
	for i := range found.Statics {
		s := &found.Statics[i]
		part(causeStatic, func(e *event.Event) {
			e.Address, e.SizeBytes, e.Cores, e.StaticKind = s.Address, s.BytesPerCore, s.Cores, s.Kind
			e.ProgramID, e.Devices, e.Stack, e.BeforeAttach = s.ProgramID, []int{s.Device}, s.Stack, s.BeforeAttach
		})
	}
}

// addEvidence adds to the latest failure, which the checkpoint told before.
func (s *State) addEvidence(e *event.Event) {
	n := len(s.failures.list)
	if n == 0 || s.failures.list[n-1].PID != e.PID || s.failures.list[n-1].TimeNs != e.TimeNs ||
		int(e.Region) >= event.BankedRegions {
		s.anomalies.MalformedEvents++
		return
	}
	f := &s.failures.list[n-1]
	// Snapshots share what was there before.
	found := &Evidence{Region: e.Region}
	if f.Evidence != nil && e.Cause != causeSpace {
		*found = *f.Evidence
	}
	l := Blame{
		BytesPerBank: e.BytesPerBank, Count: e.Count, Address: e.Address, End: e.Address + e.SizeBytes,
		BeforeAttach: e.BeforeAttach, Stack: e.Stack,
	}
	switch e.Cause {
	case causeSpace:
		found.Capacity, found.Lowest = e.Capacities[e.Region], e.Address
		found.FreeSpace = addresses.FreeSpace{FreeBytesPerBank: e.BytesPerBank, LargestFreeBytesPerBank: e.SizeBytes}
	case causeHeld:
		found.Held = l
	case causeHolder:
		found.Holders = append(slices.Clip(found.Holders), l)
	case causePlace:
		found.From, found.To = l.Address, l.End
	case causeBlocking:
		found.Blocking = l
	case causeBlocker:
		found.Blockers = append(slices.Clip(found.Blockers), l)
	case causeStatic:
		device := 0
		if len(e.Devices) > 0 {
			device = e.Devices[0]
		}
		found.Statics = append(slices.Clip(found.Statics), Static{
			PID: e.PID, Device: device, ProgramID: e.ProgramID, Cores: slices.Clone(e.Cores),
			Address: e.Address, BytesPerCore: e.SizeBytes, Kind: e.StaticKind,
			BeforeAttach: e.BeforeAttach, Stack: e.Stack,
		})
	default:
		s.anomalies.MalformedEvents++
		return
	}
	f.Evidence = found
}

// settle looks up the names of its call stacks.
func (found *Evidence) settle() {
	if found == nil {
		return
	}
	for _, list := range [][]Blame{found.Holders, found.Blockers} {
		for i := range list {
			list[i].Stack.Calls()
		}
	}
	for i := range found.Statics {
		found.Statics[i].Stack.Calls()
	}
}
