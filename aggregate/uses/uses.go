// Package uses follows which live buffers the runs of programs use: at which addresses they lie, how often they are
// used, and when first and last.
// It is not part of ttmem's Go library: it changes without notice.
package uses

import (
	"cmp"
	"iter"
	"slices"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// A Use says how often a buffer was used, by runs of programs and by the host, and when.
type Use struct {
	Count       uint64
	First, Last Moment
	// traced is true if a run that a trace captured uses it: replays do, too.
	traced bool
}

// A Moment is the run of a program, or is after one.
type Moment struct {
	// Run is the number of that run among those of its process, from 1; 0: before the first one.
	Run    uint64
	TimeNs uint64
	// By is the call stack; nil if it is not known.
	By *event.Stack
}

// maxBlocks is how many buffers in the L1 of one allocator are followed: there is no room for more of the smallest
// tensors, but an event may say anything.
const maxBlocks = 1 << 14

// A block is the addresses of a buffer in L1 or L1_SMALL, from start up to but not including end.
type block struct{ start, end, id uint64 }

// Places has the addresses of the live buffers of one allocator. The zero value is empty.
type Places struct {
	dram map[uint64]uint64 // ids by their first address
	l1   []block           // of L1 and L1_SMALL, by address
	// freed are freed buffers, of DRAM and of L1 and L1_SMALL.
	freed [2]freed
}

// Add adds the addresses of a buffer.
func (p *Places) Add(region event.Region, start, end, id uint64) {
	if f := p.in(region); f != nil && end > start {
		f.take(start, end)
	}
	switch {
	case start == 0 || end <= start: // not known, or not the same on all cores
	case region == event.DRAM:
		if p.dram == nil {
			p.dram = make(map[uint64]uint64)
		}
		p.dram[start] = id
	case inL1(region) && len(p.l1) < maxBlocks:
		p.l1 = slices.Insert(p.l1, p.behind(start), block{start, end, id})
	}
}

// All returns the ids of the buffers.
func (p *Places) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, id := range p.dram {
			if !yield(id) {
				return
			}
		}
		for _, b := range p.l1 {
			if !yield(b.id) {
				return
			}
		}
	}
}

// Remove removes those of a buffer that was added.
func (p *Places) Remove(region event.Region, start, id uint64) {
	switch {
	case region == event.DRAM && p.dram[start] == id:
		delete(p.dram, start)
	case inL1(region):
		for i := p.behind(start) - 1; i >= 0 && p.l1[i].start == start; i-- {
			if p.l1[i].id == id {
				p.l1 = slices.Delete(p.l1, i, i+1)
				return
			}
		}
	}
}

func inL1(region event.Region) bool { return region == event.L1 || region == event.L1Small }

// behind returns the number of blocks that begin at an address or below it.
func (p *Places) behind(at uint64) int {
	i, _ := slices.BinarySearchFunc(p.l1, at+1, func(b block, at uint64) int { return cmp.Compare(b.start, at) })
	return i
}

// Argument appends the buffers that begin at an address, which may be an address of DRAM or of L1: if there are two,
// it is not known which one is meant.
func (p *Places) Argument(ids []uint64, at uint64) []uint64 {
	if id, found := p.dram[at]; found {
		ids = append(ids, id)
	}
	if i := p.behind(at) - 1; i >= 0 && p.l1[i].start == at {
		ids = append(ids, p.l1[i].id)
	}
	return ids
}

// Static appends the buffer in L1 that has an address.
func (p *Places) Static(ids []uint64, at uint64) []uint64 {
	if i := p.behind(at) - 1; i >= 0 && at < p.l1[i].end {
		ids = append(ids, p.l1[i].id)
	}
	return ids
}

// Buffers are the uses of the live buffers of a process.
type Buffers struct {
	// Runs is the number of runs whose uses are known.
	Runs uint64
	of   map[uint64]Use
	// latest are the buffers of the latest run, at most maxLatest, and program is its program. refused is true once the
	// library refused it.
	latest  []used
	program uint64
	refused bool
	// perhaps are buffers of which the latest run uses one, it is not known which. possible is what Possible returned.
	perhaps, possible []uint64
	// run is the latest run, captured is true if a trace captures it, and replay is the latest replay of a trace.
	run, replay Moment
	captured    bool
}

// A used is a buffer of the latest run, with its use before that.
type used struct {
	id     uint64
	before Use
}

// maxLatest is how many buffers of a run are followed: no run is recorded with as many, MAX_USES in bpf/src/records.h.
const maxLatest = 64

// Begin begins the next run, of a program, at a time. A trace may capture it.
func (b *Buffers) Begin(program, timeNs uint64, by *event.Stack, captured bool) {
	b.Runs++
	b.program, b.refused = program, false
	b.run, b.captured = Moment{b.Runs, timeNs, by}, captured
	b.latest, b.perhaps = b.latest[:0], b.perhaps[:0]
}

// Perhaps adds that the latest run uses one of several buffers.
func (b *Buffers) Perhaps(ids ...uint64) { b.perhaps = append(b.perhaps, ids...) }

// Add adds the use of a buffer by the latest run.
func (b *Buffers) Add(id uint64) {
	if len(b.latest) == maxLatest || slices.ContainsFunc(b.latest, func(u used) bool { return u.id == id }) {
		return
	}
	b.latest = append(b.latest, used{id, b.add(id, b.run, b.captured)})
}

// notLatest takes a buffer from the latest run.
func (b *Buffers) notLatest(id uint64) {
	b.latest = slices.DeleteFunc(b.latest, func(u used) bool { return u.id == id })
}

// Transfer adds the use of a buffer by the host.
func (b *Buffers) Transfer(id, timeNs uint64, by *event.Stack) {
	b.add(id, Moment{b.Runs, timeNs, by}, false)
	b.notLatest(id) // the run before it was not refused
}

// Replay adds the use of all buffers that captured runs used, by the replay of a trace.
func (b *Buffers) Replay(timeNs uint64, by *event.Stack) { b.replay = Moment{b.Runs, timeNs, by} }

// add adds a use of a buffer, and returns its use before.
func (b *Buffers) add(id uint64, at Moment, captured bool) (before Use) {
	if b.of == nil {
		b.of = make(map[uint64]Use)
	}
	before = b.of[id]
	u := before
	u.Count++
	u.Last, u.traced = at, u.traced || captured
	if u.Count == 1 {
		u.First = u.Last
	}
	b.of[id] = u
	return before
}

// Latest returns how many buffers the latest run uses.
func (b *Buffers) Latest() int { return len(b.latest) }

// Possible returns the buffers that the latest run uses or may use, until it is called again.
func (b *Buffers) Possible() []uint64 {
	b.possible = append(b.possible[:0], b.perhaps...)
	for i := range b.latest {
		b.possible = append(b.possible, b.latest[i].id)
	}
	return b.possible
}

// Refuse takes back the latest run, if it is one of a program: the library refused it.
func (b *Buffers) Refuse(program uint64) {
	if b.Runs == 0 || b.refused || b.program != program {
		return
	}
	for _, u := range b.latest {
		if b.of[u.id] = u.before; u.before.Count == 0 {
			delete(b.of, u.id)
		}
	}
	b.latest, b.perhaps = b.latest[:0], b.perhaps[:0]
	b.Runs, b.refused = b.Runs-1, true
}

// Of returns the use of a buffer, and how many runs followed it. Replays are not counted.
func (b *Buffers) Of(id uint64) (u Use, runs uint64) {
	if u = b.of[id]; u.traced && b.replay.TimeNs > u.Last.TimeNs {
		u.Last = b.replay
	}
	return u, b.Runs - u.Last.Run
}

// Ended forgets a buffer.
func (b *Buffers) Ended(id uint64) {
	delete(b.of, id)
	b.notLatest(id)
}

// Code writes or reads the uses.
func (b *Buffers) Code(c *codec.Codec) {
	c.Uints(&b.Runs, &b.program)
	moment := func(m *Moment) { c.Uints(&m.Run, &m.TimeNs); c.Stack(&m.By) }
	moment(&b.run)
	moment(&b.replay)
	c.Bool(&b.captured)
	if c.Bool(&b.refused); c.Reads {
		b.of = make(map[uint64]Use)
	}
	use := func(id *uint64, u *Use) {
		c.Uints(id, &u.Count)
		moment(&u.First)
		moment(&u.Last)
		c.Bool(&u.traced)
	}
	codec.Table(c, b.of, use)
	codec.ListUpTo(c, &b.latest, maxLatest, func(u *used) { use(&u.id, &u.before) })
}
