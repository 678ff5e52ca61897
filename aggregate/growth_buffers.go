package aggregate

import "iter"

// growthBuffers are the buffers of a process by their ids. There may be a million of
// them, and an event is to find one in less time than a look into memory that is in no
// cache takes: see bufferTable, whose pages these are. They lie in one piece, so that who
// collects garbage need not go through a million places.
type growthBuffers struct {
	// pages are a table with open addressing. Its length is a power of two, or 0.
	pages []growthPage
	used  int // pages that are not empty
	shift uint8
	last  int // the page that was used last
	// list are all buffers; slots count from 1.
	list  []growthBuffer
	free  uint32 // the first slot that has no buffer; 0: none
	count int
}

// A growthPage has the slots of the buffers of pageBuffers ids in a row; 0 for none.
type growthPage struct {
	number uint64 // 1 for the first ids; 0: it is empty
	slots  [pageBuffers]uint32
}

// A growthBuffer is one that lives, or a slot that is free.
type growthBuffer struct {
	site                        *growthSite // nil: the slot is free
	id, bytes, since, allocator uint64
	placed                      uint32 // how many marks there were when it was allocated
	next                        uint32 // of a slot that is free: the next one
}

// home is where a page is looked for first.
func (t *growthBuffers) home(number uint64) int { return int(number * 0x9e3779b97f4a7c15 >> t.shift) }

// page is the place of a page, and whether it is there.
func (t *growthBuffers) page(number uint64) (i int, found bool) {
	if len(t.pages) == 0 {
		return 0, false
	}
	if t.pages[t.last].number == number {
		return t.last, true
	}
	mask := len(t.pages) - 1
	for i = t.home(number); ; i = (i + 1) & mask {
		switch t.pages[i].number {
		case number:
			t.last = i
			return i, true
		case 0:
			return i, false
		}
	}
}

// get is the buffer of that id, or nil. It is valid until the next put.
func (t *growthBuffers) get(id uint64) *growthBuffer {
	i, found := t.page(id/pageBuffers + 1)
	if !found {
		return nil
	}
	slot := t.pages[i].slots[id%pageBuffers]
	if slot == 0 {
		return nil
	}
	return &t.list[slot-1]
}

// leastShrunk is how many slots there are before it is looked whether most are free.
const leastShrunk = 1 << 16

// put adds a buffer, whose id no other one has.
func (t *growthBuffers) put(b growthBuffer) {
	if len(t.list) > leastShrunk && t.count < len(t.list)/8 {
		t.shrink()
	}
	number := b.id/pageBuffers + 1
	i, found := t.page(number)
	if !found {
		if 4*(t.used+1) > 3*len(t.pages) {
			t.grow()
			i, _ = t.page(number)
		}
		t.pages[i].number = number
		t.used, t.last = t.used+1, i
	}
	slot := t.free
	if slot != 0 {
		t.free = t.list[slot-1].next
		t.list[slot-1] = b
	} else {
		t.list = append(t.list, b)
		slot = uint32(len(t.list))
	}
	t.pages[i].slots[b.id%pageBuffers] = slot
	t.count++
}

// grow makes room for twice as many pages.
func (t *growthBuffers) grow() {
	old := t.pages
	t.pages = make([]growthPage, max(8, 2*len(old)))
	t.shift = 64
	for n := len(t.pages); n > 1; n /= 2 {
		t.shift--
	}
	t.last = 0
	for _, p := range old {
		if p.number != 0 {
			i, _ := t.page(p.number)
			t.pages[i] = p
		}
	}
}

// shrink gives back the memory of buffers that are gone.
func (t *growthBuffers) shrink() {
	old := *t
	*t = growthBuffers{list: make([]growthBuffer, 0, 2*old.count)}
	for b := range old.all() {
		t.put(*b)
	}
}

// remove takes off the buffer of that id, which is there.
func (t *growthBuffers) remove(id uint64) {
	i, _ := t.page(id/pageBuffers + 1)
	page := &t.pages[i]
	slot := page.slots[id%pageBuffers]
	page.slots[id%pageBuffers] = 0
	t.list[slot-1] = growthBuffer{next: t.free}
	t.free = slot
	t.count--
	if page.slots == ([pageBuffers]uint32{}) {
		t.drop(i)
	}
}

// drop takes off a page. What had to give way to it moves up.
func (t *growthBuffers) drop(i int) {
	mask := len(t.pages) - 1
	for j := (i + 1) & mask; t.pages[j].number != 0; j = (j + 1) & mask {
		home := t.home(t.pages[j].number)
		if (j-home)&mask >= (j-i)&mask {
			t.pages[i] = t.pages[j]
			i = j
		}
	}
	t.pages[i] = growthPage{}
	t.used--
}

// all are all buffers, in any order. Each may be removed when it comes.
func (t *growthBuffers) all() iter.Seq[*growthBuffer] {
	return func(yield func(*growthBuffer) bool) {
		for i := range t.list {
			if b := &t.list[i]; b.site != nil && !yield(b) {
				return
			}
		}
	}
}
