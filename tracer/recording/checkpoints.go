package recording

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
)

// A Checkpoint is one that a file has: at its beginning, where it follows another file,
// or between its events.
type Checkpoint struct {
	// TimeNs is the time of the latest event before it, CLOCK_MONOTONIC; 0 where it
	// tells of nothing.
	TimeNs uint64
	// its blocks, and the block with which reading goes on after them
	begin, end, resume int64
	leads              bool // it is at the beginning of the file
}

// Offset is where in the file that begins which comes after the checkpoint: events before
// are in it.
func (c *Checkpoint) Offset() int64 { return c.resume }

// Size is how many bytes of the file it takes.
func (c *Checkpoint) Size() int64 { return c.end - c.begin }

// Leads reports whether it is at the beginning of the file, and not between its events.
func (c *Checkpoint) Leads() bool { return c.leads }

// Checkpoints are those of the file, in order of time, up to the first damage.
func (r *FileReader) Checkpoints() []Checkpoint {
	if r.size == 0 {
		return nil // a pipe
	}
	return findCheckpoints(r.file, r.first, r.size)
}

// From goes on at a checkpoint, and reports whether it is intact: Next gives its events,
// of which Reader.Checkpoint reports true, and then those that came after it. Where it
// is not, nothing changes.
func (r *FileReader) From(c Checkpoint) (intact bool, err error) {
	if !c.intact(r.file) {
		return false, nil
	}
	return true, r.from(r.file, &c)
}

// from is From, of a checkpoint that is intact.
func (r *Reader) from(in storage, c *Checkpoint) error {
	r.storage, r.resume, r.sectionEnd = in, c.resume, c.end
	if c.leads {
		r.sectionEnd = 0
	}
	r.onlyLeft = false
	return r.jump(c.begin)
}

// blockHeads are the heads of the blocks between two offsets and where they are, up to
// the first one that is not whole.
func blockHeads(in io.ReaderAt, from, to int64) iter.Seq2[int64, head] {
	return func(yield func(int64, head) bool) {
		for at := from; ; {
			h, _, ok := headAt(in, at)
			end := at + int64(blockHead) + int64(h.packed)
			if !ok || end > to || !yield(at, h) || h.kind == blockEnd {
				return
			}
			at = end
		}
	}
}

// findCheckpoints finds those between two offsets: it goes over the heads of the
// blocks. The last ones are behind damage, if there is any, and are not found.
func findCheckpoints(in io.ReaderAt, from, to int64) (found []Checkpoint) {
	var begins []int64
	var inside *Checkpoint // whose blocks these are
	leading := true        // nothing else was met
	for at, h := range blockHeads(in, from, to) {
		begins = append(begins, at)
		end := at + int64(blockHead) + int64(h.packed)
		switch {
		case h.kind == blockEvents && h.flags&blockCheckpoint != 0 && leading:
			if len(found) == 0 {
				found = append(found, Checkpoint{begin: from, leads: true})
			}
			c := &found[0]
			c.end, c.resume, c.TimeNs = end, end, max(c.TimeNs, h.latest)
		case h.kind == blockSection && h.packed < 1<<10:
			c, ok := sectionAt(in, at, h)
			_, known := slices.BinarySearch(begins, c.resume)
			if ok && known && c.end <= to {
				found = append(found, c)
				inside = &found[len(found)-1]
			}
		case h.kind == blockState && inside != nil && at < inside.end:
			inside.TimeNs = max(inside.TimeNs, h.latest)
		}
		leading = leading && h.kind == blockEvents && h.flags&blockCheckpoint != 0
	}
	return found
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
func sectionAt(in io.ReaderAt, at int64, h head) (c Checkpoint, ok bool) {
	_, block, ok := blockAt(in, at, nil)
	if !ok || h.flags&blockPlain == 0 {
		return Checkpoint{}, false
	}
	var back, length uint64
	fields := cursor{b: block[blockHead:]}
	for f := fields.field(); f.number != 0; f = fields.field() {
		switch f.number {
		case sectionBack:
			back = f.value
		case sectionLength:
			length = f.value
		}
	}
	if fields.bad || back > uint64(at) || length == 0 || length > 1<<48 {
		return Checkpoint{}, false
	}
	c.begin = at + int64(len(block))
	c.end, c.resume = c.begin+int64(length), at-int64(back)
	return c, true
}

// intact reports whether all blocks of the checkpoint are what was written.
func (c *Checkpoint) intact(in io.ReaderAt) bool {
	kind := byte(blockState)
	if c.leads {
		kind = blockEvents
	}
	var room []byte
	at := c.begin
	for at < c.end {
		h, block, ok := blockAt(in, at, room)
		if !ok || h.kind != kind {
			return false
		}
		room = block
		at += int64(len(block))
	}
	return at == c.end
}

// jump goes on with the block at an offset, before which nothing is known.
func (r *Reader) jump(to int64) error {
	if _, err := r.storage.Seek(to, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s: %w", r.name, cause(err))
	}
	r.in = bufio.NewReaderSize(r.storage, 64<<10)
	r.offset, r.rows.of = to, newDictionary(&r.Lines)
	r.err, r.end, r.rows.left = nil, nil, 0
	return nil
}
