package top

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"regexp"
	"time"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// A Source supplies the content of a view, such as a Live. Its methods must be safe for
// concurrent use.
type Source interface {
	// Present returns the current content; nowNs is CLOCK_MONOTONIC, or 0.
	Present(nowNs uint64) *Present
	// Mark shows allocations from now on as growth, until Unmark.
	Mark()
	Unmark()
	// Survivors returns the survivors of all call sites, which may be leaks.
	Survivors() []memory.Survivors
	// ShowOwners sets whether rows by owner are shown, whose owners have to be new.
	ShowOwners(shown bool)
}

// leakInterval is the time between two searches for leaks. They cost time for each call site.
const leakInterval = 5 * time.Second

// A sampler samples a source and computes rates from the previous sample. It is not safe for
// concurrent use.
type sampler struct {
	source Source
	rules  *name.Rules
	nowNs  func() uint64
	// seen is the previous sample, taken at the time at.
	seen   map[memory.SiteKey]uint64
	sites  map[uint64]*site
	events uint64
	at     time.Time
	// leaks were found at the time leaksAt, when the source had this state.
	leaks   []analyze.Verdict
	leaksAt time.Time
	ended   string
}

// sample returns the content of the source at the time now. Looking up a call stack of a
// running process may take a while, so the goroutine that answers keys must not call it.
func (l *sampler) sample(now time.Time) *Present {
	p := l.source.Present(l.nowNs())
	seconds := now.Sub(l.at).Seconds()
	first := l.at.IsZero() || seconds <= 0
	seen := make(map[memory.SiteKey]uint64, len(p.CallSites))
	p.rates = make([]float64, len(p.CallSites))
	p.sites = make(map[uint64]*site)
	for i := range p.CallSites {
		h := &p.CallSites[i]
		id := h.Key()
		seen[id] = h.Allocated.Count
		if before := l.seen[id]; !first && h.Allocated.Count >= before {
			p.rates[i] = float64(h.Allocated.Count-before) / seconds
		}
		if stack := memory.StackID(h.Stack); p.sites[stack] == nil && (h.Count > 0 || p.rates[i] > 0) {
			p.sites[stack] = l.sites[stack]
			if p.sites[stack] == nil {
				p.sites[stack] = l.site(h.Stack)
			}
		}
	}
	if !first {
		p.eventRate = float64(p.Events-min(p.Events, l.events)) / seconds
	}
	l.seen, l.sites, l.events, l.at = seen, p.sites, p.Events, now
	if l.leaksAt.IsZero() || now.Sub(l.leaksAt) >= leakInterval || p.Ended != l.ended {
		l.leaks, l.leaksAt, l.ended = analyze.LeaksOf(l.source.Survivors()), now, p.Ended
	}
	p.leaks = l.leaks
	return p
}

// A site has the looked-up names of a call stack.
type site struct {
	*alloc.Site
	// key is the same for stacks with the same calls: a line may have several. It is "" without a
	// stack.
	key string
	// pattern is the pattern to which Matches belongs.
	pattern string
}

// match reports whether the pattern, which the user typed as text, matches the name, the
// component or a frame.
func (s *site) match(text string, pattern *regexp.Regexp) bool {
	if s.pattern != text {
		s.pattern, s.Matches = text, s.Stack != nil && s.MatchedBy(pattern)
	}
	return s.Matches
}

func (l *sampler) site(stack *event.Stack) *site {
	if stack == nil {
		return &site{Site: &alloc.Site{}}
	}
	names := alloc.Namer{Rules: l.rules}
	one := &site{Site: names.NewSite(stack)}
	h := fnv.New128a()
	frames := stack.Frames()
	for i := range frames {
		function, place := page.FrameTexts(&frames[i])
		fmt.Fprintf(h, "%s\x00%s\x00", function, place)
	}
	one.key = hex.EncodeToString(h.Sum(nil))
	return one
}
