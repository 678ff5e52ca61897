package analyze

import (
	"cmp"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
)

// A Container holds survivors of a call site that leaks or is undecided, and may hold other buffers of the process.
type Container struct {
	// Owner is the path to its buffers, with […] in place of keys that differ. Tensor is their tensor;
	// "" if they differ.
	Owner  string `json:"owner"`
	Tensor string `json:"tensor,omitempty"`
	// Held are the numbers of its live buffers: those allocated before the call site began, or
	// before the first mark; half of the way from there; and now, or at the last mark.
	Held [3]uint64 `json:"held"`
	// AtLeast is true if the last number may be too low: the process went on after the latest search for
	// owners, and survivors have none.
	AtLeast bool `json:"at_least,omitempty"`
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
	// ended is nil for a live buffer.
	ended *memory.EndedBuffer
}

// addContainers adds what holds the leaked and the undecided buffers, if that is known.
func (r *LeakReport) addContainers(s *aggregate.State, times []uint64) {
	type shape struct {
		pid  int
		text string
	}
	pids := make(map[int]bool)
	for i := range r.Sites {
		pids[r.Sites[i].PID] = pids[r.Sites[i].PID] || r.Sites[i].isNamed()
	}
	shapes := make(map[shape][]owned)
	sites := make(map[memory.SiteKey]map[shape][]owned)
	add := func(buffer *memory.Buffer, ended *memory.EndedBuffer) {
		if !pids[buffer.PID] || buffer.Path == "" {
			return
		}
		b := owned{buffer, name.ContainerOf(buffer.Path), ended}
		of, site := shape{b.PID, b.container.Shape()}, b.Site
		shapes[of] = append(shapes[of], b)
		key := site.Key()
		if sites[key] == nil {
			sites[key] = make(map[shape][]owned)
		}
		sites[key][of] = append(sites[key][of], b)
	}
	ended, live := s.EndedOwned(), s.Owned()
	for i := range ended {
		add(&ended[i].Buffer, &ended[i])
	}
	for i := range live {
		add(&live[i], nil)
	}
	toEnd := times != nil && times[len(times)-1] >= s.Now()
	searchedNs := make(map[int]uint64)
	for _, p := range s.Totals().Processes {
		if p.OwnerSearch != nil {
			searchedNs[p.PID] = max(searchedNs[p.PID], p.OwnerSearch.TimeNs)
		}
	}
	for i := range r.Sites {
		v := &r.Sites[i]
		if !v.isNamed() {
			continue
		}
		for of, list := range sites[v.Key()] {
			if one := v.container(list, shapes[of], times, toEnd); one.Count > 0 {
				v.Containers = append(v.Containers, one)
			}
		}
		if at, known := searchedNs[v.PID]; known && v.WorkedToNs > at+isNowNs {
			v.boundContainers()
		}
		slices.SortFunc(v.Containers, func(a, b Container) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Owner, b.Owner))
		})
	}
}

// isNamed reports whether views name the call site for its growth.
func (v *Verdict) isNamed() bool { return v.Class == Leaked || v.Class == Undecided }

// isNowNs is how old a search for owners is that counts as one of now.
const isNowNs = 2e9

// boundContainers notes that containers may hold more if owners of survivors are not known.
func (v *Verdict) boundContainers() {
	owned := uint64(0)
	for i := range v.Containers {
		owned += v.Containers[i].Count
	}
	for i := range v.Containers {
		v.Containers[i].AtLeast = owned < v.Count
	}
}

// container returns what holds some buffers of the call site, of all buffers with paths of the same
// shape. toEnd is true if the last of times is the end.
func (v *Verdict) container(of, all []owned, times []uint64, toEnd bool) (c Container) {
	var path name.Container
	for i := range of {
		b := &of[i]
		if at := v.moment(b.Buffer, times); at == 0 || at == len(c.Held) || !v.survives(b.ended, times, toEnd) {
			continue // it did not survive
		}
		if c.Count == 0 {
			path, c.Tensor = b.container, b.Tensor
		}
		if path.Add(b.container); c.Tensor != b.Tensor {
			c.Tensor = ""
		}
		c.Amount.Add(memory.Amount{Count: 1, Bytes: b.AllocatedBytes() * uint64(max(1, len(b.Devices)))})
	}
	c.Owner = path.String()
	for i := range all {
		if !path.Has(all[i].container) || !v.survives(all[i].ended, times, toEnd) {
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

// survives reports whether a buffer that ended counts as live at the end of the run or at the last
// mark, as the survivors of the verdict do.
func (v *Verdict) survives(b *memory.EndedBuffer, times []uint64, toEnd bool) bool {
	switch {
	case b == nil:
		return true
	case times != nil && !toEnd:
		return b.EndNs > times[len(times)-1]
	case times != nil && b.EndNs <= v.WorkedToNs, times == nil && b.LatestID < v.Run.ProcessLast:
		return false // the process went on
	}
	return b.Unfreed || v.FreedAtTeardown.Count > 0
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
