package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate"
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
func notesOf(n *aggregate.Note) (names []string) {
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
	// met are the chips that there were, for who asked for another one
	met map[int]bool
}

// passes reports whether the event is asked for. begin is the time of the first one.
func (f *logFilter) passes(e *event.Event, n *aggregate.Note, begin uint64, siteOf func(*event.Stack) *site) bool {
	if !slices.Contains(logKinds, e.Kind) {
		return false // of a checkpoint
	}
	passed := e.TimeNs - min(begin, e.TimeNs)
	if passed < f.since || f.until > 0 && passed > f.until {
		return false
	}
	if len(f.kinds) > 0 && !slices.Contains(f.kinds, e.Kind) || !f.passesPlace(e) {
		return false
	}
	if len(f.notes) > 0 && !slices.ContainsFunc(notesOf(n), func(name string) bool { return slices.Contains(f.notes, name) }) {
		return false
	}
	if f.grep == nil {
		return true
	}
	for _, text := range []string{e.Message, e.Command, e.Cause, e.Comm} {
		if text != "" && f.grep.MatchString(text) {
			return true
		}
	}
	if e.Stack != nil && siteOf(e.Stack).matches {
		return true
	}
	b := n.Ended()
	return b != nil && b.Stack != nil && siteOf(b.Stack).matches
}

// passesPlace reports whether the event is of what is asked for by place.
func (f *logFilter) passesPlace(e *event.Event) bool {
	if len(f.devices) > 0 {
		if f.met == nil {
			f.met = make(map[int]bool)
		}
		found := false
		for _, id := range e.Devices {
			f.met[id] = true
			found = found || slices.Contains(f.devices, id)
		}
		if !found {
			return false
		}
	}
	if len(f.regions) > 0 && !(hasRegion(e.Kind) && slices.Contains(f.regions, regionOf(e))) {
		return false
	}
	buffer := e.Kind == event.Alloc || e.Kind == event.Free
	if len(f.buffers) > 0 && !(buffer && slices.Contains(f.buffers, e.BufferID)) ||
		len(f.objects) > 0 && !(buffer && slices.Contains(f.objects, e.Object)) {
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
	switch {
	case len(f.devices) > 0 && len(f.met) == 0:
		return ": no chip is used"
	case len(f.devices) > 0 && !slices.ContainsFunc(f.devices, func(id int) bool { return f.met[id] }):
		return fmt.Sprintf(": there is %s", formatIDs(slices.Sorted(maps.Keys(f.met))))
	case f.since > 0 && l.last-l.begin < f.since:
		return fmt.Sprintf(": the last is %s after the first", formatSeconds(l.last-l.begin))
	case len(f.addresses) > 0 && len(f.regions) == 0 && len(f.buffers)+len(f.objects) == 0:
		return ": addresses are those of the banks, as `ttmem dump` shows them; --object takes those in the process"
	case len(f.kinds) > 0 && len(l.kinds) > 0:
		var names []string
		for _, k := range logKinds {
			if l.kinds[k] > 0 {
				names = append(names, k.String())
			}
		}
		return ": there are " + strings.Join(names, ", ")
	}
	return ""
}
