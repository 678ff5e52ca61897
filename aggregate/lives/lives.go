// Package lives follows each buffer of a recording from its allocation over its uses to its end.
// It is not part of ttmem's Go library: it changes without notice.
package lives

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A Moment is the number of an event in its recording, from 1; 0: never.
type Moment uint32

// Never is after all events.
const Never Moment = math.MaxUint32

// A Life is one of a buffer. There may be millions, so its size matters: 80 bytes.
type Life struct {
	Stack *event.Stack
	ID    uint64
	// PerBank is its bytes in each bank.
	PerBank uint64
	// In is where it is.
	In *Space
	// Born is the event that allocated it, and End the one that ended it: Never if it was live at the end of the recording.
	// BornRun and EndRun are the numbers of runs of programs before these.
	Born, End       Moment
	BornRun, EndRun uint32
	// first and last are its uses, in process.uses; 0: none. last may be the operation that allocated it, which is no use.
	first, last uint32
	// rest is the use before the longest time between two uses, and resume the one after it; 0: none.
	rest, resume uint32
	// Period is the most runs between two uses by the same line, the one that used it first; 0 if there is only one.
	Period uint32
	// Uses is the number of its uses. That the operation which allocates it writes it is none.
	Uses uint32
	// Unfreed is true if it was live to the end of its device, of the process or of the recording.
	Unfreed bool
	// Loaded is true if its first use is that the host writes it, or if it is what the host wrote in another form.
	Loaded bool
	// before is true for a buffer from before the recording or the attach, or whose allocation was lost. unseen is true for one
	// whose address is too low for its uses to be seen.
	before, unseen bool
}

// A Space is a region of an allocator of a process.
type Space struct {
	PID     int
	Devices []int
	Region  event.Region
	Banks   uint64
	// Peak is the most bytes of each bank that were allocated, since PeakAt, which was at PeakNs, by PeakStack after PeakRun
	// runs of programs.
	Peak      uint64
	PeakAt    Moment
	PeakNs    uint64
	PeakStack *event.Stack
	PeakRun   uint32
	allocated uint64
	process   *process
}

// A Use is a run of a program that uses a buffer, or a transfer.
type Use struct {
	At Moment
	// Over is the last event of the operation's call: the buffer can be freed after it.
	Over  Moment
	Run   uint32
	Stack *event.Stack
}

// A process has the live buffers and the uses of a process.
type process struct {
	pid  int
	live map[uint64]live
	// spaces are by allocator and region.
	spaces map[spaceKey]*Space
	uses   []Use // the first one is empty
	run    uint32
	// blind are the events after which it is not known what was used.
	blind []Moment
	// call is what is called now, calls its stacks so far, and open the first of its uses.
	call  uint32
	calls []*event.Stack
	open  int
	// left is the number of calls before it.
	left uint32
	// latest has the buffers of the latest run as they were before it.
	latest []undo
	// traced are the live buffers that captured traces use, and captures the number of traces that are being captured.
	// seen is true once a capture was seen.
	traced   map[uint64]bool
	captures int
	seen     bool
}

type spaceKey struct {
	allocator uint64
	region    event.Region
}

// A live is the place of the life of a live buffer, with the call that allocated it, the line that used it first, and the
// latest run of that.
type live struct {
	life, call, run uint32
	line            uint64
}

type undo struct {
	live
	was Life
}

// Lives are the lives of all buffers of a recording, in order of their allocation. End completes them.
type Lives struct {
	All []Life
	// Runs is the number of runs of programs, and Known that of those whose uses are recorded.
	Runs, Known uint64
	// Lost is true if events were lost, and Full if the recording has more buffers or uses than are followed.
	Lost, Full bool

	now       Moment
	uses      int
	state     *aggregate.State
	processes map[int]*process
	spaces    []*Space
	owners    map[uint32]memory.Owner
	places    map[*event.Stack]place
	numbers   map[string]uint32
}

// A place has the numbers of the line that a stack is at, with its operation, and of all user's calls. forms is true if the
// operation only changes the form of a tensor.
type place struct {
	line, calls uint32
	forms       bool
}

// forms matches operations that only change the form of a tensor: its layout, data type or region.
var forms = regexp.MustCompile(`^ttnn\.(to_layout|to_dtype|to_memory_config|typecast|tilize\w*|from_torch|as_tensor)$`)

// New returns the lives of a recording that was not read yet.
func New() *Lives {
	return &Lives{
		state: aggregate.New(), processes: make(map[int]*process), owners: make(map[uint32]memory.Owner),
		places: make(map[*event.Stack]place), numbers: make(map[string]uint32),
	}
}

// Apply takes the next event.
func (l *Lives) Apply(e *event.Event) {
	if l.Full {
		return
	}
	l.now++
	p := l.processes[e.PID]
	possible := 0
	switch e.Kind {
	case event.Checkpoint:
		l.end()
	case event.ProcessStart, event.ProcessExit:
		if p != nil && (e.Kind == event.ProcessExit || !e.Reread) {
			l.close(p, nil)
			delete(l.processes, e.PID)
		}
	case event.DeviceClose:
		if p != nil {
			l.close(p, func(s spaceKey) bool { return s.allocator == e.Allocator })
		}
	case event.Free:
		if p != nil {
			p.enter(l, e)
			l.free(p, e.BufferID, e.Reason.IsEnd())
		}
	case event.AllocFailed, event.OperationFailed:
		possible = len(l.state.PossibleUses(e.PID))
	}
	if e.Kind != event.Owner { // the State need not know the owners of freed buffers
		l.state.Apply(e)
	}
	switch e.Kind {
	case event.Checkpoint:
		l.restore()
	case event.Alloc:
		l.alloc(l.process(e.PID), e)
	case event.ProgramRun:
		l.ran(l.process(e.PID), e)
	case event.BufferWrite, event.BufferRead:
		if p != nil {
			p.enter(l, e)
			p.latest = p.latest[:0]
			p.use(l, e)
			if b, is := p.live[e.BufferID]; is && l.All[b.life].Uses == 0 {
				l.All[b.life].Loaded = e.Kind == event.BufferWrite
			}
			l.touch(p, e.BufferID, 0)
			p.used(l, e)
		}
	case event.AllocFailed, event.OperationFailed:
		if possible > 0 && len(l.state.PossibleUses(e.PID)) == 0 {
			l.refuse(p)
		}
	case event.TraceBegin:
		p := l.process(e.PID)
		p.captures, p.seen = p.captures+1, true
	case event.TraceEnd:
		p := l.process(e.PID)
		p.captures = max(p.captures-1, 0)
	case event.TraceReplay:
		l.replayed(l.process(e.PID), e)
	case event.Owner:
		if p != nil && e.Cause != "" {
			if b, is := p.live[e.BufferID]; is {
				l.owners[b.life] = memory.Owner{Path: e.Cause, Tensor: e.Message}
			}
		}
	case event.Lost:
		l.Lost = true
		l.miss(e.PID)
	}
	if l.Full = len(l.All) >= Most || l.uses >= Most; l.Full {
		l.miss(0)
	}
}

// Most is how many buffers and uses are followed.
const Most = 1 << 24

// miss notes that events of a process are not seen; 0: of all.
func (l *Lives) miss(of int) {
	for pid, p := range l.processes {
		if of == 0 || of == pid {
			p.blind = append(p.blind, l.now)
		}
	}
}

// Now is the latest event.
func (l *Lives) Now() Moment { return l.now }

// End ends the recording.
func (l *Lives) End() {
	l.end()
	l.state, l.processes = nil, nil
}

// end ends all processes.
func (l *Lives) end() {
	for _, p := range l.processes {
		for _, b := range p.live {
			one := &l.All[b.life]
			one.End, one.EndRun, one.Unfreed = Never, p.run, true
		}
		p.leave(l.now)
	}
	clear(l.processes)
}

func (l *Lives) process(pid int) *process {
	p := l.processes[pid]
	if p == nil {
		p = &process{pid: pid, live: make(map[uint64]live), spaces: make(map[spaceKey]*Space), uses: make([]Use, 1), open: 1}
		l.processes[pid] = p
	}
	return p
}

// close ends the buffers of a process in some spaces; nil: in all.
func (l *Lives) close(p *process, of func(spaceKey) bool) {
	closed := make(map[*Space]bool)
	for key, s := range p.spaces {
		if of == nil || of(key) {
			closed[s] = true
			delete(p.spaces, key)
		}
	}
	for id, b := range p.live {
		if closed[l.All[b.life].In] {
			l.free(p, id, true)
		}
	}
	if of == nil {
		p.leave(l.now)
	}
}

func (l *Lives) free(p *process, id uint64, unfreed bool) {
	b, is := p.live[id]
	if !is {
		return
	}
	one := &l.All[b.life]
	one.End, one.EndRun, one.Unfreed = l.now, p.run, unfreed
	one.In.allocated -= one.PerBank
	delete(p.live, id)
	delete(p.traced, id)
}

// restore begins with the live buffers of a checkpoint.
func (l *Lives) restore() {
	buffers := l.state.Buffers()
	for i := range buffers {
		b := &buffers[i]
		l.alloc(l.process(b.PID), &event.Event{
			BufferID: b.BufferID, Allocator: b.Allocator, Devices: b.Devices, Region: b.Region, BytesPerBank: b.BytesPerBank, PerCore: b.PerCore,
			BeforeAttach: true, Stack: b.Stack, PID: b.PID,
		})
	}
	for _, s := range l.spaces {
		if s.PeakAt == l.now { // no allocation made it
			s.PeakStack = nil
		}
	}
}

// alloc begins a life. Buffers on single cores have none.
func (l *Lives) alloc(p *process, e *event.Event) {
	p.enter(l, e)
	l.free(p, e.BufferID, false) // its free was lost
	if e.PerCore || int(e.Region) >= event.BankedRegions {
		return
	}
	key := spaceKey{e.Allocator, e.Region}
	s := p.spaces[key]
	if s == nil {
		s = &Space{PID: p.pid, Devices: e.Devices, Region: e.Region, process: p}
		p.spaces[key] = s
		l.spaces = append(l.spaces, s)
	}
	s.Banks = max(s.Banks, uint64(l.state.Banks(e)))
	if s.allocated += e.BytesPerBank; s.allocated > s.Peak {
		s.Peak, s.PeakAt, s.PeakNs, s.PeakStack, s.PeakRun = s.allocated, l.now, l.state.Now(), e.Stack, p.run
	}
	p.live[e.BufferID] = live{life: uint32(len(l.All)), call: p.left}
	l.All = append(doubled(l.All), Life{
		Stack: e.Stack, ID: e.BufferID, PerBank: e.BytesPerBank, In: s, Born: l.now, BornRun: p.run, before: e.BeforeAttach || e.Reread,
		unseen: e.Region == event.DRAM && e.Address < event.LeastUsed,
	})
}

// ran takes a run of a program.
func (l *Lives) ran(p *process, e *event.Event) {
	p.enter(l, e)
	p.run++
	l.Runs++
	p.latest = p.latest[:0]
	if e.Uses == nil || e.Uses.Partial {
		p.blind = append(p.blind, l.now)
	}
	if e.Uses == nil {
		return
	}
	l.Known++
	line, changesForm := e.ProgramID|1<<63, false
	if e.Stack != nil {
		at := l.place(e.Stack)
		line, changesForm = uint64(at.line), at.forms
	}
	p.use(l, e)
	for _, id := range l.state.PossibleUses(e.PID) {
		l.touch(p, id, line)
		if p.captures > 0 {
			if p.traced == nil {
				p.traced = make(map[uint64]bool)
			}
			p.traced[id] = true
		}
	}
	if changesForm {
		l.form(p)
	}
	p.used(l, e)
}

// form has the latest run change the form of what it uses: if the host wrote that, its result is loaded, too.
func (l *Lives) form(p *process) {
	isResult := func(u undo) bool { return u.call == p.left }
	if !slices.ContainsFunc(p.latest, func(u undo) bool { return !isResult(u) && u.was.Loaded }) {
		return
	}
	for _, u := range p.latest {
		if isResult(u) {
			l.All[u.life].Loaded = true
		}
	}
}

// replayed uses all buffers of captured traces again.
func (l *Lives) replayed(p *process, e *event.Event) {
	p.enter(l, e)
	p.latest = p.latest[:0]
	if !p.seen {
		p.blind = append(p.blind, l.now)
		return
	}
	p.use(l, e)
	for id := range p.traced {
		l.touch(p, id, 0)
	}
	p.used(l, e)
}

// use adds a use of buffers.
func (p *process) use(l *Lives, e *event.Event) {
	l.uses++
	p.uses = append(doubled(p.uses), Use{At: l.now, Run: p.run, Stack: e.Stack})
}

// used ends the call of a use without a call stack.
func (p *process) used(l *Lives, e *event.Event) {
	if e.Stack == nil {
		p.leave(l.now)
	}
}

// doubled makes room in a full list for as many values as it has. append alone would copy millions of them a dozen times more.
func doubled[T any](list []T) []T {
	if len(list) == cap(list) {
		list = slices.Grow(list, len(list))
	}
	return list
}

// touch gives a buffer the latest use, by a run at a line or, without one, by something else than a run.
func (l *Lives) touch(p *process, id, line uint64) {
	b, is := p.live[id]
	if !is {
		return
	}
	one := &l.All[b.life]
	p.latest = append(p.latest, undo{b, *one})
	n := uint32(len(p.uses) - 1)
	before := one.last
	one.last = n
	if line > 0 && b.call == p.left {
		return // its operation writes it
	}
	if before > 0 && p.run-p.uses[before].Run > p.uses[one.resume].Run-p.uses[one.rest].Run {
		one.rest, one.resume = before, n
	}
	if one.Uses++; one.Uses == 1 {
		one.first = n
	}
	switch {
	case line == 0:
	case b.line == 0:
		b.line, b.run = line, p.run
	case b.line == line:
		one.Period, b.run = max(one.Period, p.run-b.run), p.run
	}
	p.live[id] = b
}

// refuse takes back the latest run.
func (l *Lives) refuse(p *process) {
	for _, u := range slices.Backward(p.latest) {
		one := &l.All[u.life]
		one.first, one.last, one.Uses, one.Period = u.was.first, u.was.last, u.was.Uses, u.was.Period
		one.rest, one.resume = u.was.rest, u.was.resume
		if _, is := p.live[one.ID]; is {
			p.live[one.ID] = u.live
		}
	}
	p.latest = p.latest[:0]
	p.run--
	l.Runs, l.Known = l.Runs-1, l.Known-1
}

// enter follows which operation is called: the user's calls of an event are others, or an event at the same place of the
// operation comes again.
func (p *process) enter(l *Lives, e *event.Event) {
	if e.Stack == nil || e.BeforeAttach {
		return
	}
	call := l.place(e.Stack).calls
	again := (e.Kind == event.Alloc || e.Kind == event.ProgramRun) && slices.Contains(p.calls, e.Stack)
	if call != p.call || again {
		p.leave(l.now - 1)
		p.call, p.calls = call, p.calls[:0]
	}
	if len(p.calls) < mostCalls {
		p.calls = append(p.calls, e.Stack)
	}
}

// mostCalls is how many places of an operation are compared.
const mostCalls = 64

// leave ends the call of an operation.
func (p *process) leave(at Moment) {
	for i := p.open; i < len(p.uses); i++ {
		p.uses[i].Over = at
	}
	p.open = len(p.uses)
	p.left++
}

func (l *Lives) place(s *event.Stack) place {
	at, known := l.places[s]
	if !known {
		n := name.Of(s.Frames())
		var calls strings.Builder
		calls.WriteString(n.Op)
		for _, c := range name.UserCalls(s.Frames()) {
			fmt.Fprintf(&calls, "\n%s %s:%d", c.Function, c.File, c.Line)
		}
		at = place{l.number("line " + n.String()), l.number(calls.String()), forms.MatchString(n.Op)}
		l.places[s] = at
	}
	return at
}

// number returns the same number for the same text, from 1.
func (l *Lives) number(text string) uint32 {
	n := l.numbers[text]
	if n == 0 {
		n = uint32(len(l.numbers) + 1)
		l.numbers[text] = n
	}
	return n
}

// Fullest returns the space of a region that has the highest peak; nil if there is none.
func (l *Lives) Fullest(region event.Region) (fullest *Space) {
	for _, s := range l.spaces {
		if s.Region == region && (fullest == nil || s.Peak > fullest.Peak) {
			fullest = s
		}
	}
	return fullest
}

// HasStacks reports whether there are call stacks, or no buffers.
func (l *Lives) HasStacks() bool { return len(l.All) == 0 || len(l.places) > 0 }

// Owner returns the latest known owner of the ith buffer.
func (l *Lives) Owner(i int) memory.Owner { return l.owners[uint32(i)] }

// First and Last are its uses; empty without any. Last may be the operation that allocated it.
func (b *Life) First() Use { return b.In.process.uses[b.first] }
func (b *Life) Last() Use  { return b.In.process.uses[b.last] }

// Rest are the uses between which it is idle for the most runs; empty without two uses, or if it may have been used between
// them.
func (b *Life) Rest() (before, after Use) {
	before, after = b.In.process.uses[b.rest], b.In.process.uses[b.resume]
	if !b.isKnown(before.At, after.At) {
		return Use{}, Use{}
	}
	return before, after
}

// Idle is the event after which it is not needed: that of its allocation, if it is not used.
func (b *Life) Idle() Moment { return max(b.Last().Over, b.Born) }

// IsBefore reports whether it is from before the recording or the attach, or its allocation was lost.
func (b *Life) IsBefore() bool { return b.before }

// IsKnown reports whether it is known that it is not used after its last known use.
func (b *Life) IsKnown() bool {
	return !b.before && !b.unseen && b.isKnown(max(b.Last().At, b.Born), b.End)
}

// isKnown reports whether it is known that it is not used between two events.
func (b *Life) isKnown(from, to Moment) bool {
	i, _ := slices.BinarySearch(b.In.process.blind, from+1)
	return i == len(b.In.process.blind) || b.In.process.blind[i] > to
}
