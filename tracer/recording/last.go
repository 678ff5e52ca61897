package recording

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A storage is what can be read from anywhere, as a file can.
type storage interface {
	io.ReadSeeker
	io.ReaderAt
}

// Last goes on at the last checkpoint in the file, and reports whether there is one:
// Next gives the events of the checkpoint, and then those that came after it. They make
// the same state as all events of the file. It is to be called before Next; without a
// checkpoint nothing changes.
//
// What is damaged before the checkpoint is not met.
func (r *FileReader) Last() (found bool, err error) {
	if r.size == 0 {
		return false, nil // a pipe
	}
	return r.last(r.file, r.size)
}

// last is Last, of something of that size.
func (r *Reader) last(in storage, size int64) (found bool, err error) {
	sections := findSections(in, r.offset, size)
	for i := len(sections) - 1; i >= 0; i-- {
		s := &sections[i]
		if !s.intact(in) {
			continue
		}
		r.storage, r.resume, r.sectionEnd = in, s.resume, s.end
		return true, r.jump(s.begin)
	}
	return false, nil
}

// Left begins again, and passes over most of what says nothing of buffers that nobody
// freed: Next gives all events that tell of the end of such a buffer, and some others.
// A pipe cannot begin again.
func (r *FileReader) Left() error {
	r.onlyLeft, r.sectionEnd, r.storage = true, 0, r.file
	r.err, r.end, r.rows.left = nil, nil, 0
	return r.jump(r.first)
}

// foundSection is where the blocks of a section lie, and the block with which reading
// goes on.
type foundSection struct{ begin, end, resume int64 }

// findSections finds the sections between two offsets: it goes over the heads of the
// blocks. The last ones are behind damage, if there is any, and are not found.
func findSections(in io.ReaderAt, from, to int64) (found []foundSection) {
	var begins []int64
	for at := from; ; {
		h, _, ok := headAt(in, at)
		end := at + int64(blockHead) + int64(h.packed)
		if !ok || end > to {
			return found
		}
		begins = append(begins, at)
		if h.kind == blockEnd {
			return found
		}
		if h.kind == blockSection && h.packed < 1<<10 {
			s, ok := sectionAt(in, at, h)
			_, known := slices.BinarySearch(begins, s.resume)
			if ok && known && s.end <= to {
				found = append(found, s)
			}
		}
		at = end
	}
}

// headAt reads the head of a block, and reports whether there may be one.
func headAt(in io.ReaderAt, at int64) (h head, checksum uint32, ok bool) {
	var room [blockHead]byte
	if _, err := in.ReadAt(room[:], at); err != nil || string(room[:len(mark)]) != mark {
		return h, 0, false
	}
	checksum = h.get(room[:])
	return h, checksum, h.packed <= maxRaw
}

// blockAt reads a block, and reports whether it is intact.
func blockAt(in io.ReaderAt, at int64, room []byte) (h head, block []byte, ok bool) {
	h, checksum, ok := headAt(in, at)
	if !ok {
		return h, room, false
	}
	block = slices.Grow(room[:0], blockHead+int(h.packed))[:blockHead+int(h.packed)]
	if _, err := in.ReadAt(block, at); err != nil && !errors.Is(err, io.EOF) {
		return h, block, false
	}
	return h, block, crc32.Checksum(block[8:], castagnoli) == checksum
}

// sectionAt reads the block that begins a section, and reports whether it makes sense.
func sectionAt(in io.ReaderAt, at int64, h head) (s foundSection, ok bool) {
	_, block, ok := blockAt(in, at, nil)
	if !ok || h.flags&blockPlain == 0 {
		return s, false
	}
	var back, length uint64
	c := cursor{b: block[blockHead:]}
	for f := c.field(); f.number != 0; f = c.field() {
		switch f.number {
		case sectionBack:
			back = f.value
		case sectionLength:
			length = f.value
		}
	}
	if c.bad || back > uint64(at) || length == 0 || length > 1<<48 {
		return s, false
	}
	s.begin = at + int64(len(block))
	s.end, s.resume = s.begin+int64(length), at-int64(back)
	return s, true
}

// intact reports whether all blocks of the section are what was written.
func (s *foundSection) intact(in io.ReaderAt) bool {
	var room []byte
	at := s.begin
	for at < s.end {
		h, block, ok := blockAt(in, at, room)
		if !ok || h.kind != blockState {
			return false
		}
		room = block
		at += int64(len(block))
	}
	return at == s.end
}

// jump goes on with the block at an offset, before which nothing is known.
func (r *Reader) jump(to int64) error {
	if _, err := r.storage.Seek(to, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s: %w", r.name, cause(err))
	}
	r.in = bufio.NewReaderSize(r.storage, 64<<10)
	r.offset, r.rows.of = to, newDictionary()
	return nil
}
