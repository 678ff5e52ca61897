// Package byid has a table of values by id, for ids that rise with time.
package byid

import (
	"iter"
	"maps"
	"slices"
)

// A Table has values by id. The zero value is empty. Ids rise with time and most buffers are
// freed soon, so that the buffers of successive events are close together and stay in the
// processor's caches. A map of a million buffers would double the time of an event.
type Table[T any] struct {
	// pages are by number. None but last is empty.
	pages map[uint64]*page[T]
	// last is the page that was used last; nil if there is none. It stays when it becomes empty, because the
	// next ids are in it.
	last       *page[T]
	lastNumber uint64
	len        int
}

// A page has the size of a cache line. With one live buffer it takes as much memory as the
// buffer itself.
type page[T any] [pageSize]*T

const pageSize = 8

// page returns the page of an id; nil if there is none.
func (t *Table[T]) page(id uint64) *page[T] {
	number := id / pageSize
	if t.last == nil || t.lastNumber != number {
		if t.last != nil && *t.last == (page[T]{}) {
			delete(t.pages, t.lastNumber)
		}
		t.last, t.lastNumber = t.pages[number], number
	}
	return t.last
}

// Len returns the number of values.
func (t *Table[T]) Len() int { return t.len }

// Get returns the value of that id, or nil.
func (t *Table[T]) Get(id uint64) *T {
	if page := t.page(id); page != nil {
		return page[id%pageSize]
	}
	return nil
}

// Put adds a value. No other value may have its id.
func (t *Table[T]) Put(id uint64, v *T) {
	to := t.page(id)
	if to == nil {
		if t.pages == nil {
			t.pages = make(map[uint64]*page[T])
		}
		to = new(page[T])
		t.pages[id/pageSize], t.last = to, to
	}
	to[id%pageSize] = v
	t.len++
}

// Remove removes the value of an id that is in the table.
func (t *Table[T]) Remove(id uint64) {
	from := t.page(id)
	from[id%pageSize] = nil
	t.len--
}

// RemoveAll removes the values that match; count is their number.
func (t *Table[T]) RemoveAll(count int, matches func(*T) bool) {
	switch count {
	case 0:
		return
	case t.len:
		*t = Table[T]{}
		return
	}
	for number, from := range t.pages {
		for i, v := range from {
			if v != nil && matches(v) {
				from[i] = nil
			}
		}
		if *from == (page[T]{}) {
			delete(t.pages, number)
		}
	}
	t.len -= count
	t.last = nil
}

// All returns all values, in any order. A value may be removed when it is yielded.
func (t *Table[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, page := range t.pages {
			for _, v := range page {
				if v != nil && !yield(v) {
					return
				}
			}
		}
	}
}

// Sorted returns all values, in order of their ids.
func (t *Table[T]) Sorted() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, number := range slices.Sorted(maps.Keys(t.pages)) {
			for _, v := range t.pages[number] {
				if v != nil && !yield(v) {
					return
				}
			}
		}
	}
}
