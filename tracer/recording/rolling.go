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
	w          *Writer
	header     []byte
	checkpoint func() func() *event.Event
	partBytes  int
	parts      []*rollingPart // oldest first
	bytes      int
}

// A rollingPart is the events after a checkpoint.
type rollingPart struct {
	state  atomic.Pointer[[]byte] // the blocks of the checkpoint; nil while they are made
	blocks [][]byte               // of the events; they never change
	bytes  int
}

// rollingParts is how many parts fit.
const rollingParts = 4

// rollingBlock is the size before compression at which a Rolling writes a block: many of them may wait
// for their next one.
const rollingBlock = 256 << 10

// NewRolling begins a Rolling of about as many bytes at most, if its owner calls Trim. checkpoint is that of
// FileOptions.
func NewRolling(header Header, most int, checkpoint func() func() *event.Event) (*Rolling, error) {
	r := &Rolling{header: header.bytes(), checkpoint: checkpoint, partBytes: most / rollingParts}
	var err error
	if r.w, err = newWriter(r); err != nil {
		return nil, err
	}
	r.next()
	return r, nil
}

// Write takes a block of the Writer.
func (r *Rolling) Write(block []byte) (int, error) {
	last := r.parts[len(r.parts)-1]
	last.blocks = append(last.blocks, bytes.Clone(block))
	last.bytes += len(block)
	r.bytes += len(block)
	return len(block), nil
}

// Add adds an event, which the state of the checkpoints has already.
func (r *Rolling) Add(e *event.Event) {
	if r.w.Add(e); r.w.rows.length() >= rollingBlock {
		r.Flush()
	}
}

// Flush writes the added events, and begins the next part if it is time.
func (r *Rolling) Flush() {
	_ = r.w.Flush() // a write to memory does not fail
	if r.parts[len(r.parts)-1].bytes >= r.partBytes {
		r.next()
	}
}

// next begins a part with the present state.
func (r *Rolling) next() {
	r.w.forget()
	one := new(rollingPart)
	r.parts = append(r.parts, one)
	frozen := r.checkpoint()
	go func() {
		blocks := checkpointBlocks(frozen, 0)
		one.state.Store(&blocks)
	}()
}

// Bytes returns how much memory it takes, without events that are not flushed.
func (r *Rolling) Bytes() (n int) {
	n = r.bytes
	for _, one := range r.parts {
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
	r.bytes -= r.parts[0].bytes
	r.parts[0] = nil
	r.parts = r.parts[1:]
	return true
}

// All returns everything as a recording that ended at a time. It may be written by another goroutine. It is
// nil while the first checkpoint is being made.
func (r *Rolling) All(endNs uint64) net.Buffers {
	r.Flush()
	state := r.parts[0].state.Load()
	if state == nil {
		return nil
	}
	// Readers need no other checkpoint: blocks after one do not refer to those before it.
	all := net.Buffers{r.header, *state}
	for _, one := range r.parts {
		all = append(all, one.blocks...)
	}
	var end bytes.Buffer
	if w, err := newWriter(&end); err == nil {
		_ = w.Close(End{TimeNs: endNs})
	}
	return append(all, end.Bytes())
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
