package recording

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
)

// A storage is what can be read from anywhere, as a file can.
type storage interface {
	io.ReadSeeker
	io.ReaderAt
}

// A checkpoint is one between the events of a file.
type checkpoint struct {
	// timeNs is the time of the latest event before it, CLOCK_MONOTONIC.
	timeNs uint64
	// its blocks, and the block with which reading goes on after them
	begin, end, resume int64
}

// Last goes on at the last checkpoint in the file of a time before ns, and reports whether
// there is one: Next gives the checkpoint, and then the events that came after it. They make
// the same state as all events of the file. It is to be called before Next; without a
// checkpoint nothing changes. One with which the file begins is not looked for.
//
// What is damaged before the checkpoint is not read.
func (r *FileReader) Last(ns uint64) (found bool, err error) {
	return r.goOnAt(r.file, r.before(ns))
}

// Before is the time of the checkpoint at which Last would go on.
func (r *FileReader) Before(ns uint64) (timeNs uint64, found bool) {
	if c := r.before(ns); c != nil {
		return c.timeNs, true
	}
	return 0, false
}

func (r *FileReader) before(ns uint64) *checkpoint {
	if r.checkpoints == nil {
		r.checkpoints = findCheckpoints(r.file, r.first, r.size)
	}
	return lastBefore(r.file, r.checkpoints, ns)
}

// findCheckpoints finds the checkpoints between two offsets: it goes over the heads of the
// blocks. The last ones are behind damage, if there is any, and are not found.
func findCheckpoints(in io.ReaderAt, from, to int64) (found []checkpoint) {
	var c checkpoint
	more := false // c continues in the next block
	for at, h := range blockHeads(in, from, to) {
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
	return found
}

// blockHeads are the heads of the blocks between two offsets and where they are, up to
// the first one that is not whole.
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

// headAt reads the head of a block, and reports whether there may be one.
func headAt(in io.ReaderAt, at int64) (h head, ok bool) {
	var room [blockHead]byte
	if _, err := in.ReadAt(room[:], at); err != nil || string(room[:len(mark)]) != mark {
		return h, false
	}
	h.get(room[:])
	return h, h.packed <= maxRaw
}

// lastBefore is the last intact one of the checkpoints of a time before ns, or nil.
func lastBefore(in storage, list []checkpoint, ns uint64) *checkpoint {
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; c.timeNs < ns && c.intact(in) {
			return c
		}
	}
	return nil
}

// intact reports whether all blocks of the checkpoint are what was written, and the one
// with which reading goes on.
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

// goOnAt goes on at a checkpoint, if there is one.
func (r *Reader) goOnAt(in storage, c *checkpoint) (found bool, err error) {
	if c == nil {
		return false, nil
	}
	r.storage, r.resume, r.state, r.begun = in, c.resume, nil, false
	return true, r.jump(c.begin)
}

// jump goes on with the block at an offset, before which nothing is known.
func (r *Reader) jump(to int64) error {
	if _, err := r.storage.Seek(to, io.SeekStart); err != nil {
		return fmt.Errorf("reading %s: %w", r.name, cause(err))
	}
	r.in = bufio.NewReaderSize(r.storage, 64<<10)
	r.offset, r.rows.dictionary = to, newReading(&r.Lines)
	r.err, r.end, r.left = nil, nil, 0
	return nil
}
