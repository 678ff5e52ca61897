package owner

import (
	"context"
	"encoding/binary"

	"ttmem/tracer/host"
)

// A Memory is the memory of a process, of which parts may not be readable.
type Memory interface {
	// Memory fills the parts up to the first that cannot be read completely, and returns their
	// number. An error means that nothing more can be read.
	Memory(ctx context.Context, parts []host.Range) (done int, err error)
}

const (
	pageSize = 4096
	// maxPages bounds the young pages that are kept, and twice that the old ones.
	maxPages = 24 << 20 / pageSize
	// together is how many pages are read together.
	together = 8
)

// pages are the parts of a memory that were read.
type pages struct {
	ctx  context.Context
	from Memory
	// young are the pages that were used last, and old those before them. Where there are too many
	// young ones, they become old, and the old ones that were not used since are dropped.
	young, old map[uint64]*[pageSize]byte
	free       []*[pageSize]byte
	// last is the page that was used last, at lastAt
	last   *[pageSize]byte
	lastAt uint64
	// left is the number of bytes that may still be read; err is why no more can be read.
	left int64
	err  error
}

func newPages(ctx context.Context, from Memory, limit int64) *pages {
	p := &pages{ctx: ctx, from: from, left: limit}
	p.forget()
	return p
}

// forget makes later reads see the memory as it is then.
func (p *pages) forget() {
	p.young, p.old = make(map[uint64]*[pageSize]byte), make(map[uint64]*[pageSize]byte)
	p.last, p.lastAt = nil, 1
}

// page returns the page that begins at an address; nil if it cannot be read.
func (p *pages) page(at uint64) *[pageSize]byte {
	if at == p.lastAt {
		return p.last
	}
	page, known := p.young[at]
	if !known {
		if len(p.young) >= maxPages || len(p.old) >= 2*maxPages {
			for _, unused := range p.old {
				if unused != nil {
					p.free = append(p.free, unused)
				}
			}
			p.young, p.old = make(map[uint64]*[pageSize]byte, maxPages), p.young
		}
		if page, known = p.old[at]; known {
			delete(p.old, at)
		} else {
			page = p.readPage(at)
		}
		p.young[at] = page
	}
	p.last, p.lastAt = page, at
	return page
}

// readPage reads a page and those after it, because a call costs more than reading them. They count
// as old.
func (p *pages) readPage(at uint64) *[pageSize]byte {
	if p.left <= 0 && p.err == nil {
		p.err = errTooMuch
	}
	if p.err != nil {
		return nil
	}
	parts := make([]host.Range, 0, together)
	for next := at; len(parts) < together; next += pageSize {
		if next != at && p.has(next) {
			break
		}
		page := new([pageSize]byte)
		if n := len(p.free); n > 0 {
			page, p.free = p.free[n-1], p.free[:n-1]
		}
		parts = append(parts, host.Range{Address: next, Data: page[:]})
	}
	done, err := p.from.Memory(p.ctx, parts)
	if p.err = err; err != nil {
		done = 0
	}
	p.left -= int64(max(done, 1)) * pageSize
	for i, part := range parts {
		page := (*[pageSize]byte)(part.Data)
		switch {
		case i >= done:
			p.free = append(p.free, page)
		case i > 0:
			p.old[part.Address] = page
		}
	}
	if done == 0 {
		return nil
	}
	return (*[pageSize]byte)(parts[0].Data)
}

func (p *pages) has(at uint64) bool {
	if _, young := p.young[at]; young {
		return true
	}
	_, old := p.old[at]
	return old
}

// read fills b, and reports whether all of it could be read.
func (p *pages) read(at uint64, b []byte) bool {
	for len(b) > 0 {
		offset := at % pageSize
		page := p.page(at - offset)
		if page == nil {
			return false
		}
		n := copy(b, page[offset:])
		b, at = b[n:], at+uint64(n)
	}
	return true
}

// word returns the 8 bytes at an address; 0 if they cannot be read.
func (p *pages) word(at uint64) uint64 {
	if offset := at % pageSize; offset <= pageSize-8 {
		if page := p.page(at - offset); page != nil {
			return binary.LittleEndian.Uint64(page[offset:])
		}
		return 0
	}
	var b [8]byte
	if !p.read(at, b[:]) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// byte returns the byte at an address; 0 if it cannot be read.
func (p *pages) byte(at uint64) byte {
	if page := p.page(at - at%pageSize); page != nil {
		return page[at%pageSize]
	}
	return 0
}
