package eventlog

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// The names of notes on an event.
const (
	NoteDoubleFree = "double_free"
	NoteUnseen     = "unseen_free"
	NoteReplaced   = "replaced"
	NoteReuse      = "reuse"
)

var NoteNames = []string{NoteDoubleFree, NoteUnseen, NoteReplaced, NoteReuse}

func notesOf(n *analyze.Note) (names []string) {
	for i, there := range []bool{n.Freed != nil, n.Unseen, n.Replaced != nil, n.Earlier != nil} {
		if there {
			names = append(names, NoteNames[i])
		}
	}
	return names
}

// Filter is the selection of events by flags.
type Filter struct {
	Devices            []int
	Regions            []event.Region
	Kinds              []event.Kind
	Notes              []string
	Addresses, Objects []uint64
	Buffers            []uint64
	Grep               *regexp.Regexp
	Times              memory.Intervals // in ns after the first event; nil: all
	// Frequent lists runs of programs, the host's transfers and samples of its memory also if Kinds does not name them.
	Frequent bool
}

// Until returns the end of the last of the times.
func (f *Filter) Until() uint64 {
	if f.Times == nil {
		return math.MaxUint64
	}
	return f.Times[len(f.Times)-1].ToNs
}

// seen has the values that occurred, so that an error can suggest them if nothing matches.
type seen struct {
	kinds       map[event.Kind]bool
	regions     map[event.Region]bool
	notes       map[string]bool
	first, last uint64 // ids of buffers; 0: none
}

func (s *seen) add(e *event.Event, n *analyze.Note) {
	s.kinds[e.Kind] = true
	if hasRegion(e.Kind) {
		s.regions[regionOf(e)] = true
	}
	for _, name := range notesOf(n) {
		s.notes[name] = true
	}
	if isBuffer(e) {
		s.last = max(s.last, e.BufferID)
		if s.first == 0 || e.BufferID < s.first {
			s.first = e.BufferID
		}
	}
}

func isBuffer(e *event.Event) bool { return e.Kind == event.Alloc || e.Kind == event.Free }

func anyOf[T comparable](values, list []T) bool {
	return slices.ContainsFunc(values, func(v T) bool { return slices.Contains(list, v) })
}

// passes reports whether an event is selected. begin is the time of the first one.
func (f *Filter) passes(e *event.Event, n *analyze.Note, begin uint64, siteOf func(*event.Stack) *site) bool {
	if !slices.Contains(Kinds, e.Kind) {
		return false // an event of a checkpoint
	}
	if slices.Contains(frequent, e.Kind) && !f.Frequent && !slices.Contains(f.Kinds, e.Kind) {
		return false // a model runs more programs than all else that it does, and samples come all the time
	}
	passed := e.TimeNs - min(begin, e.TimeNs)
	if !f.Times.Has(passed) {
		return false
	}
	if !f.passesPlace(e) {
		return false
	}
	if len(f.Kinds)+len(f.Notes) > 0 && !slices.Contains(f.Kinds, e.Kind) && !anyOf(f.Notes, notesOf(n)) {
		return false
	}
	if f.Grep == nil {
		return true
	}
	for _, text := range []string{e.Message, e.Started().Command, e.Cause, e.Comm} {
		if text != "" && f.Grep.MatchString(text) {
			return true
		}
	}
	b := n.Ended
	return e.Stack != nil && siteOf(e.Stack).Matches || b != nil && b.Stack != nil && siteOf(b.Stack).Matches
}

// passesPlace reports whether the chips, the region and the addresses of an event are selected.
func (f *Filter) passesPlace(e *event.Event) bool {
	switch {
	case len(f.Devices) > 0 && !anyOf(f.Devices, e.Devices):
		return false
	case len(f.Regions) > 0 && !(hasRegion(e.Kind) && slices.Contains(f.Regions, regionOf(e))):
		return false
	case len(f.Buffers)+len(f.Objects) > 0 &&
		!(isBuffer(e) && (slices.Contains(f.Buffers, e.BufferID) || slices.Contains(f.Objects, e.Object))):
		return false
	case len(f.Addresses) == 0:
		return true
	case e.Kind == event.CBAlloc:
		return within(f.Addresses, e.Address, e.SizeBytes)
	}
	return isBuffer(e) && within(f.Addresses, e.Address, e.BytesPerBank)
}

// within reports whether one of the addresses is among the bytes.
func within(addresses []uint64, start, bytes uint64) bool {
	return slices.ContainsFunc(addresses, func(a uint64) bool { return a >= start && a-start < max(bytes, 1) })
}

func hasRegion(k event.Kind) bool { return k >= event.Alloc && k <= event.KernelUnload }

func regionOf(e *event.Event) event.Region {
	switch e.Kind {
	case event.CBAlloc, event.CBFree:
		return event.CB
	case event.KernelLoad, event.KernelUnload:
		return event.Kernel
	}
	return e.Region
}

// Hint suggests other selections if nothing was found.
func (l *Log) Hint() string {
	f, seen := l.Filter, &l.seen
	available := func(names []string) string { return "; available: " + strings.Join(names, ", ") }
	devices := l.history.Totals().DeviceIDs()
	switch {
	case len(f.Devices) > 0 && len(devices) == 0:
		return ": no chip is used"
	case len(f.Devices) > 0 && !anyOf(f.Devices, devices):
		return "; available: " + page.Chips(devices)
	case f.Times != nil && l.Last-l.Begin < f.Times[0].FromNs:
		return fmt.Sprintf(": the last is %s after the first", page.Seconds(l.Last-l.Begin))
	case len(f.Regions) > 0 && !anyOf(f.Regions, slices.Collect(maps.Keys(seen.regions))):
		return available(alloc.RegionNames(slices.DeleteFunc(slices.Clone(Regions), func(r event.Region) bool { return !seen.regions[r] })))
	case len(f.Buffers) > 0 && seen.last > 0 && !slices.ContainsFunc(f.Buffers, func(id uint64) bool { return id >= seen.first && id <= seen.last }):
		return fmt.Sprintf(": buffers are from %d to %d, as in the column \"buffer\"", seen.first, seen.last)
	case len(f.Objects) > 0 && len(f.Addresses) == 0:
		return ": --buffer takes addresses of the column \"Buffer at\"; --address takes addresses in banks"
	case len(f.Addresses) > 0 && len(f.Regions) == 0 && len(f.Buffers)+len(f.Objects) == 0:
		return ": --address takes addresses in banks, as `ttmem dump` shows them; --buffer takes addresses in the process"
	case len(f.Kinds) > 0 && !anyOf(f.Kinds, slices.Collect(maps.Keys(seen.kinds))):
		return available(kindNames(func(k event.Kind) bool { return seen.kinds[k] }))
	case len(f.Notes) > 0 && len(seen.notes) > 0 && !anyOf(f.Notes, slices.Collect(maps.Keys(seen.notes))):
		return "; available notes: " + strings.Join(slices.Sorted(maps.Keys(seen.notes)), ", ")
	case len(f.Notes) > 0:
		return ": these events have no such notes"
	case f.Grep != nil:
		return ": --grep matches names such as ttnn.add, calls as FILE:LINE FUNCTION, and messages; (?i) ignores case"
	}
	return ""
}

// frequent are the kinds of events that are not listed unless they are named.
var frequent = []event.Kind{event.ProgramRun, event.HostMemory, event.BufferWrite, event.BufferRead}

// Kinds are the kinds of events that can be listed.
var Kinds = []event.Kind{
	event.Alloc, event.Free, event.AllocFailed, event.CBAlloc, event.CBFree, event.KernelLoad, event.KernelUnload,
	event.DeviceOpen, event.DeviceClose, event.ProcessStart, event.ProcessExit, event.Lost, event.Mark, event.Reread, event.ProgramRun, event.Owner, event.OperationFailed,
	event.TraceBegin, event.TraceEnd, event.TraceReplay, event.TraceRelease, event.HostMemory, event.BufferWrite, event.BufferRead,
}

// Regions are the regions of events.
var Regions = append(slices.Clone(alloc.Regions), event.Kernel)

// KindNames are the names of all Kinds.
func KindNames() []string { return kindNames(func(event.Kind) bool { return true }) }

func kindNames(of func(event.Kind) bool) (names []string) {
	for _, k := range Kinds {
		if of(k) {
			names = append(names, k.String())
		}
	}
	return names
}
