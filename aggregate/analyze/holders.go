package analyze

import (
	"cmp"
	"math"
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
)

// Holders are who holds buffers of call sites. The zero value knows of none.
type Holders struct {
	sites map[memory.SiteKey][]heldUntil
}

// A heldUntil is a buffer with the time of its end.
type heldUntil struct {
	*memory.Buffer
	endNs uint64
}

// A Holder is the owner of some buffers of a call site. With several buffers the path has no indices,
// and the tensor is "" if they differ. The path is "" for buffers whose owners are not known.
type Holder struct {
	memory.Owner
	memory.Amount
	// Class is what the owner tells of the class; buffers of another one have a Holder of their own.
	Class *name.Class
	// Buffers are those that it holds, with their own paths.
	Buffers []*memory.Buffer
}

// Now is a time after all events; only live buffers end later.
const (
	Now   = math.MaxUint64 - 1
	never = math.MaxUint64
)

// HoldersOf returns who holds the live buffers of a state.
func HoldersOf(s *aggregate.State) (h Holders) {
	h.addLive(s)
	return h
}

// PastHoldersOf returns who holds the live buffers of a state, and who held those that ended.
func PastHoldersOf(s *aggregate.State) (h Holders) {
	ended := s.EndedOwned()
	h.add(len(ended), func(i int) heldUntil { return heldUntil{&ended[i].Buffer, ended[i].EndNs} })
	h.addLive(s)
	return h
}

// unfreedHoldersOf returns who held the buffers that ended with their device or process, as of Now.
func unfreedHoldersOf(s *aggregate.State) (h Holders) {
	ended := slices.DeleteFunc(s.EndedOwned(), func(b memory.EndedBuffer) bool { return !b.Unfreed })
	h.add(len(ended), func(i int) heldUntil { return heldUntil{&ended[i].Buffer, never} })
	return h
}

func (h *Holders) addLive(s *aggregate.State) {
	owned := s.Owned()
	h.add(len(owned), func(i int) heldUntil { return heldUntil{&owned[i], never} })
}

// add adds n buffers.
func (h *Holders) add(n int, buffer func(int) heldUntil) {
	if h.sites == nil {
		h.sites = make(map[memory.SiteKey][]heldUntil)
	}
	var last *memory.Site
	var key memory.SiteKey // of last
	for i := range n {
		b := buffer(i)
		if b.Path == "" {
			continue
		}
		if b.Site != last {
			last, key = b.Site, b.Site.Key()
		}
		h.sites[key] = append(h.sites[key], b)
	}
}

// Split returns who holds the buffers of a call site that were live at a time, the most bytes first;
// nil if that is not known of any. The bytes are on each chip or, with perBank, in each bank.
func (h *Holders) Split(s *memory.Site, all memory.Amount, atNs uint64, perBank bool) (list []Holder) {
	if len(h.sites) == 0 {
		return nil
	}
	var held []*memory.Buffer
	for _, b := range h.sites[s.Key()] {
		if (b.BeforeAttach || b.SinceNs <= atNs) && b.endNs > atNs {
			held = append(held, b.Buffer)
		}
	}
	return ByHolder(held, all, perBank)
}

// ByHolder groups buffers by owner, the most bytes first. The last group is the rest of all: buffers
// whose owners are not known. The groups add up to all. It returns nil if there are no buffers.
func ByHolder(buffers []*memory.Buffer, all memory.Amount, perBank bool) (list []Holder) {
	type key struct {
		path  string
		class *name.Class
	}
	index := make(map[key]int)
	for _, b := range buffers {
		if all.Count == 0 {
			break // some have been freed since
		}
		k := key{name.FoldOwner(b.Path), name.ClassByOwner(b.Path, b.Tensor)}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k] = i
			list = append(list, Holder{Owner: memory.Owner{Path: k.path, Tensor: b.Tensor}, Class: k.class})
		}
		one := memory.Amount{Count: 1, Bytes: b.AllocatedBytes()}
		if perBank {
			one.Bytes = b.BytesPerBank
		}
		one.Bytes = min(one.Bytes, all.Bytes)
		all.Sub(one)
		list[i].Add(one)
		list[i].Buffers = append(list[i].Buffers, b)
		if list[i].Tensor != b.Tensor {
			list[i].Tensor = ""
		}
	}
	for i := range list {
		if h := &list[i]; h.Count == 1 {
			h.Path = h.Buffers[0].Path
		}
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Path, b.Path)) })
	if len(list) > 0 && all.Count > 0 {
		list = append(list, Holder{Amount: all})
	}
	return list
}
