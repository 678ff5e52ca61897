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

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A Reader reads a recording. Only one goroutine may use it at a time; any goroutine may use the
// stacks of its events.
type Reader struct {
	// Lines, if set, returns the calls at the address of a frame with their lines, innermost
	// first: at least those in the recording.
	Lines func(event.Frame) []event.Frame

	in     *bufio.Reader
	name   string
	zstd   *zstd.Decoder
	header Header

	begin   int64 // of the present block
	offset  int64 // of the end of the present block
	rows    rows
	left    uint32 // unread events of the block
	packed  []byte
	payload []byte
	end     *End
	err     error

	// begun is true once events or a checkpoint were read. Other events are skipped.
	begun bool
	// state is the checkpoint that is being read, and checkpoint a complete one for Next to
	// return.
	state      *event.State
	checkpoint *event.Event
	// storage is the source of a checkpoint in the middle of a file. After it, reading continues
	// at resume; 0 means the next block.
	storage storage
	resume  int64
}

// NewReader returns a Reader of a recording. It reads the header at once.
func NewReader(r io.Reader) (*Reader, error) { return newReader(r, "the stream") }

func newReader(in io.Reader, name string) (*Reader, error) {
	r, err := newBlockReader(in, name)
	if err == nil {
		r.header, r.offset, err = readHeader(r.in, name)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// newBlockReader returns a Reader of blocks that no header precedes.
func newBlockReader(in io.Reader, name string) (r *Reader, err error) {
	r = &Reader{in: bufio.NewReaderSize(in, 64<<10), name: name}
	r.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxRaw), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	r.rows.dictionary = newReading(&r.Lines)
	return r, nil
}

// Header returns where and when the recording was made.
func (r *Reader) Header() Header { return r.header }

// End returns the end mark. There is none before everything is read, nor if the recording
// continues or its writer was killed.
func (r *Reader) End() (End, bool) {
	if r.end == nil {
		return End{}, false
	}
	return *r.end, true
}

// Offset returns the number of bytes read so far, up to the end of the latest event's block.
func (r *Reader) Offset() int64 { return r.offset }

// Next fills e with the next event. Its slices must not be modified.
//
// After the last event it returns io.EOF; End then has the end mark unless the recording is still
// being written or its writer was killed. A *TruncatedError or *DamagedError comes after the last
// readable event.
func (r *Reader) Next(e *event.Event) error {
	for r.left == 0 {
		if r.err == nil {
			r.err = r.nextBlock()
		}
		if r.err != nil {
			return r.err
		}
		if r.checkpoint != nil {
			*e, r.checkpoint = *r.checkpoint, nil
			return nil
		}
	}
	r.left--
	if r.rows.row(e); r.rows.bad() {
		r.left = 0
		r.err = r.damaged("its events make no sense")
		if r.rows.newer {
			r.err = r.damaged(newer)
		}
		return r.err
	}
	return nil
}

// newer is the hint for data that this version does not know.
const newer = "a newer ttmem can read it"

func (r *Reader) damaged(cause string) error { return &DamagedError{r.name, r.begin, cause} }

func (r *Reader) failed(err error) error { return readError(r.name, r.begin, err) }

// readError returns the error for a file that could not be read from an offset on.
func readError(name string, offset int64, err error) error {
	if atEnd(err) {
		return &TruncatedError{name, offset}
	}
	return fmt.Errorf("reading %s: %w", name, host.WithoutPath(err))
}

// nextBlock reads a block. It skips a block of an unknown kind.
func (r *Reader) nextBlock() error {
	if r.end != nil {
		return io.EOF
	}
	if r.begun && r.resume != 0 {
		to := r.resume
		r.resume = 0
		if err := r.jump(to); err != nil {
			return err
		}
	}
	r.begin = r.offset
	var room [blockHead]byte
	n, err := io.ReadFull(r.in, room[:])
	if errors.Is(err, io.EOF) {
		if r.state != nil {
			return r.failed(err) // within a checkpoint
		}
		return io.EOF
	}
	if !bytes.HasPrefix(room[:n], []byte(mark)[:min(n, len(mark))]) {
		return r.damaged("no block begins here")
	}
	if err != nil {
		return r.failed(err)
	}
	var h head
	h.get(room[:])
	if h.packed > maxRaw || h.raw > maxRaw || h.events > h.raw || h.flags&blockPlain != 0 && h.packed != h.raw {
		return r.damaged("the head of the block is invalid")
	}
	if int64(h.raw) > maxExpansion*h.size() {
		return r.damaged("it expands too much")
	}
	r.packed = slices.Grow(r.packed[:0], int(h.packed))[:h.packed]
	if _, err := io.ReadFull(r.in, r.packed); err != nil {
		return r.failed(err)
	}
	if crc32.Update(crc32.Checksum(room[8:], castagnoli), castagnoli, r.packed) != h.checksum {
		return r.damaged("its checksum is wrong")
	}
	r.offset += h.size()
	if r.state != nil && h.kind != blockState {
		return r.damaged("the checkpoint before it has no end")
	}
	if h.kind >= 'a' && (h.kind != blockState || r.begun) {
		return nil // an unknown kind
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
	if h.flags&blockReset != 0 {
		r.rows.dictionary = newReading(&r.Lines)
	}
	r.rows.blockRefs, r.rows.mostBlockRefs = 0, int(maxBlockRefs*h.size())
	switch {
	case h.kind == blockEvents:
		r.rows.read(payload)
		r.left, r.begun = h.events, true
	case h.kind == blockState:
		if !r.readState(&h, payload) {
			return r.damaged("its checkpoint is invalid")
		}
	case h.kind == blockEnd:
		c := codec.NewReader(payload, nil)
		r.end = &End{}
		if r.end.values(c); c.Bad {
			r.end = nil
			return r.damaged("its end mark is invalid")
		}
	case h.kind < 'a':
		return r.damaged(newer)
	}
	return nil
}

// readState reads a block of a checkpoint, and reports whether it is valid.
func (r *Reader) readState(h *head, payload []byte) bool {
	if r.state == nil {
		r.state = &event.State{}
	}
	s, c := r.state, r.rows.c
	c.Data = payload
	another := false
	for c.Bool(&another); another; c.Bool(&another) {
		var stack *event.Stack
		if r.rows.stack(&stack); c.Bad || len(s.Stacks) >= maxStateStacks {
			return false
		}
		s.Stacks = append(s.Stacks, stack)
	}
	if s.Data = append(s.Data, c.Data...); c.Bad || len(s.Data) > maxStateBytes {
		return false
	}
	if h.flags&blockMore == 0 {
		r.checkpoint = &event.Event{TimeNs: h.latest, Kind: event.Checkpoint, State: s}
		r.state, r.begun = nil, true
	}
	return true
}
