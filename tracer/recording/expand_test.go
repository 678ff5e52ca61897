package recording

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
)

// expanding returns a recording of a few KB that claims to have hundreds of MB: blocks of equal events,
// compressed without padding.
func expanding(t testing.TB, blocks int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, fixed)
	qt.Assert(t, qt.IsNil(err))
	for range blocks {
		payload := bytes.Repeat([]byte{0}, maxRaw)
		b := w.zstd.EncodeAll(payload, make([]byte, blockHead))
		h := head{kind: blockEvents, packed: uint32(len(b) - blockHead), raw: maxRaw, events: maxRaw / 8}
		h.put(b)
		out.Write(b)
	}
	return out.Bytes()
}

// TestABlockExpandsLittle: the length of a file bounds what reading it takes.
func TestABlockExpandsLittle(t *testing.T) {
	b := expanding(t, 20)
	qt.Assert(t, qt.IsTrue(len(b) < 46<<10))
	fuzztest.Bounded(t, len(b), 0, func() {
		r, err := NewReader(bytes.NewReader(b))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.ErrorMatches(r.Next(new(event.Event)), ".*damaged at byte .* \\(it expands too much\\).*"))
	})
}

// TestRegularEventsAreReadAgain: a writer keeps to the limits of a reader, however well the events
// compress.
func TestRegularEventsAreReadAgain(t *testing.T) {
	shared := make([]event.Frame, maxStackFrames-1)
	for i := range shared {
		shared[i] = event.Frame{Name: "f", Inlined: i%100 == 7}
	}
	stackOf := func(i int) *event.Stack {
		return event.StackOf(append([]event.Frame{{Name: strings.Repeat("g", i%3), Line: i}}, shared...))
	}
	for name, stacks := range map[string]int{"few stacks": 1, "deep stacks": 2000} {
		var list []*event.Stack
		for i := range stacks {
			list = append(list, stackOf(i))
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, fixed)
		qt.Assert(t, qt.IsNil(err))
		const n = 200_000
		for i := range n {
			w.Add(&event.Event{Kind: event.Alloc, TimeNs: uint64(i), PID: 7, BufferID: uint64(i), Stack: list[i%len(list)]})
		}
		qt.Assert(t, qt.IsNil(w.Close(End{})))
		r, err := NewReader(bytes.NewReader(out.Bytes()))
		qt.Assert(t, qt.IsNil(err))
		var e event.Event
		read := 0
		for err = r.Next(&e); err == nil; err = r.Next(&e) {
			read++
		}
		qt.Check(t, qt.Equals(err, io.EOF), qt.Commentf(name))
		qt.Check(t, qt.Equals(read, n), qt.Commentf(name))
	}
}

// TestRepeatedStacksAreBounded: a few bytes that repeat a deep stack with another frame are not read.
func TestRepeatedStacksAreBounded(t *testing.T) {
	stacks := make([]event.Event, 3000)
	shared := make([]event.Frame, maxStackFrames-1)
	for i := range stacks {
		stacks[i] = event.Event{Kind: event.Alloc, PID: 7, Stack: event.StackOf(append([]event.Frame{{Line: i}}, shared...))}
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, fixed)
	qt.Assert(t, qt.IsNil(err))
	for i := range stacks {
		w.rows.row(&stacks[i])
		w.next.events++
	}
	w.rows.blockRefs = 0 // no padding
	qt.Assert(t, qt.IsNil(w.Flush()))
	fuzztest.Bounded(t, out.Len(), 64*16, func() {
		r, err := NewReader(bytes.NewReader(out.Bytes()))
		qt.Assert(t, qt.IsNil(err))
		for err == nil {
			err = r.Next(new(event.Event))
		}
		qt.Check(t, qt.ErrorMatches(err, ".*its events make no sense.*"))
	})
}

// TestACheckpointBeyondTheLimitsIsNotWritten: nobody could read it.
func TestACheckpointBeyondTheLimitsIsNotWritten(t *testing.T) {
	large := &event.Event{Kind: event.Checkpoint, TimeNs: 5, State: &event.State{Data: make([]byte, maxStateBytes+1)}}
	read := read(t, write(t, []event.Event{*large, {Kind: event.Mark, TimeNs: 6}}))
	qt.Assert(t, qt.HasLen(read, 2))
	qt.Check(t, qt.Equals(read[0].Kind, event.Lost))
	qt.Check(t, qt.Equals(read[0].Cause, StateTooLarge))
	qt.Check(t, qt.HasLen(checkpointBlocks(func() *event.Event { return large }, 100), 0))
}
