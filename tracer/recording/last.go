package recording

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"ttmem/tracer/host"
)

// A storage allows reads at any offset, as a file does.
type storage interface {
	io.ReadSeeker
	io.ReaderAt
}

// A checkpoint is a checkpoint between the events of a file.
type checkpoint struct {
	// timeNs is the time of the latest event before it, CLOCK_MONOTONIC.
	timeNs uint64
	// the offsets of its blocks, and of the block at which reading continues
	begin, end, resume int64
}

// Last makes reading continue at the last checkpoint before the time ns. Next then returns the
// checkpoint and the events after it, which give the same state as all events of the file. Call Last
// before Next; if there is no checkpoint, it changes nothing. The checkpoint at the beginning of a
// file does not count.
//
// Damage before the checkpoint goes unnoticed.
func (r *FileReader) Last(ns uint64) error { return r.goOnAt(r.file, r.before(ns)) }

// Before returns the time of the checkpoint that Last would use; 0 if there is none.
func (r *FileReader) Before(ns uint64) uint64 {
	if c := r.before(ns); c != nil {
		return c.timeNs
	}
	return 0
}

func (r *FileReader) before(ns uint64) *checkpoint {
	r.index()
	return lastBefore(r.file, r.checkpoints, ns)
}

// index finds the checkpoints and the blocks of Owners.
func (r *FileReader) index() {
	if !r.indexed {
		r.checkpoints, r.owners = findBlocks(r.file, r.first, r.size)
		r.indexed = true
	}
}

// findBlocks finds the checkpoints and the blocks of Owners between two offsets by the heads of the
// blocks. It does not find those after damage.
func findBlocks(in io.ReaderAt, from, to int64) (found []checkpoint, owners []ownerBlock) {
	var c checkpoint
	more := false // c continues in the next block
	for at, h := range blockHeads(in, from, to) {
		if h.kind == blockEvents && h.flags&blockOwners != 0 {
			owners = append(owners, ownerBlock{at, h.size(), h.latest})
		}
		if h.kind != blockState {
			more = false
			continue
		}
		if !more {
			c = checkpoint{timeNs: h.latest, begin: at, resume: int64(h.earliest)}
		}
		c.end, more = at+h.size(), h.flags&blockMore != 0
		if !more && 0 < c.resume && c.resume < c.end {
			found = append(found, c)
		}
	}
	return found, owners
}

// blockHeads returns the heads of the blocks between two offsets, with their offsets, up to the
// first incomplete block.
func blockHeads(in io.ReaderAt, from, to int64) iter.Seq2[int64, head] {
	return func(yield func(int64, head) bool) {
		for at := from; ; {
			h, ok := headAt(in, at)
			if !ok || at+h.size() > to || !yield(at, h) || h.kind == blockEnd {
				return
			}
			at += h.size()
		}
	}
}

// headAt reads the head of a block, and reports whether it may be valid.
func headAt(in io.ReaderAt, at int64) (h head, ok bool) {
	var room [blockHead]byte
	if _, err := in.ReadAt(room[:], at); err != nil || string(room[:len(mark)]) != mark {
		return h, false
	}
	h.get(room[:])
	return h, h.packed <= maxRaw
}

// lastBefore returns the last intact checkpoint before the time ns, or nil.
func lastBefore(in storage, list []checkpoint, ns uint64) *checkpoint {
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; c.timeNs < ns && c.intact(in) {
			return c
		}
	}
	return nil
}

// intact reports whether all blocks of the checkpoint, and the block at which reading continues,
// are undamaged.
func (c *checkpoint) intact(in io.ReaderAt) bool {
	for at, h := range blockHeads(in, c.begin, c.end) {
		block := make([]byte, h.size())
		if _, err := in.ReadAt(block, at); err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		if crc32.Checksum(block[8:], castagnoli) != h.checksum {
			return false
		}
	}
	_, ok := headAt(in, c.resume)
	return ok
}

// goOnAt continues at a checkpoint, unless that is nil.
func (r *Reader) goOnAt(in storage, c *checkpoint) error {
	if c == nil {
		return nil
	}
	r.storage, r.resume, r.state, r.begun = in, c.resume, nil, false
	return r.jump(c.begin)
}

// jump continues at the block at an offset and forgets all definitions.
func (r *Reader) jump(to int64) error {
	if _, err := r.storage.Seek(to, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s: %w", r.name, host.WithoutPath(err))
	}
	r.in = bufio.NewReaderSize(r.storage, 64<<10)
	r.offset, r.rows.dictionary = to, newReading(&r.Lines)
	r.err, r.end, r.left = nil, nil, 0
	return nil
}
