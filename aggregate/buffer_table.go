package aggregate

import "iter"

// A bufferTable has the buffers of a process by their ids. Those go up with time, and
// most buffers are freed soon: what events are about is close together, and stays in
// the caches of the processor. To look up one of a million that lie anywhere takes as
// long as all else of an event.
type bufferTable struct {
	// pages have an entry for each of their ids, by the number of the page. None is
	// empty.
	pages map[uint64]*bufferPage
	// last is the page that was used last; nil: none is known.
	last       *bufferPage
	lastNumber uint64
	len        int
}

// A bufferPage is a cache line. Where but one of its buffers lives, that takes as much
// as the buffer.
type bufferPage [pageBuffers]*buffer

const pageBuffers = 8

// page is the one that an id is on; nil where there is none.
func (t *bufferTable) page(id uint64) *bufferPage {
	number := id / pageBuffers
	if t.last == nil || t.lastNumber != number {
		t.last, t.lastNumber = t.pages[number], number
	}
	return t.last
}

// get is the buffer of that id, or nil.
func (t *bufferTable) get(id uint64) *buffer {
	if page := t.page(id); page != nil {
		return page[id%pageBuffers]
	}
	return nil
}

// put adds a buffer, whose id no other one has.
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

// remove takes off a buffer that is there.
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

// all are all buffers, in any order. Each may be removed when it comes.
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
