package aggregate

import (
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// The core of a State checks each event against the live buffers, programs, call sites, chips and
// processes, and reports what follows from it as one of these transitions. Everything else observes them:
//
//   - peaks: samples of L1, peaks, timelines, and the shares of call sites (peak, peaks.go)
//   - survivors: which buffers of a call site were never freed (births, survivors.go), also between two
//     moments (past)
//   - temporaries: buffers that were freed soon (churn, temporary.go)
//   - owners: which Python object referenced a buffer (owners.go)
//   - uses: which buffers the runs of programs use (uses, used.go)
//   - blocks: the addresses of buffers, for the free space between them (space, space.go)
//   - overlaps: addresses that several allocators assigned (overlap, overlap.go)
//   - after free: runs of programs with the address of a freed buffer (after_free.go)
//   - unsafe: buffers that the replay of a captured trace may overwrite (unsafe.go)
//
// Samples of the memory on the host (resident) need nothing of the core.
//
// An observer has its data, its code and its part of a checkpoint in one place. Peaks come before the
// totals, to save what there was, and after them, to compare.

// born reports that a buffer was allocated.
func (p *process) born(b *buffer) {
	p.buffers.Put(b.BufferID, b)
	if b.BeforeAttach {
		p.beforeAttach++
	} else {
		p.name.freedLast = p.name.freedLast[:0]
	}
	p.state.survivors.born(b)
	p.state.temporaries.born(b)
	b.arena.blocks.Add(b.Region, b.block())
	p.addTo(b.callSite, b.tally(), b.SinceNs)
	if shared := p.include(b, false); len(shared) > 0 && !p.isSubDevice(b.arena) {
		p.noteOverlap(b, shared)
	}
	p.bornUnderTrace(b)
	p.grew(b)
}

// died reports that a buffer ended.
func (p *process) died(b *buffer, now uint64, reason event.Reason) {
	p.buffers.Remove(b.BufferID)
	p.hold(-1)
	p.state.survivors.died(b, reason.IsEnd())
	p.state.temporaries.died(b, reason.IsEnd())
	p.state.noteEnd(b, now, reason.IsEnd())
	p.state.held.died(p, b, now, reason.IsEnd())
	b.arena.blocks.Remove(b.Region, b.block())
	p.removeFrom(b.callSite, b.tally(), b.SinceNs, reason)
	p.exclude(b, reason)
	for _, q := range b.set.poolsOf(b.Region) {
		q.Shrank(now)
	}
}

// closed reports that all buffers of an arena ended; all buffers of the process if only is nil. It returns
// their number. Its cost depends on the number of call sites. The caller must remove the buffers from the process.
func (p *process) closed(only *arena, now uint64, reason event.Reason) (count int) {
	p.state.noteEnds(p, only, now)
	p.state.held.closed(p, only, now)
	p.uncoverAll(only)
	sets := p.sets
	if only != nil {
		sets = []*deviceSet{only.set}
	}
	for _, set := range sets {
		p.state.survivors.closed(set, only, p.state.now)
		var regions [event.BankedRegions]bool
		for c := range set.callSites(only) {
			if c.live.Count > 0 {
				c.change()
				count += int(c.live.Count)
				regions[c.Region] = true
				p.excludeAll(c, reason)
			}
		}
		for region, any := range regions {
			if any {
				for _, q := range set.pools[region] {
					q.Shrank(now)
				}
			}
		}
	}
	return count
}

// ran reports that a program ran on a chip, with the sample of L1.
func (r *run) ran(use *memory.CoreUse) {
	c, own := r.by.chip, r.sum(&r.by.used.Load, r.by.used.Regions[event.L1].PerBank)
	r.of.raise(use)
	r.by.raise(event.L1, own.Bytes(), own.StaticBytes(), r.at)
	if q := &c.pools[event.L1]; q.Ran(r.at, use, r.parts) {
		r.share(q)
	}
	if *c.ran != nil {
		(*c.ran)(memory.ProgramRun{Point: r.at, Of: &r.of.Operation, Device: c.id, Bytes: use.Bytes(), StaticBytes: use.StaticBytes()})
	}
}
