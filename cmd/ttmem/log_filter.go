package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// The names of what can be noted of an event.
const (
	noteDoubleFree = "double_free"
	noteUnseen     = "unseen_free"
	noteReplaced   = "replaced"
	noteOverlap    = "overlap"
	noteReuse      = "reuse"
)

var noteNames = []string{noteDoubleFree, noteUnseen, noteReplaced, noteOverlap, noteReuse}

// notesOf are the names of what is noted of an event.
func notesOf(n *analyze.Note) (names []string) {
	if n.Freed != nil {
		names = append(names, noteDoubleFree)
	}
	if n.Unseen {
		names = append(names, noteUnseen)
	}
	if n.Replaced() != nil {
		names = append(names, noteReplaced)
	}
	if n.Overlapped() != nil {
		names = append(names, noteOverlap)
	}
	if n.Earlier != nil {
		names = append(names, noteReuse)
	}
	return names
}

// logFilter is what the flags let through, checked.
type logFilter struct {
	devices            []int
	regions            []event.Region
	kinds              []event.Kind
	notes              []string
	addresses, objects []uint64
	buffers            []uint64
	grep               *regexp.Regexp
	since, until       uint64 // ns after the first event; 0: without end
	// met are what there was, for who asked for something else: only what the flags
	// are of is noted
	met metByFilter
}

// metByFilter is what a filter met.
type metByFilter struct {
	devices     map[int]bool
	regions     [event.NumRegions]bool
	notes       map[string]bool
	first, last uint64 // ids of buffers; 0: none
}

// passes reports whether the event is asked for. begin is the time of the first one.
func (f *logFilter) passes(e *event.Event, n *analyze.Note, begin uint64, siteOf func(*event.Stack) *alloc.Site) bool {
	if !slices.Contains(logKinds, e.Kind) {
		return false // of a checkpoint
	}
	passed := e.TimeNs - min(begin, e.TimeNs)
	if passed < f.since || f.until > 0 && passed > f.until {
		return false
	}
	if !f.passesPlace(e) {
		return false
	}
	if len(f.kinds)+len(f.notes) > 0 {
		noted := f.passesNotes(notesOf(n))
		if !noted && !slices.Contains(f.kinds, e.Kind) {
			return false
		}
	}
	if f.grep == nil {
		return true
	}
	for _, text := range []string{e.Message, e.Command, e.Cause, e.Comm} {
		if text != "" && f.grep.MatchString(text) {
			return true
		}
	}
	if e.Stack != nil && siteOf(e.Stack).Matches {
		return true
	}
	b := n.Ended()
	return b != nil && b.Stack != nil && siteOf(b.Stack).Matches
}

// passesNotes reports whether one of the notes is asked for.
func (f *logFilter) passesNotes(names []string) (found bool) {
	if f.met.notes == nil {
		f.met.notes = make(map[string]bool)
	}
	for _, name := range names {
		f.met.notes[name] = true
		found = found || slices.Contains(f.notes, name)
	}
	return found
}

// passesPlace reports whether the event is of what is asked for by place.
func (f *logFilter) passesPlace(e *event.Event) bool {
	if len(f.devices) > 0 {
		if f.met.devices == nil {
			f.met.devices = make(map[int]bool)
		}
		found := false
		for _, id := range e.Devices {
			f.met.devices[id] = true
			found = found || slices.Contains(f.devices, id)
		}
		if !found {
			return false
		}
	}
	if len(f.regions) > 0 {
		if !hasRegion(e.Kind) {
			return false
		}
		region := regionOf(e)
		f.met.regions[region] = true
		if !slices.Contains(f.regions, region) {
			return false
		}
	}
	buffer := e.Kind == event.Alloc || e.Kind == event.Free
	if len(f.buffers) > 0 && buffer {
		f.met.last = max(f.met.last, e.BufferID)
		if f.met.first == 0 || e.BufferID < f.met.first {
			f.met.first = e.BufferID
		}
	}
	if len(f.buffers)+len(f.objects) > 0 &&
		!(buffer && (slices.Contains(f.buffers, e.BufferID) || slices.Contains(f.objects, e.Object))) {
		return false
	}
	if len(f.addresses) == 0 {
		return true
	}
	if e.Kind == event.CBAlloc {
		return within(f.addresses, e.Address, e.SizeBytes)
	}
	return buffer && within(f.addresses, e.Address, e.BytesPerBank)
}

// within reports whether one of the addresses is among the bytes.
func within(addresses []uint64, start, bytes uint64) bool {
	return slices.ContainsFunc(addresses, func(a uint64) bool { return a >= start && a-start < max(bytes, 1) })
}

// hasRegion reports whether events of the kind are of a region.
func hasRegion(k event.Kind) bool { return k >= event.Alloc && k <= event.KernelUnload }

// regionOf is the region of an event that has one.
func regionOf(e *event.Event) event.Region {
	switch e.Kind {
	case event.CBAlloc, event.CBFree:
		return event.CB
	case event.KernelLoad, event.KernelUnload:
		return event.Kernel
	}
	return e.Region
}

// hint is what else could be asked for where nothing was found.
func (f *logFilter) hint(l *eventLog) string {
	has := func(names []string) bool { return len(names) > 0 }
	switch devices, regions, notes := slices.Sorted(maps.Keys(f.met.devices)), f.met.regionNames(), slices.Sorted(maps.Keys(f.met.notes)); {
	case len(f.devices) > 0 && len(devices) == 0:
		return ": no chip is used"
	case len(f.devices) > 0 && !slices.ContainsFunc(f.devices, func(id int) bool { return f.met.devices[id] }):
		return fmt.Sprintf(": there is %s", page.Chips(devices))
	case f.since > 0 && l.last-l.begin < f.since:
		return fmt.Sprintf(": the last is %s after the first", page.Seconds(l.last-l.begin))
	case has(regions) && !slices.ContainsFunc(f.regions, func(r event.Region) bool { return f.met.regions[r] }):
		return ": there are events of " + strings.Join(regions, ", ")
	case f.met.last > 0 && !slices.ContainsFunc(f.buffers, func(id uint64) bool { return id >= f.met.first && id <= f.met.last }):
		return fmt.Sprintf(": buffers are from %d to %d, as in the column \"buffer\"", f.met.first, f.met.last)
	case len(f.objects) > 0 && len(f.addresses) == 0:
		return ": pointers are those of the column \"Buffer at\"; --address takes those in the banks"
	case len(f.addresses) > 0 && len(f.regions) == 0 && len(f.buffers)+len(f.objects) == 0:
		return ": addresses are those of the banks, as `ttmem dump` shows them; --buffer takes those in the process"
	case len(f.kinds) > 0 && !slices.ContainsFunc(f.kinds, func(k event.Kind) bool { return l.kinds[k] > 0 }):
		var names []string
		for _, k := range logKinds {
			if l.kinds[k] > 0 {
				names = append(names, k.String())
			}
		}
		return ": there are " + strings.Join(names, ", ")
	case len(f.notes) > 0 && !has(notes):
		return ": there is nothing to be noted of them"
	case len(f.notes) > 0 && !slices.ContainsFunc(f.notes, func(name string) bool { return f.met.notes[name] }):
		return ": there are notes of " + strings.Join(notes, ", ")
	case f.grep != nil:
		return ": --grep is compared with names such as ttnn.add, calls as FILE:LINE FUNCTION, and messages; (?i) ignores case"
	}
	return ""
}

// regionNames are the regions that were met.
func (m *metByFilter) regionNames() (names []string) {
	for _, region := range logRegions {
		if m.regions[region] {
			names = append(names, region.String())
		}
	}
	return names
}
