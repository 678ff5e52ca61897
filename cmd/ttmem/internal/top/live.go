package top

import (
	"sync"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Live is a State that one goroutine updates while others read it. NewLive makes one. Its
// methods are safe for concurrent use.
type Live struct {
	mu     sync.Mutex
	state  *aggregate.State
	markNs uint64
	marked bool
	// own is true after the user set or removed the mark.
	own    bool
	status Status
	output tail
	// last is the state when a command was last seen to go on, and later are the ends since; nil unless
	// KeepLast was called.
	last  *aggregate.State
	later []event.Event
	// event is the event at which the state is, and beforeNs the time of the previous one; nil
	// and 0 unless Show set them.
	event    *event.Event
	beforeNs uint64
	// chips are the chips of the host with the totals of all users, and chipLines their use over
	// time; nil if the state has everything.
	chips     []memory.Device
	chipLines map[place]*memory.Timeline
	chipsNs   uint64 // when chipLines begin
	// holders are the owners in the state heldIn at the time heldNs.
	holders analyze.Holders
	heldIn  *aggregate.State
	heldNs  uint64
	// ownersShown is true while the view shows rows by owner.
	ownersShown bool
}

// Status describes a source.
type Status struct {
	// Of names the source: "model.ttmem", "PID 4242".
	Of string
	// Doing is what the source is doing, such as reading a file; "" while it waits for
	// events.
	Doing string
	// Ended is why no more events come; "" while they may.
	Ended string
	// Last is true if the state is the one after the latest allocation, instead of the one at the
	// end.
	Last bool
	// Notes say what may be missing from the view, one line each.
	Notes []string
	// Others summarizes the processes of other users if only the user's own are visible;
	// "" if all are.
	Others string
	// Unread is true while buffers from before the attach are still read from the
	// processes' memory, so that not all of them are counted.
	Unread bool
	// Events is the number of events so far.
	Events uint64
}

// Live reports whether events arrive as they happen.
func (t *Status) Live() bool { return t.Doing == "" && t.Ended == "" }

// A Present is the content of a Live at one time. It does not change afterwards.
type Present struct {
	Status
	*memory.Snapshot
	CallSites []memory.CallSite
	// Holders are who holds the live buffers.
	Holders analyze.Holders
	// NowNs is the time that ages refer to (CLOCK_MONOTONIC); at least the time of the latest
	// event.
	NowNs uint64
	// Number and StateNs are the state's position among the events. Event is the event there, and
	// BeforeNs the time of the previous one; nil and 0 if not known.
	Number, StateNs, BeforeNs uint64
	Event                     *event.Event
	// Chips are the chips with the totals of all users, if Devices only have the user's own part;
	// otherwise nil.
	Chips []memory.Device
	// Timelines are the use of Chips or Devices over time.
	Timelines []memory.RegionTimeline
	// Marked is true after a mark, whose time is MarkNs.
	Marked bool
	MarkNs uint64
	// Output is the last lines that the traced command wrote.
	Output []string
	// leaks are the call sites that leak, the most bytes first.
	leaks []analyze.Verdict
	// rates are the allocations per second of the CallSites, and sites the call stacks with live
	// memory, by their ids.
	rates []float64
	sites map[uint64]*site
	// eventRate is events per second.
	eventRate float64
}

// NewLive returns an empty Live.
func NewLive(of string) *Live {
	return &Live{state: aggregate.New(), status: Status{Of: of}}
}

// Handle applies an event. A mark among the events sets the mark of the view, until the user
// sets or removes it.
func (l *Live) Handle(e *event.Event) {
	l.mu.Lock()
	l.state.Apply(e)
	if e.Kind == event.Checkpoint {
		l.state.RestartTimelines() // otherwise the time before would leave little room for new events
	}
	l.keep(e)
	if e.Kind == event.Mark && !l.own {
		l.mark()
	}
	l.status.Events++
	l.mu.Unlock()
}

// KeepLast makes End show the memory before what a command frees at its end: that of the latest event
// that shows that it went on. Call it before the first event.
func (l *Live) KeepLast() { l.last = aggregate.New() }

// keep brings the last state to the latest event that shows that the command goes on. It holds back only
// events that end something, of which there are no more than there is live memory.
func (l *Live) keep(e *event.Event) {
	if l.last == nil {
		return
	}
	switch e.Kind {
	case event.Free, event.CBFree, event.KernelUnload, event.TraceRelease, event.DeviceClose, event.ProcessExit:
		l.later = append(l.later, *e)
		return
	case event.Owner, event.Mark, event.Lost, event.Reread, event.HostMemory: // also at the end
	default:
		for i := range l.later {
			l.last.Apply(&l.later[i])
		}
		clear(l.later)
		l.later = l.later[:0]
	}
	l.last.Apply(e)
}

// Show shows a state instead of the present one. e is its event, and beforeNs the time of the
// previous one; nil and 0 if not known.
func (l *Live) Show(s *aggregate.State, e *event.Event, beforeNs uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.event, l.beforeNs = s, e, beforeNs
	if marks := s.Marks(); !l.own {
		l.marked, l.markNs = len(marks) > 0, 0
		if l.marked {
			l.markNs = marks[len(marks)-1].TimeNs
		}
	}
	if l.marked {
		s.FreshSince(l.markNs)
	}
}

// Chips sets the chips with the totals of all users, for users who otherwise see only their own
// part.
func (l *Live) Chips(chips []memory.Device, nowNs uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chipLines == nil {
		l.chipLines, l.chipsNs = make(map[place]*memory.Timeline), nowNs
	}
	l.chips = chips
	for i := range chips {
		for _, region := range page.Regions {
			bytes := figureOf(region)(&chips[i]).used
			at := place{chips[i].ID, region}
			line := l.chipLines[at]
			if line == nil && bytes == 0 {
				continue
			}
			if line == nil {
				line = &memory.Timeline{}
				line.Restart(l.chipsNs, 0)
				l.chipLines[at] = line
			}
			line.Set(nowNs, bytes)
		}
	}
}

// timelines returns the timelines for Present.
func (l *Live) timelines() (list []memory.RegionTimeline) {
	if l.chips == nil {
		return l.state.Timelines()
	}
	for at, line := range l.chipLines {
		list = append(list, memory.RegionTimeline{Device: at.device, Region: at.region, Timeline: line.Clone()})
	}
	return list
}

// Write adds output of the traced command. Only the last lines are kept.
func (l *Live) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.output.Write(b)
}

func (l *Live) update(change func(*Status)) {
	l.mu.Lock()
	change(&l.status)
	l.mu.Unlock()
}

// Doing sets what the source is doing.
func (l *Live) Doing(what string) { l.update(func(s *Status) { s.Doing = what }) }

// End sets why no more events come.
func (l *Live) End(why string) {
	l.update(func(s *Status) { s.Doing, s.Ended = "", why })
	if l.last != nil && l.last.BuffersAllocated() > 0 {
		l.Show(l.last, nil, 0)
		l.update(func(s *Status) { s.Last = true })
	}
}

// OwnOnly sets the summary of other users' processes, which are not visible.
func (l *Live) OwnOnly(others string) { l.update(func(s *Status) { s.Others = others }) }

// Unread sets whether buffers from before the attach are still being read.
func (l *Live) Unread(reading bool) { l.update(func(s *Status) { s.Unread = reading }) }

// Note adds a line about what may be missing from the view.
func (l *Live) Note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const kept = 100
	if len(l.status.Notes) < kept {
		l.status.Notes = append(l.status.Notes[:len(l.status.Notes):len(l.status.Notes)], line)
	}
}

// Notes returns the lines that Note added.
func (l *Live) Notes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status.Notes
}

// Mark shows allocations from now on as growth.
func (l *Live) Mark() {
	l.mu.Lock()
	l.mark()
	l.own = true
	l.mu.Unlock()
}

func (l *Live) mark() {
	l.marked, l.markNs = true, l.state.Now()
	l.state.FreshSince(l.markNs)
}

// Unmark removes the mark.
func (l *Live) Unmark() {
	l.mu.Lock()
	l.marked, l.own = false, true
	l.mu.Unlock()
}

// Survivors returns the survivors of all call sites.
func (l *Live) Survivors() []memory.Survivors {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, _ := l.state.Survivors()
	return list
}

// ShowOwners sets whether the view shows rows by owner.
func (l *Live) ShowOwners(shown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ownersShown = shown
}

// OwnersShown reports whether the view shows rows by owner, and how many buffers were allocated so far.
func (l *Live) OwnersShown() (allocated uint64, shown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.BuffersAllocated(), l.ownersShown
}

// holdersAt returns who holds the live buffers. That costs time for each of these, so it may be a few
// seconds old.
func (l *Live) holdersAt(nowNs uint64) analyze.Holders {
	if l.heldIn != l.state || nowNs == 0 || nowNs-min(nowNs, l.heldNs) >= uint64(leakInterval) {
		l.holders, l.heldIn, l.heldNs = analyze.HoldersOf(l.state), l.state, nowNs
	}
	return l.holders
}

// Present returns the current content. nowNs is CLOCK_MONOTONIC, or 0 for the time of the
// latest event.
func (l *Live) Present(nowNs uint64) *Present {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.SettleUntil(nowNs)
	p := &Present{
		Status: l.status, Snapshot: l.state.Snapshot(), CallSites: l.state.CallSites(), Holders: l.holdersAt(nowNs),
		Marked: l.marked, MarkNs: l.markNs, Output: l.output.lines(),
		Number: l.state.Number(), StateNs: l.state.Now(), BeforeNs: l.beforeNs, Event: l.event,
		Chips: l.chips, Timelines: l.timelines(),
	}
	p.NowNs = max(nowNs, p.TimeNs)
	return p
}
