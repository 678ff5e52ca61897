package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// join begins a recording with the present state, in the view of the viewer. The
// follower, if there is one, gets the later events, until leave.
//
// The tracer waits only while the state is frozen. Everything else happens in parallel and in
// memory, for one request of a client after the other: in a recording a buffer takes a few bytes, but much
// more while the list is sorted. A slow reader does not keep others from joining.
func (h *Hub) join(ctx context.Context, v Viewer, f *follower) (*followed, error) {
	end, err := h.joining.take(ctx, clientOf(ctx, v))
	if err != nil {
		return nil, err
	}
	defer end(0, 0)
	frozen, err := h.freeze(ctx, v, f)
	if err != nil {
		return nil, err
	}
	e := frozen()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return newFollowed(h.version, e)
}

// freeze returns a function that makes a checkpoint of the present state.
func (h *Hub) freeze(ctx context.Context, v Viewer, f *follower) (frozen func() *event.Event, err error) {
	paused := h.pause(ctx, clientOf(ctx, v), func() {
		if h.ended {
			err = errEnded
			return
		}
		h.flush() // to the other followers: the state has it already
		if f != nil {
			h.followers[f] = true
		}
		frozen = h.state.Freeze(v.users())
	})
	return frozen, errors.Join(err, paused)
}

// followed is the recording of one follower. Written data is buffered until it is sent.
type followed struct {
	r        *recording.Writer
	dirty    bool
	buffered net.Buffers
}

// newFollowed begins the recording with a checkpoint.
func newFollowed(version string, state *event.Event) (_ *followed, err error) {
	o := &followed{}
	header := recording.NewHeader()
	header.Ttmem = version
	if o.r, err = recording.NewWriter(o, header); err != nil {
		return nil, err
	}
	if err := o.add(state); err != nil {
		return nil, err
	}
	return o, o.flush()
}

// Write is called by the recording's writer.
func (o *followed) Write(b []byte) (int, error) {
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
	return o.r.Flush()
}

// send writes the buffered data.
func (o *followed) send(to io.Writer) error {
	if len(o.buffered) == 0 {
		return nil
	}
	out := o.buffered
	o.buffered = nil
	if _, err := out.WriteTo(to); err != nil {
		return err
	}
	if to, ok := to.(interface{ Flush() error }); ok {
		return to.Flush()
	}
	return nil
}

// close ends the recording, and sends the end.
func (o *followed) close(to io.Writer) error {
	if err := o.r.Close(recording.End{}); err != nil {
		return fmt.Errorf("ending the recording: %w", err)
	}
	return o.send(to)
}
