package top

import (
	"sync"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// A Live is a state that somebody brings up to date while others look at it. Its zero
// value is not usable: New makes one. Its methods may be called by any goroutine.
type Live struct {
	mu     sync.Mutex
	state  *aggregate.State
	markNs uint64
	marked bool
	// own is true where the user of the view has set the mark, or taken it off.
	own    bool
	tell   Told
	output tail
}

// Told is what is known of a source besides its events.
type Told struct {
	// Of is what is looked at: "model.ttmem", "PID 4242".
	Of string
	// Doing is what the source does just now, such as reading a file; "" where it
	// only waits for what happens.
	Doing string
	// Ended is why nothing more comes; "" while something may.
	Ended string
	// Notes are what the view may lack, a line each.
	Notes []string
	// Others is what is known of the processes of other users, where only the user's own
	// are seen: "other users hold …"; "" where all are seen.
	Others string
	// Unread is true while what processes held before they were seen is still read from
	// their memory: not all of it is counted.
	Unread bool
	// Events is how many were counted.
	Events uint64
}

// Live says whether what is told happens just now: a second of it is a second.
func (t *Told) Live() bool { return t.Doing == "" && t.Ended == "" }

// A Present is what a Live knew at one time. It does not change afterwards.
type Present struct {
	Told
	*aggregate.Snapshot
	Holdings []aggregate.Holding
	// NowNs is CLOCK_MONOTONIC of the present, of which the ages are; it is the time
	// of the latest event where that is all that is known.
	NowNs uint64
	// Marked is true after a mark, which was at MarkNs.
	Marked bool
	MarkNs uint64
	// Output is the last lines that the traced command wrote.
	Output []string
	// rates are the allocations a second of the Holdings.
	rates []float64
	// eventRate is events a second.
	eventRate float64
}

// NewLive returns a Live in which nothing is allocated.
func NewLive(of string) *Live {
	return &Live{state: aggregate.New(), tell: Told{Of: of}}
}

// Handle brings the state up to the event. A mark among the events counts until the user
// of the view sets one of their own.
func (l *Live) Handle(e *event.Event) {
	l.mu.Lock()
	l.state.Apply(e)
	if e.Kind == event.Mark && !l.own {
		l.markNs = l.state.MarkFresh()
		l.marked = true
	}
	l.tell.Events++
	l.mu.Unlock()
}

// Write takes what the traced command writes, of which the last lines are kept.
func (l *Live) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.output.Write(b)
}

// Doing says what the source does just now.
func (l *Live) Doing(what string) {
	l.mu.Lock()
	l.tell.Doing = what
	l.mu.Unlock()
}

// End says why nothing more comes.
func (l *Live) End(why string) {
	l.mu.Lock()
	l.tell.Doing, l.tell.Ended = "", why
	l.mu.Unlock()
}

// OwnOnly says that only the user's own processes are seen, and what is known of others.
func (l *Live) OwnOnly(others string) {
	l.mu.Lock()
	l.tell.Others = others
	l.mu.Unlock()
}

// Unread says whether what processes held before they were seen is still read.
func (l *Live) Unread(now bool) {
	l.mu.Lock()
	l.tell.Unread = now
	l.mu.Unlock()
}

// Note adds a line on what the view may lack.
func (l *Live) Note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const kept = 100
	if len(l.tell.Notes) < kept {
		l.tell.Notes = append(l.tell.Notes[:len(l.tell.Notes):len(l.tell.Notes)], line)
	}
}

// Notes are the lines that were noted.
func (l *Live) Notes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tell.Notes
}

// Mark has what is allocated from now on shown as growth.
func (l *Live) Mark() {
	l.mu.Lock()
	l.markNs = l.state.MarkFresh()
	l.marked, l.own = true, true
	l.mu.Unlock()
}

// Unmark takes the mark off.
func (l *Live) Unmark() {
	l.mu.Lock()
	l.marked, l.own = false, true
	l.mu.Unlock()
}

// Present is what is known now; nowNs is CLOCK_MONOTONIC, or 0 for the time of the
// latest event.
func (l *Live) Present(nowNs uint64) *Present {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &Present{
		Told: l.tell, Snapshot: l.state.Snapshot(), Holdings: l.state.Holdings(),
		Marked: l.marked, MarkNs: l.markNs, Output: l.output.lines(),
	}
	p.NowNs = max(nowNs, p.TimeNs)
	return p
}
