package recording

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// fixed is the same header on all hosts.
var fixed = Header{
	Created: time.Unix(1_700_000_000, 0), MonotonicNs: 1e15, Host: "host", Kernel: "6.8.0", Ttmem: "v1.0.0", Recording: 1,
}

// write records events, flushed after each of the places given, and ends it.
func write(t testing.TB, events []event.Event, flushAt ...int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, fixed)
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		w.Add(&events[i])
		for _, at := range flushAt {
			if at == i {
				qt.Assert(t, qt.IsNil(w.Flush()))
				qt.Assert(t, qt.Equals(w.Size(), int64(b.Len())))
			}
		}
	}
	qt.Assert(t, qt.IsNil(w.Close(End{})))
	return b.Bytes()
}

// readAll reads events up to an error, nil for io.EOF.
func readAll(r *Reader) ([]event.Event, error) {
	var events []event.Event
	for {
		var e event.Event
		if err := r.Next(&e); errors.Is(err, io.EOF) && err == io.EOF {
			return events, nil
		} else if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func read(t testing.TB, recording []byte) []event.Event {
	t.Helper()
	r, err := NewReader(bytes.NewReader(recording))
	qt.Assert(t, qt.IsNil(err))
	events, err := readAll(r)
	qt.Assert(t, qt.IsNil(err))
	return events
}

// equal compares events and the frames of their stacks.
func equal(t testing.TB, got, want []event.Event) {
	t.Helper()
	qt.Assert(t, qt.Equals(len(got), len(want)))
	for i := range got {
		g, w := got[i], want[i]
		qt.Assert(t, qt.Equals(g.Stack != nil, w.Stack != nil))
		if gf, wf := g.Stack.Frames(), w.Stack.Frames(); len(gf) != 0 || len(wf) != 0 {
			if !reflect.DeepEqual(gf, wf) {
				qt.Assert(t, qt.DeepEquals(gf, wf), qt.Commentf("stack of event %d", i))
			}
		}
		g.Stack, w.Stack = nil, nil
		if !reflect.DeepEqual(g, w) {
			qt.Assert(t, qt.DeepEquals(g, w), qt.Commentf("event %d", i))
		}
	}
}

// fill sets a value to something that is not zero, and all that it has.
func fill(v reflect.Value, rng *rand.Rand) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(rng.Int64() - 1<<62 | 1)
		if rng.IntN(2) == 0 {
			v.SetInt(rng.Int64N(1000) - 2000)
		}
	case reflect.Uint8:
		switch v.Type() {
		case reflect.TypeFor[event.Kind]():
			v.SetUint(1 + rng.Uint64N(uint64(event.Mark)))
		case reflect.TypeFor[event.Region]():
			v.SetUint(1 + rng.Uint64N(uint64(event.NumRegions)-1))
		case reflect.TypeFor[event.KernelKind]():
			v.SetUint(1 + rng.Uint64N(uint64(event.NumKernelKinds)-1))
		default:
			v.SetUint(1 + rng.Uint64N(255))
		}
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rng.Uint64()>>(64-v.Type().Bits()) | 1)
		if rng.IntN(2) == 0 {
			v.SetUint(1 + rng.Uint64N(100))
		}
	case reflect.String:
		b := make([]byte, 1+rng.IntN(20))
		for i := range b {
			b[i] = byte(rng.Uint32()) // also what is not UTF-8
		}
		v.SetString(string(b))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+rng.IntN(4), 8))
		for i := range v.Len() {
			fill(v.Index(i), rng)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rng)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), rng)
		}
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*event.State]() {
			return // of checkpoints alone
		}
		if v.Type().Elem() == reflect.TypeFor[event.Start]() || v.Type().Elem() == reflect.TypeFor[event.Open]() ||
			v.Type().Elem() == reflect.TypeFor[event.Uses]() {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), rng)
			return
		}
		if v.Type() != reflect.TypeFor[*event.Stack]() {
			panic("fill does not know " + v.Type().String())
		}
		frames := make([]event.Frame, 1+rng.IntN(5))
		for i := range frames {
			fill(reflect.ValueOf(&frames[i]).Elem(), rng)
			switch rng.IntN(4) {
			case 0:
				frames[i].Kind = event.Native
			case 1:
				frames[i].Kind = event.Python
			}
			if rng.IntN(2) == 0 {
				frames[i].Inlined = false
			}
		}
		v.Set(reflect.ValueOf(event.StackOf(frames)))
	default:
		panic("fill does not know " + v.Type().String())
	}
}

// A field that is added to event.Event or event.Frame and not to this package
// makes this fail.
func TestEveryFieldIsReadAsItWasAdded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var events []event.Event
	fields := reflect.TypeFor[event.Event]()
	for i := range fields.NumField() {
		for range 3 { // alone, with each kind that has tables of its own
			e := event.Event{Kind: event.Alloc}
			fill(reflect.ValueOf(&e).Elem().Field(i), rng)
			events = append(events, e)
			if fields.Field(i).Name != "Kind" {
				e.Kind = event.Free
				events = append(events, e, event.Event{Kind: event.Free})
			}
		}
	}
	for range 3000 { // any of them together
		e := event.Event{}
		fill(reflect.ValueOf(&e.Kind).Elem(), rng)
		for i := range fields.NumField() {
			if rng.IntN(3) == 0 {
				fill(reflect.ValueOf(&e).Elem().Field(i), rng)
			}
		}
		events = append(events, e)
		if rng.IntN(2) == 0 { // once more, with little changed
			again := events[rng.IntN(len(events))]
			fill(reflect.ValueOf(&again).Elem().Field(rng.IntN(fields.NumField())), rng)
			events = append(events, again)
		}
	}
	equal(t, read(t, write(t, events, 10, 11, 500, 2000)), events)
}

func TestEmptyListsAndStacksAreNotNil(t *testing.T) {
	events := []event.Event{
		{Kind: event.Alloc, Devices: []int{}, Cores: []event.CoreRange{}, Stack: event.StackOf(nil)},
		{Kind: event.Alloc},
		{Kind: event.Alloc, Devices: []int{0}, Cores: []event.CoreRange{{}}},
		{Kind: event.Alloc, Devices: []int{}, Cores: []event.CoreRange{}, Stack: event.StackOf([]event.Frame{{}})},
		{Kind: event.Alloc},
	}
	equal(t, read(t, write(t, events)), events)
}

func TestWriterKeepsNothingOfAnEvent(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	e := event.Event{Kind: event.CBAlloc, Devices: []int{1, 2}, Cores: []event.CoreRange{{X0: 1, Y0: 2, X1: 3, Y1: 4}}}
	want := make([]event.Event, 2)
	for i := range want {
		e.Devices[0], e.Cores[0].X0 = i, uint16(i)
		want[i] = e
		want[i].Devices, want[i].Cores = []int{i, 2}, []event.CoreRange{{X0: uint16(i), Y0: 2, X1: 3, Y1: 4}}
		w.Add(&e)
	}
	qt.Assert(t, qt.IsNil(w.Close(End{})))
	equal(t, read(t, b.Bytes()), want)
}

func TestAStackIsLookedUpOnceAndSharedByItsEvents(t *testing.T) {
	frames := []event.Frame{{Kind: event.Native, Name: "allocate"}, {Kind: event.Python, Name: "main"}}
	asked := 0
	stack := event.NewStack(7, func() []*event.Call {
		asked++
		return []*event.Call{event.NewCall(frames[:1]), event.NewCall(frames[1:])}
	})
	other := event.StackOf(frames[:1])
	same := event.StackOf(frames) // of another process
	var events []event.Event
	for _, s := range []*event.Stack{stack, other, stack, same, stack} {
		events = append(events, event.Event{Kind: event.Alloc, Stack: s})
	}
	got := read(t, write(t, events, 1, 2))
	equal(t, got, events)
	qt.Assert(t, qt.Equals(asked, 1))
	qt.Assert(t, qt.Equals(got[2].Stack, got[0].Stack))
	qt.Assert(t, qt.Equals(got[3].Stack, got[0].Stack))
	qt.Assert(t, qt.Equals(got[4].Stack, got[0].Stack))
	qt.Assert(t, qt.Not(qt.Equals(got[1].Stack.ID, got[0].Stack.ID)))

	again := read(t, write(t, events[1:]))
	qt.Assert(t, qt.Equals(again[1].Stack.ID, got[0].Stack.ID), qt.Commentf("equal frames of another file"))
	qt.Assert(t, qt.Not(qt.Equals(again[1].Stack.ID, 0)))
}

func TestStacksAreReadableWhileReadingGoesOn(t *testing.T) {
	events := loop(20_000, newStacks(1000))
	r, err := NewReader(bytes.NewReader(write(t, events, 5000, 10_000, 15_000)))
	qt.Assert(t, qt.IsNil(err))
	var e event.Event
	qt.Assert(t, qt.IsNil(r.Next(&e)))
	first, done := e.Stack, make(chan []event.Frame)
	go func() { done <- first.Frames() }()
	for r.Next(&e) == nil {
	}
	qt.Assert(t, qt.DeepEquals(<-done, events[0].Stack.Frames()))
}

func TestDefinitionsBeginAnew(t *testing.T) {
	events := loop(3000, newStacks(40))
	var b bytes.Buffer
	w, err := NewWriter(&b, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	resets := 0
	for i := range events {
		if i%700 == 350 {
			w.rows.refs = maxFrameRefs / 2 // as after days
		}
		w.Add(&events[i])
		if w.next.flags&blockReset != 0 && w.next.events == 0 {
			resets++
		}
	}
	qt.Assert(t, qt.IsNil(w.Close(End{})))
	qt.Assert(t, qt.Equals(resets, 4))
	equal(t, read(t, b.Bytes()), events)
}

func TestWriterForgetsCalls(t *testing.T) {
	w, err := NewWriter(io.Discard, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	frames := newStacks(1)[0].Frames()
	for i := range 3 * maxCalls {
		calls := []*event.Call{event.NewCall(frames[i%8 : i%8+1])}
		w.Add(&event.Event{Kind: event.Alloc, Stack: event.NewStack(uint64(i+1), func() []*event.Call { return calls })})
		qt.Assert(t, qt.IsTrue(len(w.rows.callFrames) <= maxCalls))
	}
	qt.Assert(t, qt.Equals(w.rows.defined, 8))
}

func TestShapesBeginAnew(t *testing.T) {
	var events []event.Event
	for i := range 3 * maxShapes {
		// more lists and shapes than are kept, in one block
		events = append(events,
			event.Event{Kind: event.CBAlloc, TID: i, PID: i / 2, ProgramID: uint64(i), Devices: []int{i, i + 1}, Cores: []event.CoreRange{{X0: uint16(i)}}},
			event.Event{Kind: event.Alloc, TID: i % 7, BufferID: uint64(i), Devices: []int{i % 100}})
	}
	equal(t, read(t, write(t, events)), events)
}

func TestALongEventStaysReadable(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 2*maxString))
	events := []event.Event{{
		Kind: event.AllocFailed, Message: long, Comm: long, Open: &event.Open{Board: long}, Start: &event.Start{Library: long + "y"},
		Devices: make([]int, 2*maxList), Cores: make([]event.CoreRange, 2*maxList),
	}, {Kind: event.Lost, Count: 3}}
	var frames []event.Frame
	for i := range 2 * maxStackFrames {
		frames = append(frames, event.Frame{Kind: event.Native, Name: string(rune('a'+i%26)) + long[:10_000-i], Line: i})
	}
	events[0].Stack = event.StackOf(frames)
	got := read(t, write(t, events))
	qt.Assert(t, qt.Equals(len(got), 2))
	qt.Assert(t, qt.Equals(got[0].Message, long[:maxString]))
	qt.Assert(t, qt.Equals(len(got[0].Devices), maxList))
	qt.Assert(t, qt.Equals(len(got[0].Stack.Frames()), maxStackFrames))
	qt.Assert(t, qt.DeepEquals(got[0].Stack.Frames()[:100], frames[:100]))
	qt.Assert(t, qt.DeepEquals(got[1], events[1]))
}

func TestAnEventIsWrittenWithoutAFlush(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	rng := rand.New(rand.NewPCG(1, 2))
	full := false
	for range 200_000 {
		w.Add(&event.Event{Kind: event.Alloc, Object: rng.Uint64(), Address: rng.Uint64()})
		full = full || w.Full()
		if w.rows.length() >= mostBytes {
			t.Fatalf("%d bytes are pending", w.rows.length())
		}
	}
	qt.Assert(t, qt.IsTrue(full))
	qt.Assert(t, qt.IsTrue(w.Size() > mostBytes/2))
	qt.Assert(t, qt.IsNil(w.Close(End{})))
	qt.Assert(t, qt.Equals(len(read(t, b.Bytes())), 200_000))
}

func TestHeaderAndEnd(t *testing.T) {
	var b bytes.Buffer
	h := Header{
		Created: time.Unix(1_700_000_000, 5), MonotonicNs: 1e9, Host: "host-1", Kernel: "6.6.0",
		Ttmem: "v9", Recording: 1 << 63, Part: 3,
	}
	end := End{
		HasStacks: true, Taken: 100, Python: 50, Continued: true,
		Incomplete: map[string]uint64{"no unwind row": 2, "too deep": 1}, IncompletePython: map[string]uint64{"torn": 0},
	}
	w, err := NewWriter(&b, h)
	qt.Assert(t, qt.IsNil(err))
	w.Add(&event.Event{Kind: event.Lost})
	qt.Assert(t, qt.IsNil(w.Close(end)))
	b.WriteString("what follows the end is not looked at")

	r, err := NewReader(&b)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(r.Header(), h))
	_, ended := r.End()
	qt.Assert(t, qt.IsFalse(ended))
	_, err = readAll(r)
	qt.Assert(t, qt.IsNil(err))
	got, ended := r.End()
	qt.Assert(t, qt.IsTrue(ended))
	qt.Assert(t, qt.DeepEquals(got, end))

	here := NewHeader()
	qt.Assert(t, qt.IsTrue(time.Since(here.Created) < time.Minute))
	qt.Assert(t, qt.Not(qt.Equals(here.Host, "")))
	qt.Assert(t, qt.Not(qt.Equals(here.Kernel, "")))
}

func TestAnEndWithoutStacksHasNoCounts(t *testing.T) {
	r, err := NewReader(bytes.NewReader(write(t, nil)))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(r.Next(new(event.Event)), io.EOF))
	end, ended := r.End()
	qt.Assert(t, qt.IsTrue(ended))
	qt.Assert(t, qt.DeepEquals(end, End{}))
}
