package recording

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"

	"ttmem/tracer/event"
)

const (
	// fullBytes is the size, before compression, from which a block should be written.
	fullBytes = 1 << 20
	// mostBytes is the size at which Add writes a block: far below maxRaw, because an event
	// may be long.
	mostBytes = 2 << 20
)

// blockHead is the length of a block's head.
const blockHead = 40

// The kinds of blocks. A reader may skip an unknown kind if it is lower case.
const (
	blockEvents = 'D'
	blockEnd    = 'E'
	// blockState is a checkpoint, or a part of one.
	blockState = 'c'
)

// The flags of a block.
const (
	// blockReset: the definitions begin anew.
	blockReset = 1 << iota
	// blockPlain: the payload is not compressed.
	blockPlain
	// blockMore: the checkpoint continues in the next block.
	blockMore
)

// Options configure the writing of a recording. The zero value is good.
type Options struct {
	// Header is the header of the recording; nil: NewHeader's.
	Header *Header
	// Ttmem is the version of the program; "": that of the build.
	Ttmem string
}

func (o *Options) header() Header {
	var h Header
	if o.Header != nil {
		h = *o.Header
	} else {
		h = NewHeader()
	}
	if o.Ttmem != "" {
		h.Ttmem = o.Ttmem
	}
	return h
}

// A Writer writes a recording to a file or a stream. It is not safe for concurrent use.
type Writer struct {
	out     io.Writer
	size    int64
	largest int    // of the blocks that were written
	written uint64 // events in them
	err     error

	zstd    *zstd.Encoder
	define  definitions
	events  columns
	flags   byte // of the next block
	pending int  // its length so far, before compression
	payload []byte
	block   []byte
}

// NewWriter begins a recording and writes its header.
func NewWriter(w io.Writer, o Options) (*Writer, error) {
	r, err := newWriter(w)
	if err != nil {
		return nil, err
	}
	h := o.header()
	if err := r.append(h.append(nil)); err != nil {
		return nil, err
	}
	return r, nil
}

// newWriter returns a Writer that writes no header.
func newWriter(w io.Writer) (*Writer, error) {
	// A window of 1 MiB is a whole block of a busy process. The columns leave little
	// to find: SpeedDefault makes 8 % less of an eager model and needs a second table.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	r := &Writer{out: w, zstd: z}
	r.define.init()
	r.events.init()
	return r, nil
}

// Add adds an event. It keeps a reference to its calls only. A Checkpoint is written at once.
// After an error of Flush it does nothing.
//
// A new stack is looked up, which takes long if nothing else has looked it up before.
func (w *Writer) Add(e *event.Event) {
	if w.err != nil || e.Kind.String() == "" || e.Region >= event.NumRegions {
		return // readers would refuse it and all that follows
	}
	if e.Kind == event.Checkpoint {
		_ = w.checkpoint(e, 0) // the next Flush returns the error again
		return
	}
	w.events.add(e, &w.define)
	w.pending = w.define.pending() + w.events.pending()
	if w.pending >= mostBytes || w.define.full() {
		_ = w.Flush() // the next Flush returns the error again
	}
}

// Size is the number of bytes written so far.
func (w *Writer) Size() int64 { return w.size }

// Full reports whether enough was added for a block, so that Flush should be called.
func (w *Writer) Full() bool { return w.pending >= fullBytes }

// Flush writes the added events as a block, which can be read from now on, even if the writer
// is killed. After an error nothing more is written, and Flush returns the same error.
func (w *Writer) Flush() error {
	if w.err != nil || w.events.count == 0 {
		return w.err
	}
	p := w.definitions()
	for i, column := range w.events.data {
		p = appendSection(p, i, column)
	}
	h := head{
		kind: blockEvents, events: w.events.count, earliest: w.events.earliest, latest: w.events.latest,
	}
	w.events.reset()
	w.pending = 0
	return w.flush(h, p)
}

// definitions begins a payload with the definitions since the last block.
func (w *Writer) definitions() []byte {
	p := w.payload[:0]
	for i, section := range w.define.sections {
		p = appendSection(p, i, section)
		w.define.sections[i] = section[:0]
	}
	return p
}

// flush writes a block that begins with definitions.
func (w *Writer) flush(h head, payload []byte) error {
	w.payload = payload
	h.raw, h.flags = uint32(len(payload)), h.flags|w.flags
	w.flags &^= blockReset
	if w.define.full() {
		w.forget()
	}
	return w.write(h, payload)
}

// checkpoint writes the added events, and then a checkpoint. resume is the offset of the block
// at which reading continues after it; 0: the next one.
func (w *Writer) checkpoint(e *event.Event, resume int64) error {
	if err := w.Flush(); err != nil {
		return err
	}
	data, stacks := e.State.Data, e.State.Stacks
	for more := true; more; {
		var numbers []byte
		for len(stacks) > 0 && w.define.pending()+len(numbers) < fullBytes && !w.define.full() {
			numbers = appendUvarint(numbers, uint64(w.define.stack(stacks[0])))
			stacks = stacks[1:]
		}
		w.define.usedStacks = uint32(len(w.define.stacks))
		part := data[:min(len(data), mostBytes)]
		data = data[len(part):]
		h := head{kind: blockState, earliest: uint64(resume), latest: e.TimeNs}
		if more = len(data) > 0 || len(stacks) > 0; more {
			h.flags |= blockMore
		}
		p := appendSection(w.definitions(), sectionStack, numbers)
		if err := w.flush(h, appendSection(p, sectionState, part)); err != nil {
			return err
		}
	}
	return nil
}

// forget resets the definitions with the next block. Flush must have been called.
func (w *Writer) forget() {
	w.define.reset()
	w.flags |= blockReset
}

func appendSection(b []byte, number int, section []byte) []byte {
	if len(section) == 0 {
		return b
	}
	b = appendUvarint(b, uint64(number))
	b = appendUvarint(b, uint64(len(section)))
	return append(b, section...)
}

// Close flushes and ends the recording. The stream stays open.
func (w *Writer) Close(end End) error {
	if err := w.Flush(); err != nil {
		return err
	}
	p := end.append(nil)
	return w.write(head{kind: blockEnd, raw: uint32(len(p))}, p)
}

// write writes a block in one call.
func (w *Writer) write(h head, payload []byte) error {
	var room [blockHead]byte
	b := w.zstd.EncodeAll(payload, append(w.block[:0], room[:]...))
	if len(b)-blockHead >= len(payload) {
		b = append(b[:blockHead], payload...)
		h.flags |= blockPlain
	}
	h.packed = uint32(len(b) - blockHead)
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

// head is the head of a block.
type head struct {
	kind, flags      byte
	packed, raw      uint32 // the payload's length, as written and before compression
	events           uint32
	earliest, latest uint64 // of the events' times
}

// put writes the head at the beginning of a block.
func (h *head) put(block []byte) {
	le := binary.LittleEndian
	copy(block, mark)
	block[8], block[9] = h.kind, h.flags
	le.PutUint32(block[12:], h.packed)
	le.PutUint32(block[16:], h.raw)
	le.PutUint32(block[20:], h.events)
	le.PutUint64(block[24:], h.earliest)
	le.PutUint64(block[32:], h.latest)
	le.PutUint32(block[4:], crc32.Checksum(block[8:], castagnoli))
}

// get reads a head, and returns the checksum of the rest of the block.
func (h *head) get(b []byte) (checksum uint32) {
	le := binary.LittleEndian
	h.kind, h.flags = b[8], b[9]
	h.packed, h.raw, h.events = le.Uint32(b[12:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	h.earliest, h.latest = le.Uint64(b[24:]), le.Uint64(b[32:])
	return le.Uint32(b[4:])
}
