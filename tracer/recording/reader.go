package recording

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"ttmem/tracer/event"
)

// A Reader reads a recording. Only one goroutine may use it at a time; the stacks
// of its events may be used by any.
type Reader struct {
	// Lines, where it is set, gives the calls at the address of a frame, innermost first,
	// with their lines: what the recording has of it, or more.
	Lines func(event.Frame) []event.Frame

	in     *bufio.Reader
	name   string
	zstd   *zstd.Decoder
	header Header

	begin      int64 // of the block that is being read
	offset     int64 // of its end
	checkpoint bool
	rows       rows
	packed     []byte
	payload    []byte
	end        *End
	err        error

	// storage is what a section is read from, up to sectionEnd; then reading goes on
	// at resume. Without a section it is nil.
	storage            storage
	sectionEnd, resume int64
	onlyLeft           bool // Left was called
}

// NewReader returns a Reader of a recording, whose header it reads at once.
func NewReader(r io.Reader) (*Reader, error) { return newReader(r, "the stream") }

func newReader(in io.Reader, name string) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 64<<10), name: name}
	var err error
	if r.header, r.offset, err = readHeader(r.in, name); err != nil {
		return nil, err
	}
	r.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxRaw), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	r.rows.of = newDictionary(&r.Lines)
	return r, nil
}

// Header says where and when the recording was made.
func (r *Reader) Header() Header { return r.header }

// End is the end mark. There is none before all was read, nor where the recording
// goes on or its writer was killed.
func (r *Reader) End() (End, bool) {
	if r.end == nil {
		return End{}, false
	}
	return *r.end, true
}

// Checkpoint reports whether the event that Next gave last repeats what earlier
// files of the recording have: whoever read those passes over it.
func (r *Reader) Checkpoint() bool { return r.checkpoint }

// Offset is how much of the recording was read, in bytes, up to the end of the
// block that the last event is from.
func (r *Reader) Offset() int64 { return r.offset }

// Next fills e with the next event. Its slices must not be modified.
//
// After the last event comes io.EOF; End tells whether the recording ends there
// or is still being written, or its writer was killed. A *TruncatedError or
// *DamagedError comes after the last event that can be read.
func (r *Reader) Next(e *event.Event) error {
	for r.rows.left == 0 {
		if r.err == nil {
			r.err = r.nextBlock()
		}
		if r.err != nil {
			return r.err
		}
	}
	if !r.rows.next(e) {
		r.rows.left = 0
		r.err = r.damaged("its events make no sense")
		if r.rows.newer {
			r.err = r.damaged(newer)
		}
		return r.err
	}
	return nil
}

// newer is what is wrong where there is what this version has not.
const newer = "a newer ttmem can read it"

func (r *Reader) damaged(cause string) error { return &DamagedError{r.name, r.begin, cause} }

// failed is what to say where the stream has no more.
func (r *Reader) failed(err error) error {
	if atEnd(err) {
		return &TruncatedError{r.name, r.begin}
	}
	return fmt.Errorf("reading %s: %w", r.name, cause(err))
}

// nextBlock reads a block, or passes over one that is for others.
func (r *Reader) nextBlock() error {
	if r.end != nil {
		return io.EOF
	}
	if r.sectionEnd != 0 && r.offset == r.sectionEnd {
		r.sectionEnd = 0
		if err := r.jump(r.resume); err != nil {
			return err
		}
	}
	r.begin = r.offset
	var room [blockHead]byte
	n, err := io.ReadFull(r.in, room[:])
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if !bytes.HasPrefix(room[:n], []byte(mark)[:min(n, len(mark))]) {
		return r.damaged("no block begins here")
	}
	if err != nil {
		return r.failed(err)
	}
	var h head
	checksum := h.get(room[:])
	if h.packed > maxRaw || h.raw > maxRaw || h.events > h.raw || h.flags&blockPlain != 0 && h.packed != h.raw {
		return r.damaged("the head of the block makes no sense")
	}
	r.packed = slices.Grow(r.packed[:0], int(h.packed))[:h.packed]
	if _, err := io.ReadFull(r.in, r.packed); err != nil {
		return r.failed(err)
	}
	if crc32.Update(crc32.Checksum(room[8:], castagnoli), castagnoli, r.packed) != checksum {
		return r.damaged("its checksum is wrong")
	}
	if h.kind == blockState && r.sectionEnd != 0 {
		h.kind = blockEvents
	}
	r.offset += int64(blockHead) + int64(h.packed)
	if h.kind >= 'a' {
		return nil // it is for others
	}
	payload := r.packed
	if h.flags&blockPlain == 0 {
		r.payload = slices.Grow(r.payload[:0], int(h.raw))
		r.payload, err = r.zstd.DecodeAll(r.packed, r.payload[:0:h.raw])
		if err != nil || len(r.payload) != int(h.raw) {
			r.payload = r.payload[:0]
			return r.damaged("it cannot be decompressed")
		}
		payload = r.payload
	}
	switch {
	case h.kind == blockEvents:
		if h.flags&blockReset != 0 {
			r.rows.of = newDictionary(&r.Lines)
		}
		if !r.rows.begin(payload, h.events) {
			return r.damaged("its definitions make no sense")
		}
		if r.onlyLeft && h.flags&blockNoneLeft != 0 {
			r.rows.skip()
		}
		r.checkpoint = h.flags&blockCheckpoint != 0
	case h.kind == blockEnd:
		end, ok := readEnd(payload)
		if !ok {
			return r.damaged("its end mark makes no sense")
		}
		r.end = &end
	case h.kind < 'a':
		return r.damaged(newer)
	}
	return nil
}
