package tracer

import (
	"context"
	"math"
	"slices"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/internal/find"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/owners"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/kernel"
	"ttmem/tracer/quota"
)

// A process is a program in a process, and all that is known of it. The event loop owns it. Others get
// its kernel.Program, and their results go through the inbox, which drops those of programs that have
// ended.
type process struct {
	kernel.Program
	loop *decoder
	// unlisted is true if the kernel side does not report its end. gone is true if it had ended at the
	// last sweep, and ending while its end is reported.
	unlisted, gone, ending bool

	// start is its ProcessStart, which was reported if started is true. described is true once its identity
	// is known: from its discovery, or read after its first record. commandNs is when its command line is
	// read again; 0: it is known, or being read.
	start                          event.Event
	started, described, describing bool
	commandNs                      uint64
	sinceNs                        uint64            // no event of it is earlier
	early                          *find.Description // when it executed its program; nil: it was not read
	// user is to whom it counts: host.RealUser; 0 until it is described.
	user      int
	names     map[int]readName
	nameShare quota.Share // of its user's names
	naming    int         // names that are being read
	// name is that of the thread named, of the latest event.
	name  readName
	named int

	// library is the one that it maps, and mapped where; nil: not known.
	library *libraries.Library
	// untraced is the last warning of a library that it maps and that is not traced.
	untraced string
	slot     int // one more than its index in records; 0: no record yet
	mapped   *host.NewMapping
	parent   int

	// reported is what was last reported of its memory on the host.
	reported resident

	stacks *stack.Process
	*books.Books
	reads  []*read // in order; the first is being done
	owners *owners.Process

	// late is set while the memory from before the attach is being read.
	late *lateAttach
	// recovery is set from a loss until the figures are right again. rereads counts how often
	// the memory was read for that, and rereadNs is when it may be read next.
	recovery *recovery
	rereads  int
	rereadNs uint64
	lost     map[string]lossCount // by cause, not reported yet
}

// Emit names the thread of an event of the process, and passes it on.
func (p *process) Emit(e *event.Event) {
	e.Comm = p.nameOf(e.TID, e.TimeNs)
	p.loop.queue.Push(e)
	if e.Kind == event.AllocFailed {
		p.loop.searches.WantAfterFailure(p.owners)
	}
}

// Lost counts a record of the process that could not be used.
func (p *process) Lost(cause string) { p.loop.lose(p, cause, 1, 0) }

// Read has the memory of the process read: see reads.add.
func (p *process) Read(timeNs uint64, do func(context.Context, host.ReadableProcess) (report func())) bool {
	return p.loop.reads.add(p, timeNs, func(ctx context.Context, of host.ReadableProcess) func() {
		report := do(ctx, of)
		return func() {
			if p.loop.has(p) {
				report()
			}
		}
	})
}

// Parent returns the books of its parent; nil if that is not known.
func (p *process) Parent() *books.Books {
	if parent := p.loop.processes[p.parent]; parent != nil {
		return parent.Books
	}
	return nil
}

// Board returns the name of the boards that chips sit on.
func (p *process) Board(chips []int) string { return p.loop.boards.Name(chips) }

// readName is the name of a thread, and when it was read.
type readName struct {
	name string
	atNs uint64
}

// maxPast is the number of ended processes with a library that are known. Files that they mapped are
// read within seconds, also on a busy host.
const maxPast = 256

// add adds a program, after the end of the one before it. timeNs is the time of its first record.
func (d *decoder) add(of kernel.Program, timeNs uint64) *process {
	p := &process{
		Program: of, loop: d, sinceNs: timeNs,
		stacks: stack.NewProcess(d.show, &d.stacks),
		start:  event.Event{Kind: event.ProcessStart, PID: of.PID, TID: of.PID, Start: new(event.Start)},
		names:  make(map[int]readName),
		lost:   make(map[string]lossCount),
	}
	p.Books = books.New(p, p.stacks, d.room)
	p.owners = &owners.Process{Program: of, Books: p.Books}
	p.Sharer = host.Sharer(p.user, p.PID)
	d.processes[p.PID] = p
	d.spaces.Changed(p.PID)
	return p
}

// follow returns the process that runs a program. If it ran another one, that has ended, and the record of
// its end was lost; nil if the program itself ended before. Without create, it returns nil for a program
// that is not known.
func (d *decoder) follow(program kernel.Program, timeNs uint64, create bool) *process {
	if d.latest != nil && d.latest.Program == program {
		return d.latest
	}
	p := d.processes[program.PID]
	switch {
	case p != nil && p.Program == program:
		d.latest = p
		return p
	case p != nil && p.ExecID > program.ExecID:
		return nil
	case p != nil:
		d.end(p, event.Event{TimeNs: timeNs, ExitStatus: event.UnknownStatus})
	}
	if !create {
		return nil
	}
	return d.add(program, timeNs)
}

// uid returns its user; host.NoUser until that is known.
func (p *process) uid() int {
	if !p.described {
		return host.NoUser
	}
	return p.start.UID
}

// startEvent returns a ProcessStart with a copy of what is known of the process.
func (p *process) startEvent() event.Event {
	e, start := p.start, *p.start.Start
	e.Start = &start
	return e
}

// begin reports a process before its first event, at a time.
func (d *decoder) begin(p *process, timeNs uint64) {
	if p.started {
		return
	}
	p.started = true
	p.start.TimeNs = max(timeNs, d.queue.Released)
	p.owners.SinceNs = p.start.TimeNs
	p.start.Start.AttachedLate = p.start.Start.AttachedLate || p.late != nil
	if p.library != nil {
		p.start.Start.Library, p.start.Start.Release = p.library.Path, p.library.Release
	}
	p.sinceNs = min(p.sinceNs, p.start.TimeNs)
	d.emit(p.startEvent())
	d.readIdentity(p, p.start.TimeNs)
	d.readCommand(p, timeNs)
}

// readIdentity reads the identity of a process, for its events since a time.
func (d *decoder) readIdentity(p *process, sinceNs uint64) {
	if p.described || p.describing {
		return
	}
	p.describing = true
	d.reads.files(sinceNs, math.MaxUint64, func() func() {
		read := find.Describe(p.PID, sinceNs)
		return func() { d.describe(p, &read) }
	})
}

// describe sets the identity of a process, and to whom it counts. Events that wait get it, too, also if the
// process has ended.
func (d *decoder) describe(p *process, read *find.Description) {
	if p.described {
		return
	}
	p.described = true
	if read.User < 0 && p.early != nil {
		read = p.early
	}
	start := &read.Start
	p.user = read.User
	p.Sharer = host.Sharer(p.user, p.PID)
	if p.user != start.UID {
		start.Count = uint64(p.user)
	}
	of := start.Started()
	identify := func(e *event.Event) {
		e.Comm, e.UID, e.Count = start.Comm, start.UID, start.Count
		e.Start.Container, e.Start.Pod, e.Start.ContainerPID = of.Container, of.Pod, of.ContainerPID
	}
	identify(&p.start)
	if p.names[p.PID].name == "" {
		p.setName(p.PID, readName{start.Comm, p.sinceNs})
	}
	d.queue.Edit(p.PID, p.sinceNs, func(e *event.Event) {
		switch {
		case e.Kind == event.ProcessStart:
			identify(e)
		case e.Kind == event.Mark:
			e.UID, e.Count = start.UID, start.Count
		case e.Comm == "":
			e.Comm = start.Comm
		}
	})
}

const (
	// maxNames bounds how many thread names are kept for a process, maxNamesOfUser those of a user's processes, and
	// maxNaming how many of a process are read at the same time.
	maxNames, maxNamesOfUser, maxNaming = 1 << 14, 1 << 16, 64
	// nameNs is how long a thread's name is taken to be the same.
	nameNs = 1e9
)

// nameOf returns the name of a thread. It is read in the background, the first time while events wait for
// it; until then it is that of the process.
func (p *process) nameOf(tid int, timeNs uint64) string {
	known, ok := p.name, tid == p.named
	if !ok {
		if known, ok = p.names[tid]; ok {
			p.name, p.named = known, tid
		}
	}
	if known.name == "" {
		known.name = p.start.Comm
	}
	if ok && timeNs < known.atNs+nameNs || p.naming >= maxNaming {
		return known.name
	}
	known.atNs = timeNs
	p.setName(tid, known)
	p.naming++
	sinceNs := timeNs
	if ok {
		sinceNs = math.MaxUint64
	}
	d := p.loop
	d.reads.files(sinceNs, host.Now()+resultPatienceNs, func() func() {
		name := host.ThreadName(p.PID, tid)
		return func() {
			if p.naming--; name == "" || name == known.name { // it has ended
				return
			}
			p.setName(tid, readName{name, timeNs})
			d.renamed[thread{p.PID, tid}] = p.name
		}
	})
	return known.name
}

// setName sets the name of a thread.
func (p *process) setName(tid int, name readName) {
	_, known := p.names[tid]
	if n := len(p.names); !known && p.loop.has(p) && (n >= maxNames || !p.nameShare.Hold(p.loop.names, p.Sharer, n+1)) {
		clear(p.names) // threads come and go
		p.nameShare.Hold(p.loop.names, p.Sharer, 1)
	}
	p.names[tid], p.name, p.named = name, name, tid
}

// thread is a thread of a process.
type thread struct{ pid, tid int }

// rename gives events that wait the names that were read since the last call.
func (d *decoder) rename() {
	if len(d.renamed) == 0 {
		return
	}
	for i := range d.queue.Events {
		e := &d.queue.Events[i]
		if n, ok := d.renamed[thread{e.PID, e.TID}]; ok && e.TimeNs >= n.atNs && e.Kind != event.ProcessStart {
			e.Comm = n.name
		}
	}
	clear(d.renamed)
}

// readCommand reads the command line of a process, for its start: later events wait for it. If the
// process does not answer in time, it is read again until it does, and the start is reported again.
func (d *decoder) readCommand(p *process, sinceNs uint64) {
	if p.start.Start.Command != "" {
		return
	}
	atNs := p.sinceNs
	p.Read(sinceNs, func(ctx context.Context, of host.ReadableProcess) func() {
		command := of.CommandLine(ctx, atNs)
		return func() { d.setCommand(p, command) }
	})
}

// commandNs is the least time from one reading of a command line to the next. It doubles each time.
const commandNs = 1e9

func (d *decoder) setCommand(p *process, command string) {
	if p.start.Start.Command != "" {
		return // it was read before its first event, too
	}
	if p.start.Start.Command = command; command == "" {
		p.commandNs = d.newest + max(commandNs, d.newest-min(d.newest, p.owners.SinceNs))
		return
	}
	waits := false
	d.queue.Edit(p.PID, p.sinceNs, func(e *event.Event) {
		if e.Kind == event.ProcessStart {
			e.Start.Command, waits = command, true
		}
	})
	if waits || !p.started {
		return
	}
	again := p.startEvent()
	again.TimeNs, again.Reread = d.newest, true
	d.emit(again)
}

// readCommandsAgain reads the command lines of processes that did not answer before.
func (d *decoder) readCommandsAgain() {
	for _, p := range d.processes {
		if p.commandNs != 0 && d.newest > p.commandNs {
			p.commandNs = 0
			d.readCommand(p, math.MaxUint64)
		}
	}
}

// exec handles the record of an exec. The identity is read now: the program may end before it is known to use tt-metal.
func (d *decoder) exec(program kernel.Program, timeNs uint64) {
	if d.processes[program.PID] == nil {
		d.countLosses() // the program before may have reported nothing else
	}
	before := d.processes[program.PID]
	if before != nil && before.ExecID >= program.ExecID {
		return // it was discovered before
	}
	if before != nil {
		d.end(before, event.Event{TimeNs: timeNs, ExitStatus: event.UnknownStatus})
	}
	if before == nil && !slices.Contains(d.Processes, program.PID) && !d.spaces.Expects(program.PID) {
		return
	}
	p := d.add(program, timeNs)
	d.reads.files(math.MaxUint64, math.MaxUint64, func() func() {
		read := find.Describe(p.PID, timeNs)
		if !d.kernel.Runs(p.Program) {
			return func() {} // it may be another process's
		}
		return func() { p.early = &read }
	})
	d.readCommand(p, math.MaxUint64)
}

// exit handles the record of the end of a process that ran a program.
func (d *decoder) exit(program kernel.Program, timeNs uint64, status int) {
	if d.processes[program.PID] == nil {
		d.countLosses() // it may have reported nothing else
	}
	if p := d.follow(program, timeNs, false); p != nil {
		d.end(p, event.Event{TimeNs: timeNs, ExitStatus: status})
		return
	}
	d.libraries.Leave(program)
	d.spaces.Forget(program)
}

// end forgets a program. e has the time and the status of its end.
func (d *decoder) end(p *process, e event.Event) {
	p.ending = true
	d.countLosses()
	p.End()
	d.reportLossesOf(p, e.TimeNs)
	p.nameShare.Release(d.names)
	d.backlog.Ended(p.PID, p.Sharer)
	delete(d.processes, p.PID)
	d.latest = nil
	delete(d.recovering, p)
	delete(d.throwing, p)
	d.endScans(p)
	if p.library != nil {
		d.past = append(d.past[max(0, len(d.past)+1-maxPast):], p.PID)
	}
	d.libraries.Leave(p.Program)
	d.spaces.Forget(p.Program)
	select {
	case d.objectsEnded <- struct{}{}:
	default:
	}
	if p.started {
		e.Kind, e.PID, e.TID, e.Comm = event.ProcessExit, p.PID, p.PID, p.names[p.PID].name
		e.TimeNs = max(e.TimeNs, p.ReadNs)
		d.emit(e)
	}
}

// endScans stops what reads the memory of a process.
func (d *decoder) endScans(p *process) {
	if p.late != nil {
		p.late.stop(nil)
		d.endLate(p)
	}
	if p.recovery != nil && p.recovery.stop != nil {
		p.recovery.stop(nil)
	}
	d.searches.End(p.owners)
}

// sweep ends processes whose record of their end was lost. One must have ended before the previous
// sweep, so that its record had time to arrive.
func (d *decoder) sweep(timeNs uint64) {
	for _, p := range d.processes {
		gone := d.hasEnded(p)
		if gone && p.gone {
			d.end(p, event.Event{TimeNs: timeNs, ExitStatus: event.UnknownStatus})
		}
		p.gone = gone
	}
}

func (d *decoder) hasEnded(p *process) bool {
	if p.unlisted {
		return host.Ended(p.PID) || host.BeganAfter(p.PID, p.sinceNs)
	}
	return !d.kernel.Runs(p.Program)
}

// mappedLibrary reports whether a process is known to map a library, or to have done so until its end.
func (d *decoder) mappedLibrary(pid int) bool {
	p := d.processes[pid]
	return p != nil && p.library != nil || slices.Contains(d.past, pid)
}

// discovered takes a discovery. It returns false if that has to wait.
func (d *decoder) discovered(f *find.Discovery) bool {
	p := d.processes[f.PID]
	switch {
	case p != nil && p.Program == f.Program:
	case p != nil && p.ExecID > f.ExecID || !d.kernel.Runs(f.Program): // it has ended
		d.libraries.Leave(f.Program)
		if f.Mapping.Existing {
			d.inbox.late.Add(-1)
		}
		if f.Missed {
			d.lostLibrary(&find.Loss{Program: kernel.Program{PID: f.PID}, Cause: find.EndedBefore, AtNs: f.AtNs})
		}
		return true
	case p != nil && d.known < f.AtNs:
		return false // the program before it may have more records
	default:
		p = d.follow(f.Program, f.AtNs, true)
	}
	p.unlisted = false
	p.library, p.mapped, p.parent = f.Library, &f.Mapping, f.Parent
	p.Forked, p.Missed = f.Forked, f.Missed
	d.describe(p, &f.Description)
	p.start.Start.AttachedLate = f.Start.Started().AttachedLate
	if f.Mapping.Existing {
		d.attachLate(p)
	}
	// events after its time may have been reported already
	d.begin(p, f.Start.TimeNs)
	if f.Library.IsPartial() {
		d.lose(p, find.TracedInPart, 1, f.AtNs)
	}
	return true
}

// lostLibrary counts a library that is not traced. All records from before were decoded.
func (d *decoder) lostLibrary(l *find.Loss) {
	p := d.processes[l.PID]
	isRepeated := l.Warning != "" && p != nil && p.untraced == l.Warning // its mappings were read again
	if isRepeated || l.Beside && d.mappedLibrary(l.PID) {
		return
	}
	if l.Warning != "" {
		d.Warn(l.User, l.Warning)
	}
	if p == nil && l.ExecID == 0 && d.mappedLibrary(l.PID) { // it was reported, and has ended: it does not start again
		d.emit(event.Event{Kind: event.Lost, TimeNs: l.AtNs, PID: l.PID, Count: 1, Cause: l.Cause})
		return
	}
	if p == nil || p.ExecID < l.ExecID {
		p = d.follow(l.Program, l.AtNs, true)
		p.unlisted = !d.kernel.Runs(l.Program)
	}
	p.untraced = l.Warning
	d.lose(p, l.Cause, 1, l.AtNs)
}

// libraryOf returns the library of a record's process.
func (d *decoder) libraryOf(p *process, index uint8) *libraries.Library {
	if p.slot == int(index)+1 {
		return p.library
	}
	l := d.libraries.At(index)
	if l != nil {
		p.library, p.slot = l, int(index)+1
	}
	return l
}
