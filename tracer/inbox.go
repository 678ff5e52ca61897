package tracer

import (
	"slices"
	"sync"
)

// inbox has what other goroutines discovered and read, for the decoder.
type inbox struct {
	mu   sync.Mutex
	list []found
}

// found is a result of work outside the event loop.
type found struct {
	// atNs is when: earlier records are decoded first. 0: it does not depend on them
	atNs uint64
	// report reports it; false: it has to wait
	report func(d *decoder) bool
}

func (b *inbox) add(f found) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, f)
}

// take reports the results up to a time.
func (b *inbox) take(d *decoder, until uint64) {
	b.mu.Lock()
	list := b.list
	b.list = nil
	b.mu.Unlock()
	waiting := slices.DeleteFunc(list, func(f found) bool { return f.atNs <= until && f.report(d) })
	b.mu.Lock()
	b.list = append(waiting, b.list...)
	b.mu.Unlock()
}
