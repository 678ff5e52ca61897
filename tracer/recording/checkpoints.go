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

// A checkpoint is one that a file has: at its beginning, where it follows another file, or
// between its events.
type checkpoint struct {
	// timeNs is the time of the latest event before it, CLOCK_MONOTONIC.
	timeNs uint64
	// its blocks, and the block with which reading goes on after them: 0 is the next one
	begin, end, resume int64
}

// leads reports whether it is at the beginning of the file, and not between its events.
func (c *checkpoint) leads() bool { return c.resume == 0 }

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
func findCheckpoints(in io.ReaderAt, from, to int64) (found []checkpoint) {
	more := false // the last one found goes on
	for at, h := range blockHeads(in, from, to) {
		if h.kind != blockState {
			if more {
				found = found[:len(found)-1]
			}
			more = false
			continue
		}
		if !more {
			found = append(found, checkpoint{timeNs: h.latest, begin: at, resume: int64(h.earliest)})
		}
		found[len(found)-1].end = at + int64(blockHead) + int64(h.packed)
		more = h.flags&blockMore != 0
	}
	if more {
		found = found[:len(found)-1]
	}
	return slices.DeleteFunc(found, func(c checkpoint) bool { return c.resume < 0 || c.resume >= c.end })
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

// intact reports whether all blocks of the checkpoint are what was written, and the one
// with which reading goes on.
func (c *checkpoint) intact(in io.ReaderAt) bool {
	var room []byte
	for at := c.begin; at < c.end; at += int64(len(room)) {
		var ok bool
		if _, room, ok = blockAt(in, at, room); !ok {
			return false
		}
	}
	_, _, ok := headAt(in, c.resume)
	return ok
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
