package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// joinShare bounds the time for which joining viewers block the state: one part in so many.
const joinShare = 10

// join begins a recording with the present state, as far as the viewer of the sight may see
// it. The follower, if there is one, gets the events from then on, until leave.
//
// The tracer waits while the state is frozen. Everything else happens while it goes on, and in
// memory, for one viewer after the other: as a recording, a buffer takes a few bytes, and much
// more while the list is sorted; and a slow reader does not keep others from joining.
func (h *Hub) join(ctx context.Context, s *sight, f *follower) (*followed, error) {
	select {
	case h.joining <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := time.Now()
	defer func() { time.AfterFunc(time.Until(free), func() { <-h.joining }) }()
	began := time.Now()
	frozen, err := h.freeze(s, f)
	if err != nil {
		return nil, err
	}
	// The goroutine that traces may have waited, and must not wait again soon.
	free = began.Add(joinShare * time.Since(began))
	e := frozen()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return newFollowed(h.version, e)
}

// freeze returns a function that makes a checkpoint of the present state.
func (h *Hub) freeze(s *sight, f *follower) (func() *event.Event, error) {
	var wanted func(uid int) bool
	if !s.viewer.All {
		wanted = func(uid int) bool { return uid == s.viewer.UID }
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, errEnded
	}
	h.flush() // to the other followers: the state has it already
	for _, pid := range h.state.ProcessesOf(s.viewer.UID) {
		s.own[pid] = true
	}
	if f != nil {
		h.followers[f] = true
	}
	return h.state.Freeze(wanted), nil
}

// followed is the recording of one follower.
type followed struct {
	r     *recording.Writer
	dirty bool
	// out is nil at first: what is written is buffered.
	out      io.Writer
	buffered net.Buffers
}

// newFollowed begins the recording with a checkpoint.
func newFollowed(version string, state *event.Event) (_ *followed, err error) {
	o := &followed{dirty: true}
	header := recording.NewHeader()
	header.Ttmem = version
	if o.r, err = recording.NewWriter(o, recording.Options{Header: &header}); err != nil {
		return nil, err
	}
	if err := o.add(state); err != nil {
		return nil, err
	}
	return o, o.flush()
}

// send writes to w what was buffered, and from then on what is written.
func (o *followed) send(w io.Writer) error {
	o.out = w
	if _, err := o.buffered.WriteTo(w); err != nil {
		return err
	}
	return o.push()
}

// Write is for the recording's writer.
func (o *followed) Write(b []byte) (int, error) {
	if o.out != nil {
		return o.out.Write(b)
	}
	o.buffered = append(o.buffered, bytes.Clone(b))
	return len(b), nil
}

func (o *followed) add(e *event.Event) error {
	o.dirty = true
	o.r.Add(e)
	if o.r.Full() {
		return o.flush()
	}
	return nil
}

func (o *followed) flush() error {
	if !o.dirty {
		return nil
	}
	o.dirty = false
	if err := o.r.Flush(); err != nil {
		return err
	}
	return o.push()
}

// push sends what the writer has.
func (o *followed) push() error {
	if w, ok := o.out.(interface{ Flush() error }); ok {
		return w.Flush()
	}
	return nil
}

// close ends the recording.
func (o *followed) close() error {
	if err := o.r.Close(recording.End{}); err != nil {
		return fmt.Errorf("ending the recording: %w", err)
	}
	return o.push()
}
