package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

const (
	// keptHolders is how many call stacks are told of what a process holds or did
	// not free: a State keeps as many of each process that ended.
	shownHolders = 16
	// maxHolders bounds how many stacks are kept of a process that runs. It
	// opens and closes devices as often as it likes; past this number the
	// smaller half is forgotten.
	maxHolders = 1024
)

// A Holder is where some of what a process holds, or did not free, was allocated:
// at one call stack or at several that are not told apart. Without either, its
// stack is not known.
type Holder struct {
	// Bytes is what its Count buffers took of all banks of all their chips.
	Bytes uint64       `json:"bytes"`
	Count uint64       `json:"count"`
	Stack *event.Stack `json:"stack,omitempty"`
	// Stacks is the number of call stacks if they are not told apart. A
	// stack that was forgotten and came again counts twice.
	Stacks uint64 `json:"places,omitempty"`
	// BeforeAttach marks what was there before the process was attached, and so
	// has no call stack.
	BeforeAttach bool `json:"before_attach,omitempty"`
}

// A holder has the sum of its buffers' sizes over all chips besides.
type holder struct {
	Holder
	size uint64
}

func (h *holder) add(more holder) {
	h.Bytes += more.Bytes
	h.Count += more.Count
	h.Stacks += more.Stacks
	h.size += more.size
}

// holder is the share of buffers of a call site.
func (c *callSite) holder(t tally) holder {
	t = t.on(len(c.set.chips))
	return holder{
		Holder{Bytes: t.Bytes, Count: t.Count, Stack: c.stack, BeforeAttach: c.stack == nil && c.before},
		t.size,
	}
}

type unfreedKey struct {
	region event.Region
	reason event.Reason
}

type holderKey struct {
	unfreedKey
	// stack is 0 for what is from no stack, or from several.
	stack                 uint64
	several, beforeAttach bool
}

func (h *holder) key(of unfreedKey) holderKey {
	if h.Stack != nil {
		return holderKey{unfreedKey: of, stack: h.Stack.ID}
	}
	return holderKey{unfreedKey: of, several: h.Stacks > 0, beforeAttach: h.BeforeAttach}
}

// A leftShare is one part of what a process left: a holder's.
type unfreedShare struct {
	unfreedKey
	holder
}

// leave notes buffers of a call site that were not freed.
func (p *process) noteUnfreed(c *callSite, t tally, reason event.Reason) {
	p.addUnfreed(unfreedShare{unfreedKey{c.region, reason}, c.holder(t)})
}

func (p *process) addUnfreed(share unfreedShare) {
	l := p.unfreed[share.unfreedKey]
	if l == nil {
		l = &holder{}
		p.unfreed[share.unfreedKey] = l
	}
	l.add(share.holder)
	addHolder(p.unfreedBy, share)
	if len(p.unfreedBy) > maxHolders {
		p.unfreedBy = collapse(p.unfreedBy, maxHolders/2)
	}
}

func addHolder(holders map[holderKey]*holder, share unfreedShare) {
	k := share.key(share.unfreedKey)
	if old := holders[k]; old != nil {
		old.add(share.holder)
		return
	}
	first := share.holder
	holders[k] = &first
}

// collapse keeps the stacks that have most, and makes one holder of the others of
// each region.
func collapse(holders map[holderKey]*holder, limit int) map[holderKey]*holder {
	kept := make(map[holderKey]*holder, min(len(holders), 2*limit))
	for _, h := range largestHolders(holders) {
		share := unfreedShare{h.unfreedKey, *h.holder}
		if h.stack != 0 {
			if limit == 0 {
				share.Stack, share.Stacks = nil, 1
			} else {
				limit--
			}
		}
		addHolder(kept, share)
	}
	return kept
}

// A keyedHolder is a holder with its key.
type keyedHolder struct {
	holderKey
	*holder
}

// largestHolders are all holders, largest first.
func largestHolders(holders map[holderKey]*holder) []keyedHolder {
	list := make([]keyedHolder, 0, len(holders))
	for k, h := range holders {
		list = append(list, keyedHolder{k, h})
	}
	slices.SortFunc(list, func(a, b keyedHolder) int {
		if a.Bytes != b.Bytes {
			return cmp.Compare(b.Bytes, a.Bytes)
		}
		return cmp.Or(cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.stack, b.stack), cmp.Compare(a.region, b.region), cmp.Compare(a.reason, b.reason),
			compareBools(a.beforeAttach, b.beforeAttach), compareBools(a.several, b.several))
	})
	return list
}

// compareBools puts what is so first.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// leftKeys are those of which the process left anything, in order.
func (p *process) unfreedKeys() []unfreedKey {
	return slices.SortedFunc(maps.Keys(p.unfreed), func(a, b unfreedKey) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.region, b.region))
	})
}

// leftView is what the process left, with the holders that have most of it.
func (p *process) unfreedView() []RegionTotal {
	var list []RegionTotal
	holders := collapse(p.unfreedBy, shownHolders)
	for _, k := range p.unfreedKeys() {
		sum := p.unfreed[k]
		list = append(list, RegionTotal{
			Region: k.region.String(), Reason: k.reason.String(),
			Buffers: sum.Count, SizeBytes: sum.size, AllocatedBytes: sum.Bytes,
			Holders: listHolders(holders, k),
		})
	}
	return list
}

// listHolders are the holders of that region: call stacks first, largest first.
// There are none where no stack and no reason for that is known.
func listHolders(holders map[holderKey]*holder, of unfreedKey) []Holder {
	var stacks, others []Holder
	told := false
	for _, h := range largestHolders(holders) {
		switch {
		case h.unfreedKey != of:
		case h.stack != 0:
			stacks = append(stacks, h.Holder)
		default:
			others = append(others, h.Holder)
			told = told || h.several || h.beforeAttach
		}
	}
	if stacks == nil && !told {
		return nil
	}
	return append(stacks, others...)
}

// leftShares divides what the process left: what the largest holders have, and
// the rest.
func (p *process) unfreedShares(limit int) []unfreedShare {
	var list []unfreedShare
	holders := collapse(p.unfreedBy, limit)
	for _, h := range largestHolders(holders) {
		list = append(list, unfreedShare{h.unfreedKey, *h.holder})
	}
	return list
}
