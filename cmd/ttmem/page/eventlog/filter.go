package eventlog

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

// The names of notes on an event.
const (
	NoteDoubleFree = "double_free"
	NoteUnseen     = "unseen_free"
	NoteReplaced   = "replaced"
	NoteOverlap    = "overlap"
	NoteReuse      = "reuse"
)

var NoteNames = []string{NoteDoubleFree, NoteUnseen, NoteReplaced, NoteOverlap, NoteReuse}

// notesOf are the names of the notes on an event.
func notesOf(n *analyze.Note) (names []string) {
	if n.Freed != nil {
		names = append(names, NoteDoubleFree)
	}
	if n.Unseen {
		names = append(names, NoteUnseen)
	}
	if n.Replaced() != nil {
		names = append(names, NoteReplaced)
	}
	if n.Overlapped() != nil {
		names = append(names, NoteOverlap)
	}
	if n.Earlier != nil {
		names = append(names, NoteReuse)
	}
	return names
}

// Filter is the events that flags select.
type Filter struct {
	Devices            []int
	Regions            []event.Region
	Kinds              []event.Kind
	Notes              []string
	Addresses, Objects []uint64
	Buffers            []uint64
	Grep               *regexp.Regexp
	Since, Until       uint64 // ns after the first event; 0: without end
	// seen is what an error can offer if nothing matches. It has only what the flags
	// select by.
	seen seenByFilter
}

// seenByFilter is what a filter has seen.
type seenByFilter struct {
	devices     map[int]bool
	regions     [event.NumRegions]bool
	notes       map[string]bool
	first, last uint64 // ids of buffers; 0: none
}

// passes reports whether an event is selected. begin is the time of the first one.
func (f *Filter) passes(e *event.Event, n *analyze.Note, begin uint64, siteOf func(*event.Stack) *alloc.Site) bool {
	if !slices.Contains(Kinds, e.Kind) {
		return false // of a checkpoint
	}
	passed := e.TimeNs - min(begin, e.TimeNs)
	if passed < f.Since || f.Until > 0 && passed > f.Until {
		return false
	}
	if !f.passesPlace(e) {
		return false
	}
	if len(f.Kinds)+len(f.Notes) > 0 {
		noted := f.passesNotes(notesOf(n))
		if !noted && !slices.Contains(f.Kinds, e.Kind) {
			return false
		}
	}
	if f.Grep == nil {
		return true
	}
	for _, text := range []string{e.Message, e.Command, e.Cause, e.Comm} {
		if text != "" && f.Grep.MatchString(text) {
			return true
		}
	}
	if e.Stack != nil && siteOf(e.Stack).Matches {
		return true
	}
	b := n.Ended()
	return b != nil && b.Stack != nil && siteOf(b.Stack).Matches
}

// passesNotes reports whether one of the notes is selected.
func (f *Filter) passesNotes(names []string) (found bool) {
	if f.seen.notes == nil {
		f.seen.notes = make(map[string]bool)
	}
	for _, name := range names {
		f.seen.notes[name] = true
		found = found || slices.Contains(f.Notes, name)
	}
	return found
}

// passesPlace reports whether the chips, the region and the addresses of an event are selected.
func (f *Filter) passesPlace(e *event.Event) bool {
	if len(f.Devices) > 0 {
		if f.seen.devices == nil {
			f.seen.devices = make(map[int]bool)
		}
		found := false
		for _, id := range e.Devices {
			f.seen.devices[id] = true
			found = found || slices.Contains(f.Devices, id)
		}
		if !found {
			return false
		}
	}
	if len(f.Regions) > 0 {
		if !hasRegion(e.Kind) {
			return false
		}
		region := regionOf(e)
		f.seen.regions[region] = true
		if !slices.Contains(f.Regions, region) {
			return false
		}
	}
	buffer := e.Kind == event.Alloc || e.Kind == event.Free
	if len(f.Buffers) > 0 && buffer {
		f.seen.last = max(f.seen.last, e.BufferID)
		if f.seen.first == 0 || e.BufferID < f.seen.first {
			f.seen.first = e.BufferID
		}
	}
	if len(f.Buffers)+len(f.Objects) > 0 &&
		!(buffer && (slices.Contains(f.Buffers, e.BufferID) || slices.Contains(f.Objects, e.Object))) {
		return false
	}
	if len(f.Addresses) == 0 {
		return true
	}
	if e.Kind == event.CBAlloc {
		return within(f.Addresses, e.Address, e.SizeBytes)
	}
	return buffer && within(f.Addresses, e.Address, e.BytesPerBank)
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

// Hint says what could be selected instead, if nothing was found.
func (l *Log) Hint() string {
	f := l.Filter
	has := func(names []string) bool { return len(names) > 0 }
	switch devices, regions, notes := slices.Sorted(maps.Keys(f.seen.devices)), f.seen.regionNames(), slices.Sorted(maps.Keys(f.seen.notes)); {
	case len(f.Devices) > 0 && len(devices) == 0:
		return ": no chip is used"
	case len(f.Devices) > 0 && !slices.ContainsFunc(f.Devices, func(id int) bool { return f.seen.devices[id] }):
		return fmt.Sprintf("; available: %s", page.Chips(devices))
	case f.Since > 0 && l.Last-l.Begin < f.Since:
		return fmt.Sprintf(": the last is %s after the first", page.Seconds(l.Last-l.Begin))
	case has(regions) && !slices.ContainsFunc(f.Regions, func(r event.Region) bool { return f.seen.regions[r] }):
		return "; available: " + strings.Join(regions, ", ")
	case f.seen.last > 0 && !slices.ContainsFunc(f.Buffers, func(id uint64) bool { return id >= f.seen.first && id <= f.seen.last }):
		return fmt.Sprintf(": buffers are from %d to %d, as in the column \"buffer\"", f.seen.first, f.seen.last)
	case len(f.Objects) > 0 && len(f.Addresses) == 0:
		return ": pointers are those of the column \"Buffer at\"; --address takes those in the banks"
	case len(f.Addresses) > 0 && len(f.Regions) == 0 && len(f.Buffers)+len(f.Objects) == 0:
		return ": addresses are those of the banks, as `ttmem dump` shows them; --buffer takes those in the process"
	case len(f.Kinds) > 0 && !slices.ContainsFunc(f.Kinds, func(k event.Kind) bool { return l.kinds[k] > 0 }):
		var names []string
		for _, k := range Kinds {
			if l.kinds[k] > 0 {
				names = append(names, k.String())
			}
		}
		return "; available: " + strings.Join(names, ", ")
	case len(f.Notes) > 0 && !has(notes):
		return ": these events have no notes"
	case len(f.Notes) > 0 && !slices.ContainsFunc(f.Notes, func(name string) bool { return f.seen.notes[name] }):
		return "; available notes: " + strings.Join(notes, ", ")
	case f.Grep != nil:
		return ": --grep is compared with names such as ttnn.add, calls as FILE:LINE FUNCTION, and messages; (?i) ignores case"
	}
	return ""
}

// regionNames are the regions that were seen.
func (m *seenByFilter) regionNames() (names []string) {
	for _, region := range Regions {
		if m.regions[region] {
			names = append(names, region.String())
		}
	}
	return names
}

// Kinds are the kinds of events that can be listed.
var Kinds = []event.Kind{
	event.Alloc, event.Free, event.AllocFailed, event.CBAlloc, event.CBFree, event.KernelLoad, event.KernelUnload,
	event.DeviceOpen, event.DeviceClose, event.ProcessStart, event.ProcessExit, event.Lost, event.Mark,
}

// Regions are the regions that events are of.
var Regions = append(slices.Clone(alloc.Regions), event.Kernel)

func KindNames() (names []string) {
	for _, k := range Kinds {
		names = append(names, k.String())
	}
	return names
}
