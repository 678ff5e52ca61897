// Package past follows which buffers survive from one moment to another.
package past

import (
	"cmp"
	"iter"
	"slices"

	"ttmem/aggregate/memory"
)

// A Site is a call site of buffers.
type Site interface {
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

// A Between follows which buffers survive from one moment to another. It needs space for each
// buffer that is live at the second moment and ends later.
type Between struct {
	// fromNs and toNs are the moments; toNs is 0 if the second one is the end.
	fromNs, toNs uint64
	// before counts the buffers that were live at the first moment.
	before map[Site]memory.Amount
	// gone are the buffers that were live at the second moment and ended later. If the second
	// moment is the end, gone are the buffers that ended with their device or process, and
	// freedAtTeardown those freed between the last allocation and that end.
	gone, freedAtTeardown []Ended
	// ended counts the buffers that ended with their device or process, and endedBefore those
	// that did so before the second moment.
	ended, endedBefore memory.Amount
}

// An Ended buffer has the time of its end, or the second moment if that is earlier.
type Ended struct {
	Buffers
	endNs uint64
}

// From begins at the first moment. live are the live buffers.
func From(ns uint64, live iter.Seq[Buffers]) *Between {
	b := &Between{fromNs: ns, before: make(map[Site]memory.Amount)}
	for one := range live {
		if one.SinceNs <= ns {
			add(b.before, one)
		}
	}
	return b
}

func add(sums map[Site]memory.Amount, b Buffers) {
	sum := sums[b.Site]
	sum.Add(b.Amount)
	sums[b.Site] = sum
}

// To sets the second moment: now. A later call moves it.
func (b *Between) To(ns uint64) {
	b.toNs, b.endedBefore = ns, b.ended
	b.gone, b.freedAtTeardown = nil, nil
}

// End records the end of buffers; ended is true if their device or process ends. freed are the
// buffers that the process freed since its latest allocation.
func (b *Between) End(one Buffers, now uint64, ended bool, freed *[]Ended) {
	switch {
	case b.toNs == 0 && !ended:
		*freed = append(*freed, Ended{one, now})
	case b.toNs == 0:
		b.gone = append(b.gone, Ended{one, now})
	case one.SinceNs <= b.toNs:
		b.gone = append(b.gone, Ended{one, b.toNs})
	}
	if ended && one.SinceNs > b.fromNs {
		b.ended.Add(one.onAllChips())
	}
}

// Teardown takes the buffers that a process freed since its latest allocation. Call it when a
// device of the process, or the process itself, ends.
func (b *Between) Teardown(freed *[]Ended) {
	if b.toNs == 0 {
		b.freedAtTeardown = append(b.freedAtTeardown, *freed...)
	}
	*freed = nil
}

// Survivors returns the buffers that survived from the first moment to the second, by call site,
// with births in the intervals between times. The first of times is the first moment. Only those count that
// were allocated in born. over are the buffers that ended with their device or process before the second
// moment. live are the buffers that are live now.
func (b *Between) Survivors(times []uint64, born memory.Intervals, now uint64, live iter.Seq[Buffers]) (list []memory.SurvivorsBetween, over memory.Amount) {
	to := cmp.Or(b.toNs, now)
	index := make(map[Site]int)
	still := make(map[Site]memory.Amount) // the live ones of before
	of := func(site Site) *memory.SurvivorsBetween {
		i, ok := index[site]
		if !ok {
			i = len(list)
			index[site] = i
			intervals := max(0, len(times)-1)
			list = append(list, memory.SurvivorsBetween{
				Survivors: site.Named(),
				Births:    make([]memory.Amount, intervals), TeardownBirths: make([]memory.Amount, intervals),
			})
		}
		return &list[i]
	}
	survive := func(b *Buffers, end uint64, atTeardown bool) {
		one := of(b.Site)
		sum, births := &one.Amount, one.Births
		if atTeardown {
			sum, births = &one.FreedAtTeardown, one.TeardownBirths
		}
		size := b.onAllChips()
		sum.Add(size)
		one.AgeNs = max(one.AgeNs, end-min(end, b.SinceNs))
		if i, _ := slices.BinarySearch(times, b.SinceNs); i > 0 && i <= len(births) {
			births[i-1].Add(size)
		}
	}
	follow := func(one Buffers, end uint64, atTeardown bool) {
		switch {
		case one.SinceNs > to:
		case one.SinceNs <= b.fromNs:
			add(still, one)
		case born.Has(one.SinceNs):
			survive(&one, end, atTeardown)
		}
	}
	for one := range live {
		follow(one, to, false)
	}
	for _, one := range b.freedAtTeardown {
		follow(one.Buffers, one.endNs, true)
	}
	for _, one := range b.gone {
		follow(one.Buffers, one.endNs, false)
	}
	for site, before := range b.before {
		if still := still[site]; before.Count > still.Count {
			gone := Buffers{Site: site, Amount: memory.Amount{
				Count: before.Count - still.Count, Bytes: before.Bytes - min(before.Bytes, still.Bytes),
			}}
			of(site).Replaced = gone.onAllChips()
		}
	}
	slices.SortStableFunc(list, func(a, b memory.SurvivorsBetween) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(memory.StackID(a.Stack), memory.StackID(b.Stack)))
	})
	return list, b.endedBefore
}
