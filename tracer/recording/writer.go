package recording

import (
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

const (
	// fullBytes is the size before compression at which a block is due.
	fullBytes = 1 << 20
	// mostBytes is the size at which Add writes a block. It is far below maxRaw, because an event
	// may be long.
	mostBytes = 2 << 20
)

// A Writer writes a recording to a file or a stream. It is not safe for concurrent use.
type Writer struct {
	out     io.Writer
	size    int64
	largest int    // length of the longest written block
	written uint64 // number of written events
	err     error

	zstd *zstd.Encoder
	rows rows
	next head // of the next block
	// payload and block belong to the latest block.
	payload, block []byte
}

// NewWriter begins a recording and writes its header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	r, err := newWriter(w)
	if err != nil {
		return nil, err
	}
	if err := r.append(h.bytes()); err != nil {
		return nil, err
	}
	return r, nil
}

// newWriter returns a Writer that writes no header.
func newWriter(w io.Writer) (*Writer, error) {
	// A window of 1 MiB covers a whole block of a busy process.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	r := &Writer{out: w, zstd: z, rows: rows{dictionary: newWriting()}}
	r.rows.begin()
	return r, nil
}

// Add adds an event. It keeps a reference to the event's calls only. A Checkpoint is written at
// once. After an error of Flush it does nothing.
//
// It looks up the frames of a new stack, which takes long if they were not looked up before.
func (w *Writer) Add(e *event.Event) {
	if w.err != nil || e.Kind.String() == "" || e.Region >= event.NumRegions {
		return // readers would reject it and everything after it
	}
	if e.Kind == event.Checkpoint {
		_ = w.checkpoint(e, 0) // the next Flush returns the error again
		return
	}
	if isOwner := e.Kind == event.Owner; isOwner != (w.next.flags&blockOwners != 0) {
		if w.Flush() != nil {
			return // the next Flush returns the error again
		}
		if isOwner {
			w.forget()
			w.next.flags |= blockOwners
		}
	}
	w.rows.row(e)
	if w.next.events == 0 {
		w.next.earliest, w.next.latest = e.TimeNs, e.TimeNs
	}
	w.next.events++
	w.next.earliest, w.next.latest = min(w.next.earliest, e.TimeNs), max(w.next.latest, e.TimeNs)
	if w.rows.length() >= mostBytes || w.rows.full() {
		_ = w.Flush() // the next Flush returns the error again
	}
}

// Size returns the number of bytes written so far.
func (w *Writer) Size() int64 { return w.size }

// Full reports whether a block is due, so that Flush should be called.
func (w *Writer) Full() bool { return w.rows.length() >= fullBytes }

// Flush writes the added events as a block. From now on they can be read, even if the writer is
// killed. After an error nothing more is written, and Flush returns the same error.
func (w *Writer) Flush() error {
	if w.err != nil || w.next.events == 0 {
		return w.err
	}
	w.next.kind = blockEvents
	w.payload = w.rows.appendTo(w.payload[:0])
	return w.flush()
}

// flush writes the next block.
func (w *Writer) flush() error {
	err := w.write(w.next, w.payload)
	w.next = head{}
	if w.rows.begin(); w.rows.full() {
		w.forget()
	}
	return err
}

// checkpoint writes the added events, and then a checkpoint. resume is the offset of the block at
// which reading continues after it; 0 means the next one. A checkpoint beyond the limits is left out: what
// was before it is lost, unless reading goes on there anyway.
func (w *Writer) checkpoint(e *event.Event, resume int64) error {
	if err := w.Flush(); err != nil {
		return err
	}
	data, stacks := e.State.Data, e.State.Stacks
	if len(data) == 0 || len(data) > maxStateBytes || len(stacks) > maxStateStacks {
		if resume == 0 {
			w.Add(&event.Event{Kind: event.Lost, TimeNs: e.TimeNs, Count: 1, Cause: StateTooLarge})
		}
		return nil
	}
	for more := true; more; {
		c := w.rows.c
		another := len(stacks) > 0
		for c.Bool(&another); another; c.Bool(&another) {
			w.rows.stack(&stacks[0])
			stacks = stacks[1:]
			another = len(stacks) > 0 && w.rows.length() < fullBytes && !w.rows.full()
		}
		part := data[:min(len(data), mostBytes)]
		data = data[len(part):]
		w.payload = append(append(w.payload[:0], c.Data...), part...)
		c.Data = c.Data[:0]
		w.next.kind, w.next.earliest, w.next.latest = blockState, uint64(resume), e.TimeNs
		if more = len(data) > 0 || len(stacks) > 0; more {
			w.next.flags |= blockMore
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	return nil
}

// StateTooLarge is the cause of the Lost event in place of a checkpoint beyond the limits.
const StateTooLarge = "earlier memory was too much for a checkpoint"

// forget resets the definitions with the next block. Flush must have been called.
func (w *Writer) forget() {
	w.rows.dictionary = newWriting()
	w.next.flags |= blockReset
}

// Close flushes and ends the recording. The stream stays open.
func (w *Writer) Close(end End) error {
	if err := w.Flush(); err != nil {
		return err
	}
	c := codec.NewWriter()
	end.values(c)
	return w.write(head{kind: blockEnd}, c.Data)
}

// write writes a block in one call.
func (w *Writer) write(h head, payload []byte) error {
	var room [blockHead]byte
	b := w.zstd.EncodeAll(payload, append(w.block[:0], room[:]...))
	if len(b)-blockHead >= len(payload) {
		b = append(b[:blockHead], payload...)
		h.flags |= blockPlain
	}
	if least := max(len(payload)/maxExpansion, w.rows.blockRefs/maxBlockRefs) + 1; len(b) < least {
		b = pad(b, least-len(b))
	}
	h.packed, h.raw = uint32(len(b)-blockHead), uint32(len(payload))
	h.put(b)
	w.block = b
	w.largest = max(w.largest, len(b))
	if err := w.append(b); err != nil {
		return err
	}
	w.written += uint64(h.events)
	return nil
}

// append writes a finished block or header.
func (w *Writer) append(b []byte) error {
	if _, err := w.out.Write(b); err != nil {
		w.err = err
		return err
	}
	w.size += int64(len(b))
	return nil
}

// pad appends a frame that decompression skips, of at least n bytes.
func pad(b []byte, n int) []byte {
	const skippable, head = 0x184d2a50, 8
	n = max(0, n-head)
	b = binary.LittleEndian.AppendUint32(b, skippable)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	return append(b, make([]byte, n)...)
}
