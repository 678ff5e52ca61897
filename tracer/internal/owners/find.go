package owners

import (
	"cmp"
	"hash/maphash"
	"slices"

	"ttmem/tracer/event"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/owner"
)

var ownerSeed = maphash.MakeSeed()

// findOwners finds the owners of live buffers, and those that changed: known are as in Process. find
// searches a process for the Buffers with these addresses and ids. An error means that not all was
// found.
func findOwners(pid int, live map[uint64]books.Buffer, known map[uint64]uint64, find func(ids map[uint64]uint64) (map[uint64]owner.Holder, error)) (r Result, err error) {
	ids, lost := make(map[uint64]uint64, len(live)), make(map[uint64]uint64)
	for object, b := range live {
		ids[object] = b.ID
	}
	r.known = make(map[uint64]uint64)
	report := func(object, id uint64, path, tensor string) {
		r.changed = append(r.changed, event.Event{
			Kind: event.Owner, PID: pid, TID: pid, BufferID: id, Object: object, Cause: path, Message: tensor,
		})
	}
	take := func(holders map[uint64]owner.Holder) {
		for object, h := range holders {
			id, path, tensor := ids[object], h.Path, h.Tensor
			if path == "" {
				continue // would say that nobody holds it
			}
			hash := maphash.Comparable(ownerSeed, [2]string{path, tensor})
			if before, ok := known[id]; !ok || before != hash {
				report(object, id, path, tensor)
			}
			r.known[id] = hash
		}
	}
	missing := func() map[uint64]uint64 {
		clear(lost)
		for object, id := range ids {
			if _, found := r.known[id]; !found {
				if _, before := known[id]; before {
					lost[object] = id
				}
			}
		}
		return lost
	}
	if len(ids) == 0 {
		return r, nil // all were freed
	}
	holders, err := find(ids)
	take(holders)
	// A program that moves an object can hide it from one search: only a second one says that nobody
	// holds it.
	if len(missing()) > 0 && err == nil {
		holders, err = find(lost)
		take(holders)
	}
	for object, id := range missing() {
		if err != nil {
			r.known[id] = known[id]
		} else {
			report(object, id, "", "")
		}
	}
	slices.SortFunc(r.changed, func(a, b event.Event) int { return cmp.Compare(a.BufferID, b.BufferID) })
	return r, err
}
