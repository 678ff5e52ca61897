package analyze

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
)

// A Container holds survivors of a call site that leaks, and may hold other buffers of the process.
type Container struct {
	// Owner is the path to its buffers, with […] in place of keys that differ. Tensor is their tensor;
	// "" if they differ.
	Owner  string `json:"owner"`
	Tensor string `json:"tensor,omitempty"`
	// Held are the numbers of its live buffers: those allocated before the call site began, or
	// before the first mark; half of the way from there; and now, or at the last mark.
	Held [3]uint64 `json:"held"`
	// Amount counts the survivors of the call site in it.
	memory.Amount `json:"-"`
}

// In returns how much of the rest of a leak's survivors it holds. Between marks a leak has fewer of them
// than its containers hold: it does not count those that only replaced others.
func (c *Container) In(rest memory.Amount) memory.Amount {
	return memory.Amount{Count: min(c.Count, rest.Count), Bytes: min(c.Bytes, rest.Bytes)}
}

// An owned buffer has the container of its own path.
type owned struct {
	*memory.Buffer
	container name.Container
}

// addContainers adds what holds the leaked buffers, if that is known.
func (r *LeakReport) addContainers(s *aggregate.State, times []uint64) {
	type shape struct {
		pid  int
		text string
	}
	pids := make(map[int]bool)
	for i := range r.Sites {
		pids[r.Sites[i].PID] = pids[r.Sites[i].PID] || r.Sites[i].Class == Leaked
	}
	shapes := make(map[shape][]owned)
	sites := make(map[memory.SiteKey]map[shape][]owned)
	buffers := s.Owned()
	for i := range buffers {
		b := owned{&buffers[i], name.ContainerOf(buffers[i].Path)}
		if !pids[b.PID] || b.Path == "" {
			continue
		}
		of, site := shape{b.PID, b.container.Shape()}, b.Site()
		shapes[of] = append(shapes[of], b)
		key := site.Key()
		if sites[key] == nil {
			sites[key] = make(map[shape][]owned)
		}
		sites[key][of] = append(sites[key][of], b)
	}
	for i := range r.Sites {
		v := &r.Sites[i]
		if v.Class != Leaked {
			continue
		}
		for of, list := range sites[v.Key()] {
			if one := v.container(list, shapes[of], times); one.Count > 0 {
				v.Containers = append(v.Containers, one)
			}
		}
		slices.SortFunc(v.Containers, func(a, b Container) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Owner, b.Owner))
		})
	}
}

// container returns what holds some buffers of the call site, of all buffers with paths of the same
// shape.
func (v *Verdict) container(of, all []owned, times []uint64) (c Container) {
	var path name.Container
	for i := range of {
		b := &of[i]
		if at := v.moment(b.Buffer, times); at == 0 || at == len(c.Held) {
			continue // it did not survive
		}
		if c.Count == 0 {
			path, c.Tensor = b.container, b.Tensor
		}
		if path.Add(b.container); c.Tensor != b.Tensor {
			c.Tensor = ""
		}
		c.Amount.Add(memory.Amount{Count: 1, Bytes: b.BytesPerBank * uint64(b.Banks) * uint64(max(1, len(b.Devices)))})
	}
	c.Owner = path.String()
	for i := range all {
		if !path.Has(all[i].container) {
			continue
		}
		for at := v.moment(all[i].Buffer, times); at < len(c.Held); at++ {
			c.Held[at]++
		}
	}
	return c
}

// LargestContainer returns the container with the most leaked bytes, given those of each call site; nil
// if there is none.
func LargestContainer(sites [][]Container) (most *Container) {
	for _, list := range sites {
		if len(list) > 0 && (most == nil || list[0].Bytes > most.Bytes) {
			most = &list[0]
		}
	}
	return most
}

// moment returns the first number of Container.Held that counts a live buffer; beyond the last if
// none does.
func (v *Verdict) moment(b *memory.Buffer, times []uint64) int {
	at, first, last := b.BufferID, v.Run.First-min(v.Run.First, 1), v.Run.ProcessLast
	if times != nil {
		at, first, last = b.SinceNs, times[0], times[len(times)-1]
	}
	switch {
	case b.BeforeAttach || at <= first:
		return 0
	case at <= first+(last-min(first, last))/2:
		return 1
	case at <= last:
		return 2
	}
	return 3
}
