package uses

import (
	"cmp"
	"slices"

	"ttmem/tracer/event"
)

// A Freed is a buffer that was freed, and at whose first address no other was allocated since. Run is the number of runs
// before its free.
type Freed struct {
	Start                uint64
	Region               event.Region
	Run                  uint64
	AllocatedBy, FreedBy *event.Stack
}

// maxFreed is how many freed buffers of an allocator are remembered in DRAM and in L1: the latest.
const maxFreed = 128

// freed are freed buffers by address.
type freed []Freed

// at returns the place of an address, and whether one is there.
func (f freed) at(start uint64) (place int, is bool) {
	return slices.BinarySearchFunc(f, start, func(one Freed, at uint64) int { return cmp.Compare(one.Start, at) })
}

// add remembers one, and forgets the oldest one.
func (f *freed) add(one Freed) {
	if len(*f) >= maxFreed {
		oldest := 0
		for i := range *f {
			if (*f)[i].Run < (*f)[oldest].Run {
				oldest = i
			}
		}
		*f = slices.Delete(*f, oldest, oldest+1)
	}
	place, is := f.at(one.Start)
	if is {
		(*f)[place] = one
		return
	}
	*f = slices.Insert(*f, place, one)
}

// take forgets those that begin in the addresses of a new buffer.
func (f *freed) take(start, end uint64) {
	from, _ := f.at(start)
	to, _ := f.at(end)
	*f = slices.Delete(*f, from, max(from, to))
}

// in returns the freed buffers in the memory of a region; nil if they are not remembered.
func (p *Places) in(region event.Region) *freed {
	switch {
	case region == event.DRAM:
		return &p.freed[0]
	case inL1(region):
		return &p.freed[1]
	}
	return nil
}

// Free remembers a buffer that is freed, after it was removed.
func (p *Places) Free(one Freed) {
	if f := p.in(one.Region); f != nil && one.Start > 0 {
		f.add(one)
	}
}

// Forget forgets all freed buffers: allocations may have been missed.
func (p *Places) Forget() { p.freed = [2]freed{} }

// Freed returns the freed buffer that begins at an address, for a static buffer one of L1. If a live one has it, there is none.
func (p *Places) Freed(at uint64, static bool) (one Freed, found bool) {
	for i, f := range p.freed {
		if place, is := f.at(at); is && (i > 0 || !static) {
			return f[place], true
		}
	}
	return one, false
}
