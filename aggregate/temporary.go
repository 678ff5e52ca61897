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

// Origin returns the user of the call site, and by what it ranks among those of the user.
func (f forgottenSite) Origin() (sharer int, number uint64) { return f.process.sharer(), f.Bytes }

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
	all := make([]forgottenSite, 0, len(sites)+len(v.forgotten))
	for _, c := range sites {
		if one := c.temporaries(); one.Count > 0 {
			all = append(all, one)
		}
	}
	v.forgotten = append(all, v.forgotten...) // of equal ones those stay whose stacks are resolved
	if len(v.forgotten) >= 2*mostForgotten {
		slices.SortStableFunc(v.forgotten, func(a, b forgottenSite) int { return cmp.Compare(a.Bytes, b.Bytes) })
		var dropped []forgottenSite
		v.forgotten, dropped = newest.Shared(v.forgotten, mostForgotten)
		for _, one := range dropped {
			v.others.Add(one.Amount)
		}
	}
	for i := range v.forgotten {
		v.forgotten[i].Stack.Calls()
	}
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
	codec.List(c.Codec, &v.forgotten, func(one *forgottenSite) {
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
