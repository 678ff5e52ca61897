package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"ttmem/tracer/event"
)

const (
	// shownHolders is the number of call stacks that a RegionTotal has. A State keeps as
	// many of each process that ended.
	shownHolders = 16
	// maxHolders is the number of stacks that are kept of a running process, which may open
	// and close devices any number of times. Above it the smaller half is added up.
	maxHolders = 1024
)

// A Holder is the buffers of one call stack, or of several that are not told apart, that a
// process has live or did not free. Without either, the stack is not known.
type Holder struct {
	// Bytes is what the Count buffers occupy of all banks of all their chips.
	Bytes uint64       `json:"bytes"`
	Count uint64       `json:"count"`
	Stack *event.Stack `json:"stack,omitempty"`
	// Stacks is the number of call stacks if they are not told apart. A stack
	// that was added up and occurs again counts twice.
	Stacks uint64 `json:"places,omitempty"`
	// BeforeAttach marks buffers that were allocated before ttmem attached, and have no
	// call stack.
	BeforeAttach bool `json:"before_attach,omitempty"`
}

// A holder also has the sum of the buffers' sizes over all chips.
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

// holder returns the holder of buffers of a call site.
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
	// stack is 0 for several stacks and for none.
	stack                 uint64
	several, beforeAttach bool
}

func (h *holder) key(of unfreedKey) holderKey {
	if h.Stack != nil {
		return holderKey{unfreedKey: of, stack: h.Stack.ID}
	}
	return holderKey{unfreedKey: of, several: h.Stacks > 0, beforeAttach: h.BeforeAttach}
}

// An unfreedShare is a holder of unfreed buffers of one region.
type unfreedShare struct {
	unfreedKey
	holder
}

// noteUnfreed adds buffers of a call site that were not freed.
func (p *process) noteUnfreed(c *callSite, t tally, reason event.Reason) {
	p.addUnfreed(unfreedShare{unfreedKey{c.region, reason}, c.holder(t)})
}

// noteUnfreedSites adds the live buffers of call sites, which were not freed. If there are
// many sites, only the largest are told apart.
func (p *process) noteUnfreedSites(sites []rankedSite, reason event.Reason) {
	mostFirst(sites, maxHolders)
	for i, one := range sites {
		share := unfreedShare{unfreedKey{one.region, reason}, one.holder(one.live)}
		if i >= maxHolders && share.Stack != nil {
			share.Stack, share.Stacks = nil, 1
		}
		p.addUnfreed(share)
	}
}

func (p *process) addUnfreed(share unfreedShare) {
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

// collapse keeps the largest stacks, and adds up the others of each region.
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

// largestHolders returns all holders, largest first.
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

// compareBools orders true before false.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// unfreedView returns what the process did not free, with the largest holders.
func (p *process) unfreedView() []RegionTotal {
	sums := make(map[unfreedKey]holder)
	for k, h := range p.unfreedBy {
		sum := sums[k.unfreedKey]
		sum.add(*h)
		sums[k.unfreedKey] = sum
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b unfreedKey) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.region, b.region))
	})
	var list []RegionTotal
	holders := collapse(p.unfreedBy, shownHolders)
	for _, k := range keys {
		list = append(list, RegionTotal{
			Region: k.region.String(), Reason: k.reason.String(),
			Buffers: sums[k].Count, SizeBytes: sums[k].size, AllocatedBytes: sums[k].Bytes,
			Holders: listHolders(holders, k),
		})
	}
	return list
}

// listHolders returns the holders of a region: call stacks first, largest first. It returns
// none if neither a stack nor a reason for its absence is known.
func listHolders(holders map[holderKey]*holder, of unfreedKey) []Holder {
	var stacks, others []Holder
	known := false
	for _, h := range largestHolders(holders) {
		switch {
		case h.unfreedKey != of:
		case h.stack != 0:
			stacks = append(stacks, h.Holder)
		default:
			others = append(others, h.Holder)
			known = known || h.several || h.beforeAttach
		}
	}
	if stacks == nil && !known {
		return nil
	}
	return append(stacks, others...)
}

// unfreedShares returns the largest holders of what the process did not free, and the rest
// added up.
func (p *process) unfreedShares(limit int) []unfreedShare {
	var list []unfreedShare
	holders := collapse(p.unfreedBy, limit)
	for _, h := range largestHolders(holders) {
		list = append(list, unfreedShare{h.unfreedKey, *h.holder})
	}
	return list
}
