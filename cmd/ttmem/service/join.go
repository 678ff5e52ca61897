package service

import (
	"context"
	"fmt"
	"io"
	"time"

	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// joinShare is which part of the time who begins to follow may have the state for
// himself, at most: one in so many.
const joinShare = 10

// join begins a recording with what brings the viewer of the sight to the present
// state. A follower, where there is one, is told what happens from then on, until
// leave.
//
// The tracer waits for as long as the state is frozen. All else is done while it
// goes on, and in memory, for one after the other: what there is takes some bytes a
// buffer as a recording, and a list to be put in order much more; and who reads
// slowly keeps nobody from joining.
func (h *Hub) join(ctx context.Context, s *sight, f *follower) (*followed, error) {
	select {
	case h.joining <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := time.Now()
	defer func() { time.AfterFunc(time.Until(free), func() { <-h.joining }) }()
	began := time.Now()
	present, err := h.freeze(s, f)
	if err != nil {
		return nil, err
	}
	// The goroutine that traces may have waited meanwhile, and is not to wait again
	// soon.
	free = began.Add(joinShare * time.Since(began))
	e := present()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return newFollowed(h.version, e)
}

// freeze is what there is, for as long as somebody needs it.
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
	h.flush() // to the others: it is in the state already
	for _, pid := range h.state.ProcessesOf(s.viewer.UID) {
		s.own[pid] = true
	}
	if f != nil {
		h.followers[f] = true
	}
	return h.state.Freeze(wanted), nil
}

// followed is the recording that one follower gets.
type followed struct {
	r     *recording.Writer
	dirty bool
	// out is nil at first: what is written is kept.
	out  io.Writer
	kept [][]byte
}

// newFollowed begins the recording with what there is.
func newFollowed(version string, present *event.Event) (_ *followed, err error) {
	o := &followed{dirty: true}
	header := recording.NewHeader()
	header.Ttmem = version
	if o.r, err = recording.NewWriter(o, recording.Options{Header: &header}); err != nil {
		return nil, err
	}
	if err := o.add(present); err != nil {
		return nil, err
	}
	return o, o.flush()
}

// send writes to w what was kept, and from then on what is written.
func (o *followed) send(w io.Writer) error {
	o.out = w
	for i, b := range o.kept {
		if _, err := w.Write(b); err != nil {
			return err
		}
		o.kept[i] = nil
	}
	o.kept = nil
	return o.push()
}

// Write is for the recording's writer.
func (o *followed) Write(b []byte) (int, error) {
	if o.out != nil {
		return o.out.Write(b)
	}
	o.kept = append(o.kept, append([]byte(nil), b...))
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
