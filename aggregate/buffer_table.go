package aggregate

import "iter"

// A bufferTable has the buffers of a process by id. Ids rise with time and most buffers are
// freed soon, so that the buffers of successive events are close together and stay in the
// processor's caches. A map of a million buffers would double the time of an event.
type bufferTable struct {
	// pages are by number. None is empty.
	pages map[uint64]*bufferPage
	// last is the page that was used last; nil if there is none.
	last       *bufferPage
	lastNumber uint64
	len        int
}

// A bufferPage has the size of a cache line. With one live buffer it takes as much memory
// as the buffer itself.
type bufferPage [pageBuffers]*buffer

const pageBuffers = 8

// page returns the page of an id; nil if there is none.
func (t *bufferTable) page(id uint64) *bufferPage {
	number := id / pageBuffers
	if t.last == nil || t.lastNumber != number {
		t.last, t.lastNumber = t.pages[number], number
	}
	return t.last
}

// get returns the buffer of that id, or nil.
func (t *bufferTable) get(id uint64) *buffer {
	if page := t.page(id); page != nil {
		return page[id%pageBuffers]
	}
	return nil
}

// put adds a buffer. No other buffer may have its id.
func (t *bufferTable) put(b *buffer) {
	page := t.page(b.id)
	if page == nil {
		if t.pages == nil {
			t.pages = make(map[uint64]*bufferPage)
		}
		page = new(bufferPage)
		t.pages[b.id/pageBuffers], t.last = page, page
	}
	page[b.id%pageBuffers] = b
	t.len++
}

// remove removes a buffer that is in the table.
func (t *bufferTable) remove(b *buffer) {
	page := t.page(b.id)
	page[b.id%pageBuffers] = nil
	t.len--
	if *page == (bufferPage{}) {
		delete(t.pages, b.id/pageBuffers)
		t.last = nil
	}
}

// removeAll takes off the buffers of an arena, of which there are so many.
func (t *bufferTable) removeAll(of *arena, count int) {
	switch count {
	case 0:
		return
	case t.len:
		*t = bufferTable{}
		return
	}
	for number, page := range t.pages {
		for i, b := range page {
			if b != nil && b.arena == of {
				page[i] = nil
			}
		}
		if *page == (bufferPage{}) {
			delete(t.pages, number)
		}
	}
	t.len -= count
	t.last = nil
}

// all returns all buffers, in any order. A buffer may be removed when it is yielded.
func (t *bufferTable) all() iter.Seq[*buffer] {
	return func(yield func(*buffer) bool) {
		for _, page := range t.pages {
			for _, b := range page {
				if b != nil && !yield(b) {
					return
				}
			}
		}
	}
}
