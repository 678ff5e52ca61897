package tracer

import (
	"slices"
	"sync"
	"sync/atomic"

	"ttmem/tracer/internal/find"
)

// inbox has what other goroutines discovered and read, for the event loop.
type inbox struct {
	mu   sync.Mutex
	list []result
	// late counts the late attaches whose results are not all reported.
	late atomic.Int32
}

// A result is of work outside the event loop.
type result struct {
	// of is the process that it is about; nil: it is about none. The result is dropped if that has ended, also if a loss of
	// its program was counted since: that is another process, of which nothing is being read.
	of *process
	// atNs is when: earlier records are decoded first. 0: it does not depend on them
	atNs uint64
	// report reports it; false: it has to wait
	report func(d *decoder) bool
}

func (b *inbox) add(r result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, r)
}

// Discovered adds a program that maps a library.
func (b *inbox) Discovered(found *find.Discovery) {
	if found.Mapping.Existing {
		b.late.Add(1)
	}
	b.add(result{report: func(d *decoder) bool { return d.discovered(found) }})
}

// Lost adds a library that is not traced.
func (b *inbox) Lost(l *find.Loss) {
	b.add(result{atNs: l.AtNs, report: func(d *decoder) bool {
		d.lostLibrary(l)
		return true
	}})
}

// take reports the results up to a time.
func (b *inbox) take(d *decoder, until uint64) {
	b.mu.Lock()
	list := b.list
	b.list = nil
	b.mu.Unlock()
	waiting := slices.DeleteFunc(list, func(r result) bool {
		return r.atNs <= until && (!d.has(r.of) || r.report(d))
	})
	b.mu.Lock()
	b.list = append(waiting, b.list...)
	b.mu.Unlock()
}

// has reports whether a process has not ended, as far as is known.
func (d *decoder) has(p *process) bool { return p == nil || d.processes[p.PID] == p }
