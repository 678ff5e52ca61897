package recording

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"

	"ttmem/tracer/event"
)

const (
	// fullBytes is how much is better written before more is added, before
	// compression.
	fullBytes = 1 << 20
	// mostBytes is how much is written by Add itself: far from maxRaw, since one
	// more event may be long.
	mostBytes = 2 << 20
)

// blockHead is the length of what comes before a block's payload.
const blockHead = 40

// The kinds of blocks. Those that a reader does not know it may pass over where
// they are lower case.
const (
	blockEvents = 'D'
	blockEnd    = 'E'
	// blockState has a checkpoint, or a part of one.
	blockState = 'c'
)

// The flags of a block.
const (
	// blockReset says that the definitions begin anew.
	blockReset = 1 << iota
	// blockPlain says that the payload is not compressed.
	blockPlain
	// blockMore says that the checkpoint goes on in the next block.
	blockMore
)

// Options say how a recording is written. The zero value is good.
type Options struct {
	// Header is the one of the recording: where it is not set that of this host,
	// now.
	Header *Header
	// Ttmem is the version of the program, where the one of the build is not good
	// enough.
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

// A Writer writes a recording to a file or a stream. Only one goroutine may use
// it at a time.
type Writer struct {
	out     io.Writer
	size    int64
	largest int    // of the blocks that were written
	written uint64 // events in them
	err     error

	zstd    *zstd.Encoder
	define  definitions
	events  columns
	flags   byte // of the block that is being made
	pending int  // how long it is by now, before compression
	payload []byte
	block   []byte
}

// NewWriter begins a recording: the header is written at once.
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

// Add adds an event, of which it keeps nothing but its stack's frames. A Checkpoint is
// written at once. After an error of Flush it does nothing.
//
// A stack that was not met before is looked up, which takes long when it is the
// first to do so.
func (w *Writer) Add(e *event.Event) {
	if w.err != nil || e.Kind.String() == "" || e.Region >= event.NumRegions {
		return // no reader would take it, nor what follows
	}
	if e.Kind == event.Checkpoint {
		_ = w.checkpoint(e, 0) // the next Flush says it again
		return
	}
	w.events.add(e, &w.define)
	w.pending = w.define.pending() + w.events.pending()
	if w.pending >= mostBytes || w.define.full() {
		_ = w.Flush() // the next Flush says it again
	}
}

// Size is how many bytes were written, without what Flush has not written yet.
func (w *Writer) Size() int64 { return w.size }

// Full reports whether so much was added that it is better flushed before more
// is.
func (w *Writer) Full() bool { return w.pending >= fullBytes }

// Flush writes what was added as a block: from now on it can be read, whatever
// becomes of the writer. After an error nothing more is written, and Flush says
// the same again.
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

// definitions begins a payload with what was defined since the last block.
func (w *Writer) definitions() []byte {
	p := w.payload[:0]
	for i, section := range w.define.sections {
		p = appendSection(p, i, section)
		w.define.sections[i] = section[:0]
	}
	return p
}

// flush writes a block that began with definitions.
func (w *Writer) flush(h head, payload []byte) error {
	w.payload = payload
	h.raw, h.flags = uint32(len(payload)), h.flags|w.flags
	w.flags &^= blockReset
	if w.define.full() {
		w.forget()
	}
	return w.write(h, payload)
}

// checkpoint writes what was added, and then a checkpoint. resume is the offset of the block
// with which reading goes on after it; 0: the next one.
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

// forget begins the definitions anew with the next block. What was added must have been
// flushed.
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

// write writes a block, by one call.
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

// append writes what is ready to be written.
func (w *Writer) append(b []byte) error {
	if _, err := w.out.Write(b); err != nil {
		w.err = err
		return err
	}
	w.size += int64(len(b))
	return nil
}

// head is what comes before a block's payload.
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

// get reads a head, and the checksum of what comes after it in the block.
func (h *head) get(b []byte) (checksum uint32) {
	le := binary.LittleEndian
	h.kind, h.flags = b[8], b[9]
	h.packed, h.raw, h.events = le.Uint32(b[12:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	h.earliest, h.latest = le.Uint64(b[24:]), le.Uint64(b[32:])
	return le.Uint32(b[4:])
}
