package recording

import (
	"bytes"
	"net"
	"sync/atomic"

	"ttmem/tracer/event"
)

// A Rolling is the newest part of a recording, in bounded memory. It consists of parts, each of which
// begins with a checkpoint, so that the oldest ones can be dropped. It is not safe for concurrent use.
type Rolling struct {
	// Header is that of its recordings.
	Header     Header
	w          *Writer
	checkpoint func() func() *event.Event
	partBytes  int
	partEvents uint64
	parts      []*rollingPart // oldest first
	dropped    int            // parts
}

// A rollingPart is the events after a checkpoint.
type rollingPart struct {
	state  atomic.Pointer[[]byte] // the blocks of the checkpoint; nil while they are made
	blocks [][]byte               // of the events; they never change
	bytes  int                    // of the blocks
	events uint64                 // with those that are not in blocks yet
}

// The usual size of a part: readers of the newest events read at most one part more.
const (
	RollingPart   = 2 << 20
	rollingEvents = 250_000
)

// rollingBlock is the size before compression at which a Rolling writes a block: many of them may wait
// for their next one.
const rollingBlock = 256 << 10

// NewRolling begins a Rolling, which is as long as its owner lets it. Its parts have at most this many bytes,
// or as many as their checkpoints if those are longer. checkpoint is that of FileOptions.
func NewRolling(header Header, partBytes int, checkpoint func() func() *event.Event) (*Rolling, error) {
	r := &Rolling{Header: header, checkpoint: checkpoint, partBytes: partBytes, partEvents: rollingEvents}
	var err error
	if r.w, err = newWriter(r); err != nil {
		return nil, err
	}
	r.next()()
	return r, nil
}

// Write takes a block of the Writer.
func (r *Rolling) Write(block []byte) (int, error) {
	last := r.parts[len(r.parts)-1]
	last.blocks = append(last.blocks, bytes.Clone(block))
	last.bytes += len(block)
	return len(block), nil
}

// Add adds an event, which the state of the checkpoints has already.
func (r *Rolling) Add(e *event.Event) {
	r.parts[len(r.parts)-1].events++
	if r.w.Add(e); r.w.rows.length() >= rollingBlock {
		r.Flush()
	}
}

// Flush writes the added events, and begins the next part if it is time.
func (r *Rolling) Flush() {
	_ = r.w.Flush() // a write to memory does not fail
	last := r.parts[len(r.parts)-1]
	isLong := last.bytes >= r.partBytes || last.events >= r.partEvents
	if state := last.state.Load(); isLong && state != nil && last.bytes >= len(*state) {
		go r.next()()
	}
}

// next begins a part with the present state, and returns a function that makes its checkpoint.
func (r *Rolling) next() func() {
	r.w.forget()
	one := new(rollingPart)
	r.parts = append(r.parts, one)
	frozen := r.checkpoint()
	return func() {
		var blocks []byte
		if e := frozen(); e.TimeNs > 0 { // else there was nothing
			blocks = checkpointBlocks(func() *event.Event { return e }, 0)
		}
		one.state.Store(&blocks)
	}
}

// Bytes returns how much memory it takes, without events that are not flushed.
func (r *Rolling) Bytes() (n int) {
	for _, one := range r.parts {
		n += one.bytes
		if state := one.state.Load(); state != nil {
			n += len(*state)
		}
	}
	return n
}

// Drop drops the oldest part, and reports whether it could: the next one has to have its checkpoint.
func (r *Rolling) Drop() bool {
	if len(r.parts) < 2 || r.parts[1].state.Load() == nil {
		return false
	}
	r.parts[0] = nil
	r.parts = r.parts[1:]
	r.dropped++
	return true
}

// Trim drops the oldest parts while it has more bytes.
func (r *Rolling) Trim(most int) {
	for r.Bytes() > most && r.Drop() {
	}
}

// An Excerpt is the newest parts of a Rolling, as a recording.
type Excerpt struct {
	// Data may be written by another goroutine.
	Data net.Buffers
	// Events is the number of events after the checkpoint with which it begins, unless there was nothing before.
	Events uint64
	// First is the number of its first part, since the Rolling began.
	First int
}

// Newest returns at least as many of the newest events, and earlier ones as long as all have at most that
// many bytes, as a recording that ended at a time.
func (r *Rolling) Newest(events uint64, most int, endNs uint64) Excerpt {
	r.Flush()
	first := len(r.parts) - 1
	e, length := Excerpt{Events: r.parts[first].events}, r.parts[first].bytes
	for ; first > 0; first-- {
		before := r.parts[first-1] // all but the last part have checkpoints
		if r.parts[first].state.Load() != nil && e.Events >= events && length+before.bytes+len(*before.state.Load()) > most {
			break
		}
		e.Events, length = e.Events+before.events, length+before.bytes
	}
	e.First = r.dropped + first
	// Readers need no other checkpoint: blocks after one do not refer to those before it.
	e.Data = net.Buffers{r.Header.bytes(), *r.parts[first].state.Load()}
	for _, one := range r.parts[first:] {
		e.Data = append(e.Data, one.blocks...)
	}
	var end bytes.Buffer
	if w, err := newWriter(&end); err == nil {
		_ = w.Close(End{TimeNs: endNs})
	}
	e.Data = append(e.Data, end.Bytes())
	return e
}

// checkpointBlocks returns the blocks of a checkpoint, after which reading continues at the offset resume; 0
// means the next block.
func checkpointBlocks(of func() *event.Event, resume int64) []byte {
	var out bytes.Buffer
	w, err := newWriter(&out)
	if err != nil {
		return nil
	}
	w.next.flags = blockReset
	_ = w.checkpoint(of(), resume) // a write to memory does not fail
	_ = w.Flush()                  // if it is too large and nothing else has what was before it
	return out.Bytes()
}
