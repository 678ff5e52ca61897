package recording

import (
	"bytes"
	"io"
	"slices"
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

// TestRepetitionIsBounded: a few bytes that repeat a deep stack with another frame, or a long text, are not read. A
// writer pads their block, so that they are read again.
func TestRepetitionIsBounded(t *testing.T) {
	long := strings.Repeat("n", maxString)
	same := func(f event.Frame) *event.Stack {
		frames := make([]event.Frame, maxStackFrames)
		for i := range frames {
			frames[i] = f
			frames[i].Line = i
		}
		return event.StackOf(frames)
	}
	shared := make([]event.Frame, maxStackFrames-1)
	for name, events := range map[string][]event.Event{
		"frames": allocs(300, func(i int) event.Event {
			return event.Event{Stack: event.StackOf(append([]event.Frame{{Line: i}}, shared...))}
		}),
		"names":    allocs(1, func(int) event.Event { return event.Event{Stack: same(event.Frame{Name: long})} }),
		"files":    allocs(1, func(int) event.Event { return event.Event{Stack: same(event.Frame{File: long})} }),
		"modules":  allocs(1, func(int) event.Event { return event.Event{Stack: same(event.Frame{Module: long})} }),
		"symbols":  allocs(1, func(int) event.Event { return event.Event{Stack: same(event.Frame{Symbol: long, Path: long})} }),
		"messages": allocs(9000, func(i int) event.Event { return event.Event{Message: long, Cause: long, SizeBytes: uint64(i)} }),
	} {
		t.Run(name, func(t *testing.T) {
			equal(t, read(t, write(t, events)), events)
			var out bytes.Buffer
			w, err := NewWriter(&out, fixed)
			qt.Assert(t, qt.IsNil(err))
			for i := range events {
				w.rows.row(&events[i])
				w.next.events++
			}
			w.rows.blockRefs = 0 // no padding
			qt.Assert(t, qt.IsNil(w.Flush()))
			fuzztest.Bounded(t, out.Len(), 2*maxBlockRefs*refText, func() {
				r, err := NewReader(bytes.NewReader(out.Bytes()))
				qt.Assert(t, qt.IsNil(err))
				for err == nil {
					err = r.Next(new(event.Event))
				}
				qt.Check(t, qt.ErrorMatches(err, ".*its events make no sense.*"))
			})
		})
	}
}

// allocs returns n events, which are allocations.
func allocs(n int, of func(int) event.Event) (events []event.Event) {
	for i := range n {
		e := of(i)
		e.Kind, e.PID = event.Alloc, 7
		events = append(events, e)
	}
	return events
}

// TestMuchPaddingEndsABlock: a block that needs more padding than a block may have is not written.
func TestMuchPaddingEndsABlock(t *testing.T) {
	frame := event.NewCall([]event.Frame{{Name: strings.Repeat("n", maxString)}})
	shared := slices.Repeat([]*event.Call{frame}, maxStackFrames-1)
	events := allocs(1000, func(i int) event.Event {
		return event.Event{Stack: event.NewStack(uint64(i+1), func() []*event.Call {
			return append([]*event.Call{event.NewCall([]event.Frame{{Line: i}})}, shared...)
		})}
	})
	qt.Check(t, qt.HasLen(read(t, write(t, events)), len(events)))
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
