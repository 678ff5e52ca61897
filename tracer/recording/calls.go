package recording

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"ttmem/tracer/event"
)

// A call has its frames and is shared by stacks.
type call struct {
	shown  *event.Call
	frames []uint32
}

// known returns the stack of these frames. The dictionary must be locked.
func (d *reading) known(frames []uint32) *event.Stack {
	id := uint64(len(frames))
	for _, f := range frames {
		id = (id ^ d.hashes[f]) * 0x9e3779b97f4a7c15
		id ^= id >> 29
	}
	id |= 1 // never 0
	if d.byID[id] == nil {
		d.byID[id] = event.NewStack(id, func() []*event.Call { return d.callsOf(frames) })
	}
	return d.byID[id]
}

// hashFrame returns a hash that is the same for equal frames in all files.
func hashFrame(f *event.Frame) uint64 {
	h := fnv.New64a()
	b := make([]byte, 0, 256)
	for _, s := range [...]string{f.Kind, f.Name, f.Symbol, f.File, f.Module, f.BuildID} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	b = binary.AppendUvarint(b, uint64(f.Line))
	b = binary.AppendUvarint(b, f.Address)
	if f.Inlined {
		b = append(b, 1)
	}
	_, _ = h.Write(b)
	return h.Sum64()
}

// callsOf returns the calls of a stack. A call is a frame and the inlined functions before it.
func (d *reading) callsOf(frames []uint32) []*event.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var calls []*event.Call
	for len(frames) > 0 {
		n := 1
		for n < len(frames) && d.frames[frames[n-1]].Inlined {
			n++
		}
		calls = append(calls, d.call(frames[:n]))
		frames = frames[n:]
	}
	return calls
}

func (d *reading) call(frames []uint32) *event.Call {
	if c := d.calls[frames[0]]; slices.Equal(c.frames, frames) {
		return c.shown
	}
	known := make([]event.Frame, len(frames))
	for i, f := range frames {
		known[i] = d.frames[f]
	}
	if *d.lines != nil && len(known) == 1 {
		known = (*d.lines)(known[0])
	}
	c := event.NewCall(known)
	d.calls[frames[0]] = call{c, frames}
	return c
}
