package analyze

import (
	"maps"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// ownerUnknown is the frame in place of an owner that is not known.
const ownerUnknown = "[owner not known]"

// Profile returns the profile of a state. Memory without a call stack is listed by owner, if the owner
// is known: the path of the owner, without indices, takes the place of the stack. With byOwner that
// path is the outermost frame of all stacks.
func Profile(s *aggregate.State, byOwner bool) *memory.Profile {
	p := s.Profile()
	type key struct {
		pid, device int
		region      event.Region
		stack       uint64
	}
	type chipRegion struct {
		device int
		region event.Region
	}
	peaks := make(map[chipRegion]uint64)
	for _, peak := range p.Peaks {
		peaks[chipRegion{peak.Device, peak.Region}] = peak.TimeNs
	}
	owned := make(map[key]map[string]*memory.Sample) // with the frame of the owner as stack
	roots := make(map[string]*event.Stack)
	root := func(path string) *event.Stack {
		if roots[path] == nil {
			roots[path] = event.StackOf([]event.Frame{{Name: path}})
		}
		return roots[path]
	}
	add := func(b *memory.Buffer, endNs uint64) {
		if b.Path == "" || b.Stack != nil && !byOwner {
			return
		}
		path := name.FoldOwner(b.Path)
		one := memory.Amount{Count: 1, Bytes: b.AllocatedBytes()}
		devices := b.Devices
		if len(devices) == 0 {
			devices = []int{memory.NoDevice}
		}
		for _, id := range devices {
			k := key{b.PID, id, b.Region, memory.StackID(b.Stack)}
			if owned[k] == nil {
				owned[k] = make(map[string]*memory.Sample)
			}
			s := owned[k][path]
			if s == nil {
				s = &memory.Sample{PID: b.PID, Device: id, Region: b.Region, Stack: root(path)}
				owned[k][path] = s
			}
			s.Allocated.Add(one)
			if endNs == never {
				s.Live.Add(one)
			}
			if at := peaks[chipRegion{id, b.Region}]; (b.BeforeAttach || b.SinceNs <= at) && endNs > at {
				s.Peak.Add(one)
			}
		}
	}
	ended, live := s.EndedOwned(), s.Owned()
	for i := range ended {
		add(&ended[i].Buffer, ended[i].EndNs)
	}
	for i := range live {
		add(&live[i], never)
	}
	var samples []memory.Sample
	for _, s := range p.Samples {
		stack := s.Stack
		parts := owned[key{s.PID, s.Device, s.Region, memory.StackID(stack)}]
		for _, path := range slices.Sorted(maps.Keys(parts)) {
			part := *parts[path]
			for _, of := range []struct{ all, part *memory.Amount }{
				{&s.Allocated, &part.Allocated}, {&s.Live, &part.Live}, {&s.Peak, &part.Peak},
			} {
				of.part.Count, of.part.Bytes = min(of.part.Count, of.all.Count), min(of.part.Bytes, of.all.Bytes)
				of.all.Sub(*of.part)
			}
			part.Stack = under(part.Stack, stack)
			samples = append(samples, part)
		}
		if byOwner {
			s.Stack = under(root(ownerUnknown), stack)
		}
		if s.Allocated.Count > 0 {
			samples = append(samples, s)
		}
	}
	p.Samples = samples
	return p
}

// under returns a stack with another one around it.
func under(outer, stack *event.Stack) *event.Stack {
	if stack == nil {
		return outer
	}
	return event.StackOf(slices.Concat(stack.Frames(), outer.Frames()))
}
