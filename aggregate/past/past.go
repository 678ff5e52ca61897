// Package past keeps the ended buffers that were live at earlier moments, so that the survivors
// from one moment to another can be counted.
package past

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/newest"
	"ttmem/tracer/codec"
)

// A Site is a call site of buffers.
type Site interface {
	// UID returns the user of the site's process.
	UID() int
	// Chips returns on how many chips each buffer counts, at least 1.
	Chips() uint64
	// Named returns survivors with only the fields that identify the site.
	Named() memory.Survivors
}

// Buffers are some buffers of one call site, with the bytes on each chip. The first was allocated
// at SinceNs.
type Buffers struct {
	Site Site
	memory.Amount
	SinceNs uint64
}

func (b *Buffers) onAllChips() memory.Amount {
	return memory.Amount{Count: b.Count, Bytes: b.Bytes * b.Site.Chips()}
}

// Marks are the times of the newest marks that matter to a process, in order.
//
// A mark matters only to processes of the user who set it, and a mark of root to all, so that
// the marks of one user do not use up the space of others.
type Marks []uint64

// Matters reports whether the mark of one user matters to the processes of another.
func Matters(marker, uid int) bool { return marker == 0 || marker == uid }

// Add adds a mark.
func (m *Marks) Add(ns uint64) {
	if len(*m) == 2*newest.Most {
		*m = slices.Delete(*m, 0, newest.Most)
	}
	*m = append(*m, ns)
}

// A Past has the buffers that were live at a mark and ended later, and those that ended with
// their device or process after a mark. These are few. The zero value is empty.
type Past struct {
	list  []*pastBuffers // in order of their first end
	index map[life]*pastBuffers
	// missing is the newest mark that was forgotten, by user.
	missing map[int]uint64
	// others are the buffers for which there is no room in list, by user.
	others map[int]others
	// trimmed is the length of list after it was trimmed last.
	trimmed int
}

// A life is the range of marks at which buffers were live: those later than after, up to and
// including last. Marks are times; 0 is the beginning.
type life struct {
	site        Site
	after, last uint64
	// ended is true if they ended with their device or process.
	ended bool
}

// isLiveAt reports whether the buffers were live at a mark.
func (l *life) isLiveAt(mark uint64) bool { return l.after < mark && mark <= l.last }

// pastBuffers are the buffers of one life.
type pastBuffers struct {
	life
	Buffers
}

// others counts, on all chips, buffers that were allocated after a mark and ended with their
// device or process before the next one.
type others struct {
	memory.Amount
	mark uint64
}

// maxPast is the number of pastBuffers that a Past keeps besides those that were live at each
// user's newest mark, and also of these: a user may have other user ids, each with a newest mark.
// Events wait while a Past is trimmed (BenchmarkTrim).
const maxPast = 1 << 16

// Add adds buffers that end. marks are the marks of their process; ended is true if their device
// or process ends.
func (p *Past) Add(b Buffers, marks Marks, ended bool) {
	if len(marks) == 0 {
		return
	}
	of := life{site: b.Site, last: marks[len(marks)-1], ended: ended}
	if b.SinceNs > of.last && !ended {
		return // most buffers: no mark lies in between
	}
	if of.last <= p.missing[b.Site.UID()] {
		return
	}
	if i, _ := slices.BinarySearch(marks, b.SinceNs); i > 0 {
		of.after = marks[i-1]
	}
	one := p.index[of]
	if one == nil {
		if len(p.list) >= max(maxPast, 2*p.trimmed) {
			p.trim()
		}
		p.add(&pastBuffers{of, b})
		return
	}
	one.Amount.Add(b.Amount)
	one.SinceNs = min(one.SinceNs, b.SinceNs)
}

func (p *Past) add(one *pastBuffers) {
	if p.index == nil {
		p.index = make(map[life]*pastBuffers)
	}
	p.index[one.life] = one
	p.list = append(p.list, one)
}

// trim forgets the oldest marks, each with all its buffers, until about half is left. It keeps the
// buffers that were live at each user's newest mark, up to maxPast of all users, and the largest
// of those that ended later; it adds up the rest. No user's buffers displace those of a user who
// has fewer.
func (p *Past) trim() {
	have, latest := make(map[int]int), make(map[int]uint64)
	for _, one := range p.list {
		uid := one.Site.UID()
		have[uid]++
		latest[uid] = max(latest[uid], one.last)
	}
	each := newest.FairShare(have, maxPast/2)
	slices.SortFunc(p.list, func(a, b *pastBuffers) int {
		return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.Bytes, b.Bytes))
	})
	if p.missing == nil {
		p.missing, p.others = make(map[int]uint64), make(map[int]others)
	}
	p.list = slices.DeleteFunc(p.list, func(one *pastBuffers) bool {
		uid := one.Site.UID()
		if have[uid] <= each && one.last != p.missing[uid] {
			return false
		}
		have[uid]--
		switch {
		case one.last < latest[uid]:
			p.missing[uid] = one.last
		case one.isLiveAt(one.last):
			return false
		default:
			sum := p.others[uid]
			if sum.mark != one.last {
				sum = others{mark: one.last}
			}
			sum.Add(one.onAllChips())
			p.others[uid] = sum
		}
		delete(p.index, one.life)
		return true
	})
	if len(p.list) > maxPast {
		p.forgetLatest(latest)
	}
	p.trimmed = len(p.list)
}

// forgetLatest forgets also the newest marks of the users who have most, until maxPast is left.
func (p *Past) forgetLatest(latest map[int]uint64) {
	have := make(map[int]int)
	for _, one := range p.list {
		have[one.Site.UID()]++
	}
	left := len(p.list)
	for _, uid := range slices.SortedFunc(maps.Keys(have), func(a, b int) int { return cmp.Compare(have[b], have[a]) }) {
		if left <= maxPast {
			break
		}
		left -= have[uid]
		p.missing[uid] = latest[uid]
		delete(p.others, uid)
	}
	p.list = slices.DeleteFunc(p.list, func(one *pastBuffers) bool {
		forgotten := one.last <= p.missing[one.Site.UID()]
		if forgotten {
			delete(p.index, one.life)
		}
		return forgotten
	})
}

// Sites returns the call sites, each once or more.
func (p *Past) Sites() iter.Seq[Site] {
	return func(yield func(Site) bool) {
		for _, one := range p.list {
			if !yield(one.Site) {
				return
			}
		}
	}
}

// Only returns the past of the selected sites and users.
func (p *Past) Only(site func(Site) bool, user func(uid int) bool) (some Past) {
	for _, one := range p.list {
		if site(one.Site) {
			some.list = append(some.list, one)
		}
	}
	some.missing, some.others = maps.Clone(p.missing), maps.Clone(p.others)
	maps.DeleteFunc(some.missing, func(uid int, _ uint64) bool { return !user(uid) })
	maps.DeleteFunc(some.others, func(uid int, _ others) bool { return !user(uid) })
	return some
}

// Knows reports whether the Past has all buffers that were live at a user's mark.
func (p *Past) Knows(marker int, ns uint64) bool {
	for uid, missing := range p.missing {
		if Matters(marker, uid) && ns <= missing {
			return false
		}
	}
	return true
}

// Code writes or reads the past. site writes or reads a call site.
func (p *Past) Code(c *codec.Codec, site func(*Site)) {
	list := p.list
	codec.List(c, &list, func(of **pastBuffers) {
		one := codec.Made(c, of)
		site(&one.Site)
		c.Uints(&one.after, &one.last, &one.Count, &one.Bytes, &one.SinceNs)
		if c.Bool(&one.ended); c.Reads && !c.Bad {
			one.life.site = one.Site
			p.add(one)
		}
	})
	if c.Reads {
		p.missing, p.others = make(map[int]uint64), make(map[int]others)
	}
	codec.Table(c, p.missing, func(uid *int, at *uint64) { codec.Number(c, uid); c.Uint(at) })
	codec.Table(c, p.others, func(uid *int, sum *others) {
		codec.Number(c, uid)
		c.Uints(&sum.mark, &sum.Count, &sum.Bytes)
	})
}
