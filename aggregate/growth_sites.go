package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// set returns the set of these chips.
func (g *Growth) set(ids []int) *growthSet {
	if g.lastSet != nil && slices.Equal(g.lastSet.ids, ids) {
		return g.lastSet
	}
	// a host has few of them, and most events are of those that were met first
	i := slices.IndexFunc(g.sets, func(s *growthSet) bool { return slices.Equal(s.ids, ids) })
	if i < 0 {
		i = len(g.sets)
		g.sets = append(g.sets, &growthSet{slices.Clone(ids)})
	}
	g.lastSet = g.sets[i]
	return g.lastSet
}

// site is the one that an Alloc is of, which it makes where there is none.
func (g *Growth) site(p *growthProcess, e *event.Event) *growthSite {
	key := growthKey{p.serial, g.stackOf(p, e.Stack), g.set(e.Devices), e.Region, e.Layout}
	for s := p.byStack[key.stack]; s != nil; s = s.next {
		if s.key == key {
			s.stack = e.Stack // that of a note has no native lines
			return s
		}
	}
	g.makeRoom()
	s := &growthSite{key: key, process: p, stack: e.Stack, rests: true}
	g.addSite(s)
	return s
}

// addSite adds one, which can be found as long as its process runs.
func (g *Growth) addSite(s *growthSite) {
	g.sites = append(g.sites, s)
	if p := s.process; !p.over {
		s.next = p.byStack[s.key.stack]
		p.byStack[s.key.stack] = s
		p.sites = append(p.sites, s)
	}
}

// stackOf is the ID by which a stack is told apart from others.
func (g *Growth) stackOf(p *growthProcess, stack *event.Stack) uint64 {
	if stack == nil || g.o.StackID == nil {
		return stackID(stack)
	}
	id, known := p.ids[stack.ID]
	if !known {
		if p.ids == nil {
			p.ids = make(map[uint64]uint64)
		}
		id = g.o.StackID(stack)
		p.ids[stack.ID] = id
	}
	return id
}

// dropForgotten lets go of the sites of the process that were forgotten.
func (p *growthProcess) dropForgotten() {
	before := len(p.sites)
	p.sites = slices.DeleteFunc(p.sites, func(s *growthSite) bool { return s.gone })
	p.ids = nil // of stacks that come again it is known soon
	if len(p.sites) == before {
		return
	}
	clear(p.byStack)
	for _, s := range p.sites {
		s.next = p.byStack[s.key.stack]
		p.byStack[s.key.stack] = s
	}
}
