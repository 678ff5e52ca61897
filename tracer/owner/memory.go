package owner

import (
	"encoding/binary"
	"strings"

	"ttmem/tracer/host"
)

const (
	pageSize = 4096
	// blockSize is how much is read at once: a call costs as much as reading some pages.
	blockSize     = 4 * pageSize
	pagesPerBlock = blockSize / pageSize
	// keptBlocks are most of those of a heap of a million objects.
	keptBlocks = 96 << 20 / blockSize
)

// pages are the parts of a memory that were read.
type pages struct {
	host.Bounded
	// Each block has one place. tags has the address of the block that is in a place. If there is one,
	// the lowest bit is set, and one above it for each page that could be read.
	tags []uint64
	data []byte
	// err is why no more can be read.
	err error
}

func newPages(from host.Memory) *pages {
	p := &pages{tags: make([]uint64, keptBlocks), data: make([]byte, keptBlocks*blockSize)}
	p.Memory = from
	p.allow(defaultBytes)
	return p
}

// allow lets so many bytes be read, and returns why no more could be read before.
func (p *pages) allow(bytes int64) (before error) {
	before, p.err = p.err, nil
	p.Left, p.Over = bytes, tooMany{bytes >> 20, "MiB of memory"}
	return before
}

// forget makes later reads see the memory as it is then.
func (p *pages) forget() { clear(p.tags) }

// forgetAt forgets n bytes.
func (p *pages) forgetAt(at, n uint64) {
	if n >= keptBlocks*blockSize {
		p.forget()
		return
	}
	for block := at / blockSize; block <= (at+n)/blockSize; block++ {
		p.tags[block%keptBlocks] = 0
	}
}

// page returns the page that begins at an address; nil if it cannot be read.
func (p *pages) page(at uint64) []byte {
	block := at &^ (blockSize - 1)
	place := at / blockSize % keptBlocks
	tag := p.tags[place]
	if tag&^(blockSize-2) != block|1 {
		tag = p.readBlock(block, place)
	}
	inBlock := at % blockSize
	if tag>>(1+inBlock/pageSize)&1 == 0 {
		return nil
	}
	return p.data[place*blockSize+inBlock:][:pageSize:pageSize]
}

// readBlock reads a block to a place, and returns its tag.
func (p *pages) readBlock(at, place uint64) (tag uint64) {
	var pieces [pagesPerBlock]host.Piece
	for i := range pieces {
		offset := uint64(i) * pageSize
		pieces[i] = host.Piece{Address: at + offset, Data: p.data[place*blockSize+offset:][:pageSize]}
	}
	if p.err == nil {
		p.err = p.Read(pieces[:])
	}
	if p.err == nil {
		tag = at | 1
	}
	for i := range pieces {
		if p.err == nil && pieces[i].OK {
			tag |= 2 << i
		}
	}
	p.tags[place] = tag
	return tag
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

// isStill reports whether the memory, and not only what was read of it, has two words.
func (p *pages) isStill(at, first, second uint64) bool {
	now := []host.Piece{{Address: at, Data: make([]byte, 16)}}
	err := p.Read(now)
	b := now[0].Data
	return err != nil || !now[0].OK || binary.LittleEndian.Uint64(b) == first && binary.LittleEndian.Uint64(b[8:]) == second
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

// cString returns the text at an address.
func (p *pages) cString(at uint64) string {
	var b [maxName]byte
	n := 0
	for n < len(b) && at != 0 {
		if b[n] = p.byte(at + uint64(n)); b[n] == 0 {
			break
		}
		n++
	}
	return strings.ToValidUTF8(string(b[:n]), "\ufffd")
}
