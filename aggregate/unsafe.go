package aggregate

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// newcomers are the buffers of a process that were allocated while a captured trace existed. Those that are live at
// the trace's next replay are unsafe: see memory.Unsafe.
type newcomers struct {
	// ids are in order. One that counts already, or was seen to have ended, is 0.
	ids []uint64
	// most is the length at which those that ended are forgotten: they take no more room than the live ones.
	most int
}

const (
	// maxNewcomers is the number of buffers of a process among which a replay looks.
	maxNewcomers = 1 << 16
	// maxUnsafe is how many call sites of a user with unsafe buffers are listed, and maxUnsafeSites of all users:
	// buffers of others are counted only.
	maxUnsafe, maxUnsafeSites = 100, 1000
)

// bornUnderTrace adds a new buffer. The trace's own memory is allocated after its capture as well.
func (p *process) bornUnderTrace(b *buffer) {
	if b.BeforeAttach || b.Region == event.Trace || b.Region == event.SystemMemory ||
		!slices.ContainsFunc(p.traces, func(t *trace) bool { return !t.capturing }) {
		return
	}
	if n := &p.newcomers; len(n.ids) >= n.most && len(n.ids) < maxNewcomers {
		p.forgetNewcomers()
		n.most = max(64, 2*len(n.ids))
	}
	if len(p.newcomers.ids) < maxNewcomers {
		p.newcomers.ids = append(p.newcomers.ids, b.BufferID)
	}
}

// forgetNewcomers forgets those that count already, and those that ended.
func (p *process) forgetNewcomers() {
	place := make([]int, len(p.newcomers.ids)+1)
	kept := p.newcomers.ids[:0]
	for i, id := range p.newcomers.ids {
		place[i] = len(kept)
		if id != 0 && p.buffers.Get(id) != nil {
			kept = append(kept, id)
		}
	}
	place[len(place)-1] = len(kept)
	p.newcomers.ids = kept
	for _, t := range p.traces {
		t.seen = place[t.seen]
	}
}

// findUnsafe counts the buffers that a replay of a trace may overwrite.
func (p *process) findUnsafe(t *trace, now uint64) {
	s := p.state
	if t.capturing {
		return // no program replays it yet
	}
	apart := make(map[*deviceSet]bool) // from the trace
	for i, id := range p.newcomers.ids[t.seen:] {
		b := p.buffers.Get(id)
		if b != nil {
			if _, known := apart[b.set]; !known {
				apart[b.set] = b.set.common(t.set) == 0
			}
		}
		if id == 0 || b != nil && apart[b.set] {
			continue
		}
		p.newcomers.ids[t.seen+i] = 0
		if b == nil {
			continue
		}
		s.unsafeCount++
		owner := p.owners.known[id]
		one := memory.Unsafe{
			TimeNs: now, TraceID: t.id, Devices: b.set.ids, Region: b.Region.String(), PID: p.name.pid, UID: b.UID(), Sharer: p.name.sharer(),
			Count: 1, Bytes: b.bytes(), Stack: b.Stack, BufferID: id, Owner: owner.Path, Tensor: owner.Tensor,
		}
		var of *memory.Unsafe
		if s.unsafe, of = listed(s.unsafe, one, one.SameSite, func(u *memory.Unsafe) bool { return u.Sharer == one.Sharer }); of != nil {
			of.Count, of.Bytes = of.Count+1, of.Bytes+one.Bytes
		}
	}
	t.seen = len(p.newcomers.ids)
}

// listed returns the one in a list that is the same, or adds this one, if the list has room for it and for one more of
// its user.
func listed[T any](list []T, one T, same, ofUser func(*T) bool) ([]T, *T) {
	users := 0
	for i := range list {
		if same(&list[i]) {
			return list, &list[i]
		}
		if ofUser(&list[i]) {
			users++
		}
	}
	if users < maxUnsafe && len(list) < maxUnsafeSites {
		list = append(list, one)
	}
	return list, nil
}

// ownUnsafe notes the owner of an unsafe buffer that was searched later.
func (p *process) ownUnsafe(id uint64, o memory.Owner) {
	for i := range p.state.unsafe {
		if u := &p.state.unsafe[i]; u.PID == p.name.pid && u.BufferID == id {
			u.Owner, u.Tensor = o.Path, o.Tensor
		}
	}
}

// Unsafe returns the call sites whose buffers a replayed trace may overwrite, in the order in which they were found.
// The list is valid until the next event.
func (s *State) Unsafe() []memory.Unsafe { return s.unsafe }

// newcomers writes or reads those of a process, after its traces.
func (c *stateCodec) newcomers(p *process) {
	codec.ListUpTo(c.Codec, &p.newcomers.ids, maxNewcomers, func(id *uint64) { c.Uint(id) })
	codec.Number(c.Codec, &p.newcomers.most)
	if c.Reads && slices.ContainsFunc(p.traces, func(t *trace) bool { return t.seen < 0 || t.seen > len(p.newcomers.ids) }) {
		c.Fail()
	}
}
