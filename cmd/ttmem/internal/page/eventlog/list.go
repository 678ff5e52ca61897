// Package eventlog lists events, with notes on them.
package eventlog

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// maxSites is the maximum number of call stacks with remembered names.
const maxSites = 1 << 16

// Options configure the list of events.
type Options struct {
	Stacks, JSON bool
	// AllFrames is true if stacks are not folded: see name.Fold.
	AllFrames bool
	// Limit selects the newest events, and with LiveNs also those after it; 0: all.
	Limit int
	// LiveNs is when live events begin: earlier ones happened before the command.
	LiveNs uint64
	// Clock relates times to the wall clock. UTC prints them so.
	Clock page.Clock
	UTC   bool
}

// A Log lists events.
type Log struct {
	Options
	history *analyze.History
	Filter  *Filter
	names   *alloc.Namer
	sites   map[uint64]*site
	layout  page.Layout
	write   func([]byte)
	head    bool // was written
	// Begin is the time of the first event, which may be a checkpoint, as for all moments: see
	// source.Recording.Times. Last is the time of the latest.
	begun        bool
	Begin, Last  uint64
	Seen, Listed uint64
	seen         seen
	supplement   *page.Supplement
	// newest are the last events up to the limit, the oldest at next.
	newest []listedEvent
	next   int
	line   []byte
}

// A site is a call stack with its names, and the title made of them.
type site struct {
	*alloc.Site
	title string
}

type listedEvent struct {
	event.Event
	note analyze.Note
}

func New(o Options, f *Filter, rules *name.Rules, layout page.Layout, write func([]byte)) *Log {
	return &Log{
		Options: o, history: analyze.NewHistory(), Filter: f, layout: layout, write: write,
		names: &alloc.Namer{Rules: rules, Filter: alloc.Filter{Grep: f.Grep}},
		sites: make(map[uint64]*site), supplement: page.NewSupplement(o.Clock),
		seen: seen{make(map[event.Kind]bool), make(map[event.Region]bool), make(map[string]bool), 0, 0},
	}
}

// SetClock sets the clock of the events.
func (l *Log) SetClock(c page.Clock) { l.supplement.Clock = c }

// State returns the state after the latest event.
func (l *Log) State() *aggregate.State { return l.history.State }

// Handle lists the event, after those that it implies, if it is selected.
func (l *Log) Handle(e *event.Event) { l.history.Apply(e, l.each) }

func (l *Log) each(e *event.Event, n *analyze.Note) {
	if !l.begun {
		l.begun, l.Begin = true, e.TimeNs
	}
	l.Last = max(l.Last, e.TimeNs)
	if e.Kind == event.Checkpoint {
		l.supplement.Add(l.history.Totals().Processes)
		return // existing memory did not happen now
	}
	l.Seen++
	l.seen.add(e, n)
	l.supplement.Apply(e)
	if l.Limit > 0 && l.LiveNs > 0 && e.TimeNs >= l.LiveNs {
		l.End()
		l.Limit = 0
	}
	if !l.Filter.passes(e, n, l.Begin, l.site) {
		return
	}
	if l.Limit == 0 {
		l.list(e, n)
		return
	}
	one := listedEvent{*e, *n}
	one.Devices, one.Cores = slices.Clone(e.Devices), slices.Clone(e.Cores)
	if len(l.newest) < l.Limit {
		l.newest = append(l.newest, one)
		return
	}
	l.newest[l.next] = one
	l.next = (l.next + 1) % l.Limit
}

// End lists the newest events.
func (l *Log) End() {
	for i := range l.newest {
		one := &l.newest[(l.next+i)%len(l.newest)]
		l.list(&one.Event, &one.note)
	}
	l.newest, l.next = nil, 0
}

func (l *Log) list(e *event.Event, n *analyze.Note) {
	l.Listed++
	if l.JSON {
		l.line = append(document.Append(l.line[:0], l.record(e, n), l.supplement), '\n')
	} else {
		l.line = l.appendText(l.line[:0], e, n)
	}
	l.write(l.line)
}

// site returns a call stack with its names. Many occur again and again.
func (l *Log) site(stack *event.Stack) *site {
	id := memory.StackID(stack)
	s := l.sites[id]
	if s == nil {
		if len(l.sites) >= maxSites {
			clear(l.sites)
		}
		s = &site{Site: l.names.NewSite(stack)}
		s.title = l.names.Title(&alloc.Row{Site: s.Site, Region: event.CB}, l.layout.Separator())
		l.sites[id] = s
	}
	return s
}

// nameOf is the name of an allocation at a call stack, in a region.
func (l *Log) nameOf(region event.Region, stack *event.Stack, before bool) string {
	s := l.site(stack)
	row := alloc.Row{Site: s.Site, Region: region, BeforeAttach: before}
	if before || row.Class().Mention() != "" {
		return l.names.Title(&row, l.layout.Separator())
	}
	return s.title
}
