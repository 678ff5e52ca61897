package tracer

import (
	"context"
	"math"
	"sync"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
	"ttmem/tracer/quota"
)

// reads reads the memory of processes in the background, because a read may take long or never
// return.
type reads struct {
	ctx     context.Context // done when tracing ends
	readers *host.Readers
	inbox   *inbox // gets the results

	mu      sync.Mutex     // of process.reads, too
	waiting map[*read]bool // reads whose results were not taken yet
	pending *quota.Quota   // their number
}

// read is a read of a process's memory.
type read struct {
	of   kernel.Program
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
		waiting: make(map[*read]bool), pending: quota.New(maxPending, math.MaxInt),
	}
}

// add queues a read: do runs after the earlier reads of the process, and the event loop calls the
// function that do returns. add returns false if there are too many reads.
func (r *reads) add(p *process, timeNs uint64, do func(context.Context, host.ReadableProcess) (report func())) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pending.Take(p.Sharer, 1) {
		return false
	}
	one := &read{of: p.Program, user: p.Sharer, timeNs: timeNs, untilNs: host.Now() + resultPatienceNs, do: do}
	if len(p.reads) > 0 {
		one.untilNs = min(one.untilNs, p.reads[0].untilNs) // events wait once for a process that does not answer
	}
	p.reads = append(p.reads, one)
	r.waiting[one] = true
	if len(p.reads) == 1 {
		go r.work(&p.reads)
	}
	return true
}

// work does the reads of a process until there are none left.
func (r *reads) work(list *[]*read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var process host.ReadableProcess
	for len(*list) > 0 {
		next := (*list)[0]
		r.mu.Unlock()
		if process.PID == 0 {
			process = r.readers.Of(next.of.PID)
		}
		limited, stop := host.Patient(r.ctx, host.ReadPatience)
		report := next.do(limited, process)
		stop()
		r.give(next, host.Now(), report)
		r.mu.Lock()
		*list = (*list)[1:]
	}
}

// files reads files of /proc in the background, which no user can keep from answering. Events from a time
// on wait for the result, at most until another time; the event loop calls the function that do returns.
func (r *reads) files(sinceNs, untilNs uint64, do func() (report func())) {
	one := &read{timeNs: sinceNs, untilNs: untilNs}
	r.mu.Lock()
	r.waiting[one] = true
	r.mu.Unlock()
	go func() { r.give(one, 0, do()) }()
}

// give passes on a result, for the time after the records up to another time.
func (r *reads) give(one *read, atNs uint64, report func()) {
	r.inbox.add(result{atNs: atNs, report: func(*decoder) bool {
		r.taken(one)
		report()
		return true
	}})
}

func (r *reads) taken(one *read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, one)
	if one.do != nil {
		r.pending.Take(one.user, -1)
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
