// Package births records when the live buffers of a call site were allocated. Leaks are judged by
// these births.
//
// The library numbers the buffers of a process in the order of their allocation. These IDs are
// the clock: it advances only while a program works.
package births

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// A Process describes the allocations of a process while its devices were open.
type Process struct {
	// first and last are the IDs of its first and latest allocation since the attach.
	first, last uint64
	// FromNs and ToNs are the times of the first and the latest allocation, including those
	// before the attach.
	FromNs, ToNs uint64
	// Allocations and frees are their numbers, including those before the attach.
	Allocations, frees uint64
	// Open is true from the first allocation until an allocator is closed and no buffers
	// are live.
	Open bool
}

// A Site describes the allocations of a call site while the devices of its process were open. A
// site has one allocator; its run ends when the allocator is closed.
type Site struct {
	// Open is true from the site's first allocation on.
	Open             bool
	first, last, gap uint64
	// frees is how many buffers the process had freed by first and by last.
	frees [2]uint64
	// live are the births of live buffers.
	live births
	// freed describes the buffers that were freed; nil if none was.
	freed *freed
}

// A freed describes the buffers of a site that ended.
type freed struct {
	// freedTo is the newest of the buffers that were freed while work went on, and freedAt
	// the latest allocation of the process by then.
	freedTo, freedAt uint64
	// The other fields describe the buffers that ended since the latest allocation of the
	// process; at is the number of that allocation. births are the births of these buffers. ended
	// counts the buffers that ended with their device, freedAtTeardown those that were freed.
	// newest is the newest freed one, and lastID the ID of the latest allocation when it was
	// freed.
	at                     uint64
	births                 births
	ended, freedAtTeardown memory.Amount
	newest, lastID         uint64
	any                    bool // some were freed
}

// births counts buffers by the time of their allocation, in up to birthParts parts of equal
// length. When it needs more, it merges pairs of parts.
type births struct {
	shift uint8
	parts [birthParts]uint32
}

const birthParts = 32

// reach makes room for a birth this long after the first one.
func (s *births) reach(after uint64) {
	for after>>s.shift >= birthParts {
		for i := range birthParts / 2 {
			s.parts[i] = s.parts[2*i] + s.parts[2*i+1]
		}
		clear(s.parts[birthParts/2:])
		s.shift++
	}
}

// part returns the part that counts a buffer; nil if the buffer is older than the site's first
// allocation.
func (s *births) part(first, id uint64) *uint32 {
	if id < first {
		return nil
	}
	return &s.parts[min((id-first)>>s.shift, birthParts-1)]
}

// Latest returns the ID of the latest allocation since the attach.
func (p *Process) Latest() uint64 { return p.last }

// Alloc records the allocation of a buffer of a site.
func (p *Process) Alloc(s *Site, id, now uint64) {
	if !p.Open {
		p.Open, p.first = true, id
	}
	if p.Allocations == 0 {
		p.FromNs = now
	}
	p.ToNs = now
	p.Allocations++
	p.last = max(p.last, id)
	if s.Open {
		s.gap = max(s.gap, id-min(id, s.last))
	} else {
		s.Open, s.first, s.frees[0] = true, id, p.frees
	}
	s.last, s.frees[1] = max(s.last, id), p.frees
	s.live.reach(id - min(id, s.first))
	if part := s.live.part(s.first, id); part != nil {
		*part++
	}
}

// Free records the end of a buffer of a site: with its device or process, or because it was
// freed.
func (p *Process) Free(s *Site, id, bytes uint64, ended bool) {
	if s.freed == nil {
		s.freed = &freed{}
	}
	f := s.freed
	if f.at != p.Allocations {
		f.settle()
		f.at, f.births.shift = p.Allocations, s.live.shift
	}
	if from := s.live.part(s.first, id); from != nil && *from > 0 {
		*from--
		*f.births.part(s.first, id)++
	}
	one := memory.Amount{Count: 1, Bytes: bytes}
	if ended {
		f.ended.Add(one)
		return
	}
	f.freedAtTeardown.Add(one)
	f.any, f.newest, f.lastID = true, max(f.newest, id), p.last
	p.frees++
}

// settle counts buffers that ended before the latest allocation as freed while work went on.
func (f *freed) settle() {
	if f.any {
		f.freedTo, f.freedAt = max(f.freedTo, f.newest), f.lastID
	}
	*f = freed{freedTo: f.freedTo, freedAt: f.freedAt}
}

// Current reports whether a site lost buffers since the latest allocation of its process.
func (s *Site) Current(p *Process) bool {
	f := s.freed
	return f != nil && f.freedAtTeardown.Count+f.ended.Count > 0 && f.at == p.Allocations
}

// Ended returns the buffers that ended with their device or process since the latest allocation
// of the process, and the buffers that were freed since then.
func (s *Site) Ended(p *Process) (ended, freedAtTeardown memory.Amount) {
	if !s.Current(p) {
		return ended, freedAtTeardown
	}
	return s.freed.ended, s.freed.freedAtTeardown
}

// Run returns the births of the survivors. They include the buffers that ended since the latest
// allocation of the process only if the allocator is closed now.
func (s *Site) Run(p *Process, closed bool) memory.Run {
	var lost freed
	if s.freed != nil {
		if lost = *s.freed; !s.Current(p) {
			lost.settle()
		}
	}
	all := s.live
	if closed && s.Current(p) {
		for i, n := range lost.births.parts {
			all.parts[i] += n
		}
	}
	run := memory.Run{
		First: s.first, Last: s.last, Gap: max(s.gap, 1),
		ProcessFirst: p.first, ProcessLast: p.last,
		FreedAt: lost.freedAt, FreedMeanwhile: s.frees[1] - s.frees[0],
	}
	length := max(p.last-min(p.last, s.first)+1, 1) // IDs may be of any size
	for i, n := range all.parts {
		at := uint64(i) << all.shift
		run.Births[min(at*memory.BirthWindows/length, memory.BirthWindows-1)] += uint64(n)
		if lost.freedTo >= s.first && uint64(i) < (lost.freedTo-s.first)>>all.shift {
			run.Outlived += uint64(n)
		}
	}
	return run
}

// Code writes or reads the allocations of a process.
func (p *Process) Code(c *codec.Codec) {
	c.Uints(&p.first, &p.last, &p.FromNs, &p.ToNs, &p.Allocations, &p.frees)
	c.Bool(&p.Open)
}

// Code writes or reads the allocations of a call site.
func (s *Site) Code(c *codec.Codec) {
	c.Bool(&s.Open)
	if !s.Open {
		return
	}
	c.Uints(&s.first, &s.last, &s.gap, &s.frees[0], &s.frees[1])
	s.live.code(c)
	codec.Maybe(c, &s.freed, func(f *freed) {
		c.Uints(&f.freedTo, &f.freedAt, &f.at, &f.newest, &f.lastID)
		f.births.code(c)
		c.Value(&f.ended)
		c.Value(&f.freedAtTeardown)
		c.Bool(&f.any)
	})
}

// code writes or reads births up to the last part that is not empty.
func (s *births) code(c *codec.Codec) {
	codec.Number(c, &s.shift)
	n := 0
	for i, part := range s.parts {
		if part > 0 {
			n = i + 1
		}
	}
	c.Below(&n, birthParts+1)
	for i := range n {
		codec.Number(c, &s.parts[i])
	}
}
