package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/internal/newest"
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// temporaries observe the births and ends of buffers. Each call site counts its temporary allocations; of the
// call sites that the state forgot, forgotten has those with the most bytes: at least mostForgotten, up to twice
// as many, and as many of each user. others is the sum of the rest.
type temporaries struct {
	forgotten []forgottenSite
	others    memory.Amount
}

const mostForgotten = 1024

// A forgottenSite has the temporary allocations of a call site that the state forgot.
type forgottenSite struct {
	memory.SiteAmount
	process *processName
}

// A rank is what decides whether a forgotten call site is kept. Many are forgotten at once.
type rank struct {
	sharer int
	bytes  uint64
	at     int // its index
}

// Origin returns the user of the call site, and by what it ranks among those of the user.
func (r rank) Origin() (sharer int, number uint64) { return r.sharer, r.bytes }

func (v *temporaries) born(b *buffer) {
	if !b.BeforeAttach {
		b.temporary.Alloc(b.BufferID)
	}
}

// died takes the end of a buffer; ended is true if its device or process ends.
func (v *temporaries) died(b *buffer, ended bool) {
	if !b.BeforeAttach && !ended {
		b.temporary.Free(b.BufferID, b.AllocatedBytes())
	}
}

// forgot takes call sites that the state forgets. It resolves the stacks that it saves: an unresolved stack
// keeps all data about the process's code in memory.
func (v *temporaries) forgot(sites []*callSite) {
	ranks := make([]rank, 0, len(sites)+len(v.forgotten))
	at := func(i int) forgottenSite { // the earlier ones last: of equal ones those stay, whose stacks are resolved
		if i < len(sites) {
			return sites[i].temporaries()
		}
		return v.forgotten[i-len(sites)]
	}
	for i := range cap(ranks) {
		if one := at(i); one.Count > 0 {
			ranks = append(ranks, rank{one.process.sharer(), one.Bytes, i})
		}
	}
	if len(ranks) >= 2*mostForgotten {
		slices.SortStableFunc(ranks, func(a, b rank) int { return cmp.Compare(a.bytes, b.bytes) })
		var dropped []rank
		ranks, dropped = newest.Shared(ranks, mostForgotten)
		for _, r := range dropped {
			v.others.Add(at(r.at).Amount)
		}
	}
	kept := make([]forgottenSite, len(ranks))
	for i, r := range ranks {
		kept[i] = at(r.at)
		kept[i].Stack.Calls()
	}
	v.forgotten = kept
}

// temporaries returns the temporary allocations of a call site, over all allocators.
func (c *callSite) temporaries() forgottenSite {
	sum := forgottenSite{memory.SiteAmount{Site: c.Site}, c.set.process}
	for one := range c.all() {
		sum.Add(one.temporary.Amount)
	}
	return sum
}

// code writes or reads those of call sites that the state forgot.
func (v *temporaries) code(c *stateCodec) {
	codec.ListUpTo(c.Codec, &v.forgotten, 2*mostForgotten, func(one *forgottenSite) {
		c.names.One(c.Codec, &one.process, c.name)
		c.Value(&one.SiteAmount)
		c.checkBanked(one.Region)
		if one.PID != one.process.pid {
			c.Fail()
		}
	})
	c.Value(&v.others)
}

// Temporary returns the temporary allocations by call site, in no order, with the bytes on each chip: see
// package churn. A call site may be there several times. Of very many it has those with the most bytes; others
// is the sum of the rest.
func (s *State) Temporary() (list []memory.SiteAmount, others memory.Amount) {
	for _, c := range s.sites {
		if one := c.temporaries(); one.Count > 0 {
			list = append(list, one.SiteAmount)
		}
	}
	for i := range s.temporaries.forgotten {
		list = append(list, s.temporaries.forgotten[i].SiteAmount)
	}
	return list, s.temporaries.others
}

// restartTemporaries forgets the temporary allocations so far.
func (s *State) restartTemporaries() {
	s.temporaries = temporaries{}
	for _, first := range s.sites {
		for c := range first.all() {
			c.temporary.Amount = memory.Amount{}
		}
	}
}
