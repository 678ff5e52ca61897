package peak

import (
	"ttmem/aggregate/cores"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// Shares count the allocations of a call site that were live at the peak of each of its pools. They are
// saved when the site changes after a peak, so that the cost of a new peak does not depend on the
// number of sites.
type Shares []Share

// A Share is what a call site had at the peak with the number serial. PerBank is in each bank, or on the
// fullest core of L1.
type Share struct {
	serial uint64
	memory.Amount
	PerBank uint64
}

// Add adds a share.
func (s *Share) Add(more Share) {
	s.Amount.Add(more.Amount)
	s.PerBank += more.PerBank
}

// NewShares returns the shares of a new call site, which had nothing at the peaks so far.
func NewShares(pools []*Pool) Shares {
	s := make(Shares, len(pools))
	for i, q := range pools {
		s[i].serial = q.Serial
	}
	return s
}

// now returns what a call site has of a pool with these live allocations. load are those on single
// cores, or nil.
func (q *Pool) now(live *memory.Tally, load *cores.Load) Share {
	return Share{q.Serial, live.Amount, live.PerBank + load.On(q.PeakCore)}
}

// Save saves the shares of the latest peaks, before the live allocations change.
func (s Shares) Save(pools []*Pool, live *memory.Tally, load *cores.Load) {
	for i, q := range pools {
		if s[i].serial != q.Serial {
			s[i] = q.now(live, load)
		}
	}
}

// At returns the share of the peak of the i-th pool. live is nil for circular buffers, which have a share
// only if their program ran at the peak.
func (s Shares) At(i int, q *Pool, live *memory.Tally, load *cores.Load) Share {
	switch {
	case s[i].serial == q.Serial:
		return s[i]
	case live == nil:
		return Share{}
	}
	return q.now(live, load)
}

// Forget forgets the share of the i-th pool.
func (s Shares) Forget(i int) { s[i] = Share{} }

// Ran adds a circular buffer of the program that ran at the latest peak.
func (s Shares) Ran(q *Pool, a memory.Amount) {
	if s[0].serial != q.Serial {
		s[0] = Share{serial: q.Serial}
	}
	s[0].Amount.Add(a)
}

// Add adds the shares of the same call site, which were saved, too.
func (s Shares) Add(others Shares) {
	for i := range s {
		s[i].Add(others[i])
	}
}

// Code writes or reads the shares, whose number is known.
func (s Shares) Code(c *codec.Codec) {
	for i := range s {
		c.Uints(&s[i].serial, &s[i].PerBank)
		c.Value(&s[i].Amount)
	}
}
