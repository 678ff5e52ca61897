package main

import (
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// maxSites is how many call stacks a log has names of at a time.
const maxSites = 1 << 16

// eventLog lists events.
type eventLog struct {
	history *analyze.History
	filter  *logFilter
	names   *alloc.Namer // which names call stacks
	sites   map[uint64]*alloc.Site
	titles  map[titleKey]string // of sites
	layout  page.Layout
	out     *output.Lines
	stacks  bool
	json    bool
	head    bool // it is written
	// begin is the time of the first event and last that of the latest.
	begin, last  uint64
	seen, listed uint64
	kinds        map[event.Kind]uint64
	// keep is how many events are kept in place of being listed, as long as they are
	// from before the time from or are in a file: those in kept, the oldest at next.
	keep int
	from uint64
	live bool
	kept []keptEvent
	next int
	line []byte
}

// A titleKey tells apart what allocations are called.
type titleKey struct {
	stack  uint64
	before bool
}

type keptEvent struct {
	event.Event
	note analyze.Note
}

func newEventLog(o *logOptions, f *logFilter, rules *name.Rules, layout page.Layout, out *output.Lines) *eventLog {
	return &eventLog{
		history: analyze.NewHistory(), filter: f, layout: layout, out: out, stacks: o.stacks, json: o.json,
		names: &alloc.Namer{Rules: rules, Filter: alloc.Filter{Grep: f.grep}},
		sites: make(map[uint64]*alloc.Site), titles: make(map[titleKey]string), kinds: make(map[event.Kind]uint64),
		keep: o.n, live: o.source.file == "" && len(o.source.command) == 0,
	}
}

// handle lists the event, after those that it implies, if it is asked for.
func (l *eventLog) handle(e *event.Event) { l.history.Apply(e, l.each) }

func (l *eventLog) each(e *event.Event, n *analyze.Note) {
	if l.seen == 0 {
		l.begin = e.TimeNs
	}
	l.seen++
	l.last = max(l.last, e.TimeNs)
	l.kinds[e.Kind]++
	// what has happened before is there: the rest is told as it happens
	if l.keep > 0 && l.live && e.TimeNs >= l.from {
		l.end()
		l.keep = 0
	}
	if e.Kind == event.DeviceOpen && e.PID == 0 && !l.json {
		return // a checkpoint describes a chip: nobody opened it
	}
	if !l.filter.passes(e, n, l.begin, l.site) {
		return
	}
	if l.keep == 0 {
		l.write(e, n)
		return
	}
	one := keptEvent{*e, *n}
	one.Devices, one.Cores = slices.Clone(e.Devices), slices.Clone(e.Cores)
	if len(l.kept) < l.keep {
		l.kept = append(l.kept, one)
		return
	}
	l.kept[l.next] = one
	l.next = (l.next + 1) % l.keep
}

// end lists what was kept.
func (l *eventLog) end() {
	for i := range l.kept {
		one := &l.kept[(l.next+i)%len(l.kept)]
		l.write(&one.Event, &one.note)
	}
	l.kept, l.next = nil, 0
}

// write writes the event.
func (l *eventLog) write(e *event.Event, n *analyze.Note) {
	l.listed++
	if l.json {
		l.line = l.appendJSON(l.line[:0], e, n)
	} else {
		l.line = l.appendText(l.line[:0], e, n)
	}
	l.out.Write(l.line)
}

// site is what there is to know of a call stack. Many come again and again.
func (l *eventLog) site(stack *event.Stack) *alloc.Site {
	id := alloc.StackID(stack)
	s := l.sites[id]
	if s == nil {
		if len(l.sites) >= maxSites {
			clear(l.sites)
			clear(l.titles)
		}
		s = l.names.NewSite(stack)
		l.sites[id] = s
	}
	return s
}

// nameOf is what something is called that was allocated at a stack.
func (l *eventLog) nameOf(stack *event.Stack, before bool) string {
	key := titleKey{alloc.StackID(stack), before}
	title, ok := l.titles[key]
	if !ok {
		a := alloc.Row{Site: l.site(stack), BeforeAttach: before}
		title = l.names.Title(&a, l.layout.Separator())
		l.titles[key] = title
	}
	return title
}
