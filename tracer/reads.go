package tracer

import (
	"context"
	"math"
	"slices"
	"sync"

	"ttmem/tracer/host"
)

// reads reads the memory of processes in the background, because a read may take long or never
// return. Run reports the results.
type reads struct {
	ctx     context.Context // done when tracing ends
	readers *host.Readers

	mu     sync.Mutex
	byPID  map[int]*processReads
	byUser map[int]int // the number of reads whose results were not taken yet
	done   []*read
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
	report          func()
	doneNs          uint64
}

const (
	// resultPatienceNs is how long events wait for a result. Most reads take less than a
	// millisecond.
	resultPatienceNs = 200e6
	// maxPending bounds the reads of a user's processes.
	maxPending = 1 << 13
)

func newReads(ctx context.Context, readers *host.Readers) *reads {
	return &reads{ctx: ctx, readers: readers, byPID: make(map[int]*processReads), byUser: make(map[int]int)}
}

// add queues a read: do runs after the earlier reads of the process, and take calls the function
// that do returns. add returns false if there are too many reads.
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
	p.list = append(p.list, &read{user: p.process.User, timeNs: timeNs, untilNs: untilNs, do: do})
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
		next.report = next.do(limited, p.process)
		stop()
		next.doneNs = host.Now()
		r.mu.Lock()
		r.done = append(r.done, next)
		p.list = p.list[1:]
		if more = len(p.list) > 0; !more {
			delete(r.byPID, p.process.PID)
		}
		r.mu.Unlock()
	}
}

// take reports the results up to a time. All earlier records have been decoded.
func (r *reads) take(until uint64) {
	r.mu.Lock()
	i := slices.IndexFunc(r.done, func(one *read) bool { return one.doneNs > until })
	if i < 0 {
		i = len(r.done)
	}
	done := slices.Clone(r.done[:i])
	for _, one := range done {
		if r.byUser[one.user]--; r.byUser[one.user] == 0 {
			delete(r.byUser, one.user)
		}
	}
	r.done = slices.Delete(r.done, 0, i)
	r.mu.Unlock()
	for _, one := range done {
		one.report()
	}
}

// waitingSince returns the time of the first event that waits for a result; MaxUint64 if none
// does.
func (r *reads) waitingSince() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, now := uint64(math.MaxUint64), host.Now()
	consider := func(list []*read) {
		for _, one := range list {
			if one.untilNs > now {
				first = min(first, one.timeNs)
			}
		}
	}
	for _, p := range r.byPID {
		consider(p.list)
	}
	consider(r.done)
	return first
}
