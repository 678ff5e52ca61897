package top

import (
	"time"

	"ttmem/aggregate"
)

// A Source is what a view shows, such as a Live. Its methods must be safe for concurrent use.
type Source interface {
	// Present returns the current content; nowNs is CLOCK_MONOTONIC, or 0.
	Present(nowNs uint64) *Present
	// Mark shows allocations from now on as growth, until Unmark.
	Mark()
	Unmark()
}

// A sampler samples a source and computes rates from the previous sample. It is not safe for
// concurrent use.
type sampler struct {
	source Source
	sites  *sites
	nowNs  func() uint64
	// seen is the previous sample, at the time at.
	seen   map[aggregate.SiteKey]uint64
	events uint64
	at     time.Time
}

// sample returns the content of the source at the time now.
func (l *sampler) sample(now time.Time) *Present {
	p := l.source.Present(l.nowNs())
	seconds := now.Sub(l.at).Seconds()
	first := l.at.IsZero() || seconds <= 0
	seen := make(map[aggregate.SiteKey]uint64, len(p.CallSites))
	p.rates = make([]float64, len(p.CallSites))
	for i := range p.CallSites {
		h := &p.CallSites[i]
		id := h.Key()
		seen[id] = h.Allocated
		if before := l.seen[id]; !first && h.Allocated >= before {
			p.rates[i] = float64(h.Allocated-before) / seconds
		}
	}
	l.sites.prepare(p.CallSites, func(i int) bool { return p.CallSites[i].Count > 0 || p.rates[i] > 0 })
	if !first {
		p.eventRate = float64(p.Events-min(p.Events, l.events)) / seconds
	}
	l.seen, l.events, l.at = seen, p.Events, now
	return p
}
