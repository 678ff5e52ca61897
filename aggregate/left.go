package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

const (
	// keptHolders is how many call stacks of what a process did not free are
	// told: a State keeps as many of each process that ended.
	keptHolders = 16
	// maxHolders bounds how many stacks are kept of a process that runs. It
	// opens and closes devices as often as it likes; past this number the
	// smaller half is forgotten.
	maxHolders = 1024
)

// A Holder is a call stack that allocated some of what a process did not free.
type Holder struct {
	// Bytes is what its Count buffers took of all banks of all their chips.
	Bytes uint64       `json:"bytes"`
	Count uint64       `json:"count"`
	Stack *event.Stack `json:"stack"`
}

// A holder has the sum of its buffers' sizes over all chips besides.
type holder struct {
	Holder
	size uint64
}

func (h *holder) add(more holder) {
	h.Bytes += more.Bytes
	h.Count += more.Count
	h.size += more.size
}

type leftKey struct {
	region event.Region
	reason event.Reason
}

type holderKey struct {
	leftKey
	stack uint64
}

// A leftShare is one part of what a process left: a holder's, or the rest.
type leftShare struct {
	leftKey
	holder
}

// leave notes a buffer that nobody freed.
func (p *process) leave(b *buffer, reason event.Reason) {
	chips := uint64(len(b.set.chips))
	p.addLeft(leftShare{leftKey{b.region, reason}, holder{Holder{b.allocated() * chips, 1, b.stack}, b.size * chips}})
}

func (p *process) addLeft(share leftShare) {
	l := p.left[share.leftKey]
	if l == nil {
		l = &holder{}
		p.left[share.leftKey] = l
	}
	l.add(share.holder)
	if share.Stack == nil {
		return
	}
	k := holderKey{share.leftKey, share.Stack.ID}
	if old := p.holders[k]; old != nil {
		old.add(share.holder)
		return
	}
	if len(p.holders) == maxHolders {
		for _, small := range p.largestHolders(maxHolders)[maxHolders/2:] {
			delete(p.holders, small)
		}
	}
	p.holders[k] = &share.holder
}

// largestHolders are the holders that have most, largest first.
func (p *process) largestHolders(limit int) []holderKey {
	keys := slices.Collect(maps.Keys(p.holders))
	slices.SortFunc(keys, func(a, b holderKey) int {
		x, y := p.holders[a], p.holders[b]
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(y.Count, x.Count),
			cmp.Compare(a.stack, b.stack), cmp.Compare(a.region, b.region), cmp.Compare(a.reason, b.reason))
	})
	return keys[:min(limit, len(keys))]
}

// leftKeys are those of which the process left anything, in order.
func (p *process) leftKeys() []leftKey {
	return slices.SortedFunc(maps.Keys(p.left), func(a, b leftKey) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.region, b.region))
	})
}

// leftView is what the process left, with the holders that have most of it.
func (p *process) leftView() []Left {
	var list []Left
	holders := p.largestHolders(keptHolders)
	for _, k := range p.leftKeys() {
		sum := p.left[k]
		l := Left{
			Region: k.region.String(), Reason: k.reason.String(),
			Buffers: sum.Count, SizeBytes: sum.size, AllocatedBytes: sum.Bytes,
		}
		for _, h := range holders {
			if h.leftKey == k {
				l.Holders = append(l.Holders, p.holders[h].Holder)
			}
		}
		list = append(list, l)
	}
	return list
}

// leftShares divides what the process left: what the largest holders have, and
// the rest.
func (p *process) leftShares(limit int) []leftShare {
	var list []leftShare
	rest := make(map[leftKey]holder)
	for k, sum := range p.left {
		rest[k] = *sum
	}
	for _, k := range p.largestHolders(limit) {
		h, r := *p.holders[k], rest[k.leftKey]
		rest[k.leftKey] = holder{Holder{r.Bytes - h.Bytes, r.Count - h.Count, nil}, r.size - h.size}
		list = append(list, leftShare{k.leftKey, h})
	}
	for _, k := range p.leftKeys() {
		if rest[k].Count > 0 {
			list = append(list, leftShare{k, rest[k]})
		}
	}
	return list
}

func (l *Left) add(b *buffer) {
	l.Buffers++
	l.SizeBytes += b.size * uint64(len(b.set.chips))
	l.AllocatedBytes += b.allocated() * uint64(len(b.set.chips))
}

func (l *Left) remove(b *buffer) {
	l.Buffers--
	l.SizeBytes -= b.size * uint64(len(b.set.chips))
	l.AllocatedBytes -= b.allocated() * uint64(len(b.set.chips))
}
