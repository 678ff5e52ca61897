package aggregate

import (
	"cmp"
	"slices"
)

const (
	// maxGrowthSites is how many sites there are before it is looked for some that can
	// be forgotten. A program has some thousands of stacks; a host has many programs.
	maxGrowthSites = 1 << 16
	// maxOverSites is how many sites are kept of which nothing is there any more, but
	// that have something to tell: what ended with its device or its process.
	maxOverSites = maxGrowthSites / 2
)

// growthOthers is what sites had that are not kept.
type growthOthers struct {
	// ended is what ended, and torn what of sites that grew was freed at the end.
	ended, torn Amount
	history     []growthStep
}

// makeRoom forgets sites where they are many. As nothing may be found, it waits until
// there are twice as many as it left: so that it costs each new site the same.
func (g *Growth) makeRoom() {
	if len(g.sites) < max(maxGrowthSites, 2*g.keptSites) {
		return
	}
	g.sweep()
	g.keptSites = len(g.sites)
}

// sweep forgets the sites of which there is nothing to tell, and of those that are over
// it keeps the ones that have most.
func (g *Growth) sweep() {
	var over []*growthSite
	for _, s := range g.sites {
		switch {
		case g.idle(s):
			s.gone = true
		case s.live.Count == 0 && !g.wasThere(s):
			over = append(over, s)
		}
	}
	if len(over) > maxOverSites {
		g.foldSmallest(over)
	}
	gone := func(s *growthSite) bool { return s.gone }
	g.sites = slices.DeleteFunc(g.sites, gone)
	g.touched = slices.DeleteFunc(g.touched, gone)
	for _, p := range g.processes {
		p.dropForgotten()
	}
	told := make(map[*growthProcess]bool)
	for _, s := range g.sites {
		told[s.process] = true
	}
	g.touchedProcesses = slices.DeleteFunc(g.touchedProcesses, func(p *growthProcess) bool { return p.over && !told[p] })
}

// wasThere reports whether something of a site was there at the mark From and is gone.
func (g *Growth) wasThere(s *growthSite) bool { return g.from > 0 && s.replaced.Count > 0 }

// idle reports whether there is nothing to be told of a site: neither now nor at the
// mark To, whatever is still to come.
func (g *Growth) idle(s *growthSite) bool {
	if s.live.Count+s.freshEnded.Count > 0 || g.wasThere(s) {
		return false
	}
	// freed when all work was over: that tells something only of what grew
	if s.torn.Count > 0 && (!s.process.over || s.trendNow(s.process).Growing) {
		return false
	}
	at := stepAt(s.history, g.to)
	return g.to == 0 || at.live.Count+at.ended.Count == 0
}

// foldSmallest makes others of all sites but maxOverSites: those that grew are kept
// first, then those that have most to tell. As long as there is a mark To that is what
// was there at it: what ended by the next one will be over.
func (g *Growth) foldSmallest(over []*growthSite) {
	type ranked struct {
		*growthSite
		growing bool
		bytes   uint64
	}
	list := make([]ranked, len(over))
	for i, s := range over {
		one := ranked{s, s.trendNow(s.process).Growing, s.freshEnded.Bytes}
		switch {
		case g.to > 0:
			one.bytes = stepAt(s.history, g.to).live.Bytes
			one.growing = one.growing && one.bytes > 0
		case one.growing:
			one.bytes += s.torn.Bytes
		}
		list[i] = one
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(compareBools(a.growing, b.growing), cmp.Compare(b.bytes, a.bytes),
			compareSites(a.growthSite, b.growthSite))
	})
	for _, one := range list[maxOverSites:] {
		g.others.ended.add(one.freshEnded)
		if one.growing {
			g.others.torn.add(one.torn)
		}
		g.others.history = addHistories(g.others.history, one.history)
		one.gone = true
	}
}

// compareSites puts sites in an order that does not depend on when they were met.
func compareSites(a, b *growthSite) int {
	return cmp.Or(cmp.Compare(a.key.process, b.key.process), cmp.Compare(a.key.stack, b.key.stack),
		cmp.Compare(a.key.region, b.key.region), cmp.Compare(a.key.layout, b.key.layout), slices.Compare(a.key.set.ids, b.key.set.ids))
}

// addHistories is what two had together at marks.
func addHistories(a, b []growthStep) (sum []growthStep) {
	if len(b) == 0 {
		return a
	}
	var ofA, ofB growthStep
	for len(a)+len(b) > 0 {
		mark := 0
		if len(b) == 0 || len(a) > 0 && a[0].mark <= b[0].mark {
			mark = a[0].mark
		} else {
			mark = b[0].mark
		}
		if len(a) > 0 && a[0].mark == mark {
			ofA, a = a[0], a[1:]
		}
		if len(b) > 0 && b[0].mark == mark {
			ofB, b = b[0], b[1:]
		}
		step := growthStep{mark, ofA.live, ofA.ended, ofA.replaced}
		step.live.add(ofB.live)
		step.ended.add(ofB.ended)
		step.replaced.add(ofB.replaced)
		sum = append(sum, step)
	}
	return sum
}
