package owner

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A Memory is the memory of a process, of which parts may not be readable.
type Memory interface {
	// Read fills the begin of b, and returns how much of it. An error means that nothing more can
	// be read.
	Read(at uint64, b []byte) (n int, err error)
}

// A Thread is the memory of the process of a thread, read by the caller. It waits where a page of the
// process does not answer.
type Thread int

// Read implements Memory.
func (t Thread) Read(at uint64, b []byte) (int, error) {
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(int(t), local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if errors.Is(err, unix.EFAULT) {
		return 0, nil
	}
	return n, err
}

// A paced memory is read with rests of half the time of work: a process that shares the caches and
// the memory's bandwidth with the search loses less.
type paced struct {
	Memory
	rested time.Duration // processor time at the last rest
}

// workTime is the processor time between two rests.
const workTime = 2 * time.Millisecond

// Read implements Memory.
func (p *paced) Read(at uint64, b []byte) (int, error) {
	if worked := processorTime() - p.rested; worked > workTime {
		time.Sleep(worked / 2)
		p.rested += worked
	}
	return p.Memory.Read(at, b)
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

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
	from Memory
	// Each block has one place. tags has the address of the block that is in a place. If there is one,
	// the lowest bit is set, and one above it for each page that could be read.
	tags []uint64
	data []byte
	// left is the number of bytes, of most, that may still be read; err is why no more can be read.
	left, most int64
	err        error
}

func newPages(from Memory) *pages {
	p := &pages{from: from, tags: make([]uint64, keptBlocks), data: make([]byte, keptBlocks*blockSize)}
	p.allow(defaultBytes)
	return p
}

// allow lets so many bytes be read, and returns why no more could be read before.
func (p *pages) allow(bytes int64) (before error) {
	before, p.err = p.err, nil
	p.left, p.most = bytes, bytes
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
func (p *pages) readBlock(at, place uint64) uint64 {
	tag := at | 1
	for page := uint64(0); page < pagesPerBlock; {
		if p.left <= 0 && p.err == nil {
			p.err = tooMany{p.most >> 20, "MiB of memory"}
		}
		if p.err != nil {
			p.tags[place] = 0
			return 0
		}
		n, err := p.from.Read(at+page*pageSize, p.data[place*blockSize:][page*pageSize:blockSize])
		p.err = err
		p.left -= int64(max(n, pageSize))
		for ; n >= pageSize; n -= pageSize {
			tag |= 2 << page
			page++
		}
		page++ // which cannot be read
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
	var b [16]byte
	p.left -= int64(len(b))
	n, err := p.from.Read(at, b[:])
	return err != nil || n < len(b) || binary.LittleEndian.Uint64(b[:]) == first && binary.LittleEndian.Uint64(b[8:]) == second
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
