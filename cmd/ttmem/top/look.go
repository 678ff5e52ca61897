package top

import (
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// A Source is what a view looks at; a Live is one. Its methods are called by several
// goroutines.
type Source interface {
	// Present is what there is now; nowNs is CLOCK_MONOTONIC, or 0.
	Present(nowNs uint64) *Present
	// Mark has what is allocated from now on shown as growth, until Unmark.
	Mark()
	Unmark()
}

// A looker looks at a source, and compares what it sees with what it saw before. One
// goroutine at a time may use it.
type looker struct {
	source Source
	sites  *sites
	nowNs  func() uint64
	// seen is what was seen last, at the time at.
	seen   map[holdingID]uint64
	events uint64
	at     time.Time
}

// A holdingID tells holdings apart from one look to the next.
type holdingID struct {
	stack         uint64
	pid, chip, on int
	region        event.Region
	layout        event.Layout
	static        event.StaticKind
	before        bool
}

func idOf(h *aggregate.Holding) holdingID {
	id := holdingID{
		pid: h.PID, on: len(h.Devices),
		region: h.Region, layout: h.Layout, static: h.Static, before: h.BeforeAttach,
	}
	if h.Stack != nil {
		id.stack = h.Stack.ID
	}
	if len(h.Devices) > 0 {
		id.chip = h.Devices[0]
	}
	return id
}

// look is the present at the time now.
func (l *looker) look(now time.Time) *Present {
	p := l.source.Present(l.nowNs())
	seconds := now.Sub(l.at).Seconds()
	first := l.at.IsZero() || seconds <= 0
	seen := make(map[holdingID]uint64, len(p.Holdings))
	p.rates = make([]float64, len(p.Holdings))
	for i := range p.Holdings {
		h := &p.Holdings[i]
		id := idOf(h)
		seen[id] = h.Allocated
		if before := l.seen[id]; !first && h.Allocated >= before {
			p.rates[i] = float64(h.Allocated-before) / seconds
		}
	}
	l.sites.prepare(p.Holdings, func(i int) bool { return p.Holdings[i].Count > 0 || p.rates[i] > 0 })
	if !first {
		p.eventRate = float64(p.Events-min(p.Events, l.events)) / seconds
	}
	l.seen, l.events, l.at = seen, p.Events, now
	return p
}
