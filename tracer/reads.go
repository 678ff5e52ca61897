package tracer

import (
	"context"
	"math"
	"sync"

	"ttmem/tracer/host"
)

// reads reads the memory of processes in the background, because a read may take long or never
// return.
type reads struct {
	ctx     context.Context // done when tracing ends
	readers *host.Readers
	inbox   *inbox // gets the results

	mu      sync.Mutex
	byPID   map[int]*processReads
	waiting map[*read]bool // reads whose results were not taken yet
	byUser  map[int]int    // their number
}

// processReads are the reads of a process, in order. The first is being done.
type processReads struct {
	process host.ReadableProcess
	list    []*read
}

// read is a read of a process's memory.
type read struct {
	user int
	// timeNs is the time of the event that caused the read. This event and later ones wait for
	// the result until untilNs.
	timeNs, untilNs uint64
	do              func(context.Context, host.ReadableProcess) (report func())
}

const (
	// resultPatienceNs is how long events wait for a result. Most reads take less than a
	// millisecond.
	resultPatienceNs = 200e6
	// maxPending bounds the reads of a user's processes.
	maxPending = 1 << 13
)

func newReads(ctx context.Context, readers *host.Readers, inbox *inbox) *reads {
	return &reads{
		ctx: ctx, readers: readers, inbox: inbox,
		byPID: make(map[int]*processReads), waiting: make(map[*read]bool), byUser: make(map[int]int),
	}
}

// add queues a read: do runs after the earlier reads of the process, and the decoder calls the
// function that do returns. add returns false if there are too many reads.
func (r *reads) add(pid int, timeNs uint64, do func(context.Context, host.ReadableProcess) (report func())) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.byPID[pid]
	if p == nil {
		p = &processReads{process: r.readers.Of(pid)}
	}
	if r.byUser[p.process.User] >= maxPending {
		return false
	}
	r.byUser[p.process.User]++
	untilNs := host.Now() + resultPatienceNs
	if len(p.list) > 0 {
		untilNs = min(untilNs, p.list[0].untilNs) // events wait once for a process that does not answer
	}
	one := &read{user: p.process.User, timeNs: timeNs, untilNs: untilNs, do: do}
	p.list = append(p.list, one)
	r.waiting[one] = true
	if r.byPID[pid] == nil {
		r.byPID[pid] = p
		go r.work(p)
	}
	return true
}

// work does the reads of a process until there are none left.
func (r *reads) work(p *processReads) {
	for more := true; more; {
		r.mu.Lock()
		next := p.list[0]
		r.mu.Unlock()
		limited, stop := context.WithTimeoutCause(r.ctx, host.ReadPatience, host.ErrNoAnswer)
		report := next.do(limited, p.process)
		stop()
		r.inbox.add(found{host.Now(), func(*decoder) bool {
			r.taken(next)
			report()
			return true
		}})
		r.mu.Lock()
		p.list = p.list[1:]
		if more = len(p.list) > 0; !more {
			delete(r.byPID, p.process.PID)
		}
		r.mu.Unlock()
	}
}

func (r *reads) taken(one *read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, one)
	if r.byUser[one.user]--; r.byUser[one.user] == 0 {
		delete(r.byUser, one.user)
	}
}

// waitingSince returns the time of the first event that waits for a result; MaxUint64 if none
// does.
func (r *reads) waitingSince() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, now := uint64(math.MaxUint64), host.Now()
	for one := range r.waiting {
		if one.untilNs > now {
			first = min(first, one.timeNs)
		}
	}
	return first
}

// readCommand reads the command line of a process. Events since a time wait for it.
func (r *reads) readCommand(pid int, sinceNs uint64, report func(command string)) {
	r.add(pid, sinceNs, func(ctx context.Context, process host.ReadableProcess) func() {
		command := process.CommandLine(ctx)
		return func() { report(command) }
	})
}
