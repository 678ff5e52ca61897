package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/klauspost/compress/zstd"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// The events of a story are kept in a form of their own, events.jsonl.zst: neither the
// format of recordings nor that of JSON documents may change what is in them. A line has one
// of the fields of storyLine. Calls and stacks have numbers, and come before what names
// them.

// storyLine is one line of a story's events.
type storyLine struct {
	Header *storyHeader `json:"header,omitempty"`
	Call   *storyCall   `json:"call,omitempty"`
	Stack  *storyStack  `json:"stack,omitempty"`
	Event  *storyEvent  `json:"event,omitempty"`
	End    *storyEnd    `json:"end,omitempty"`
}

// storyHeader is when and where a recording began.
type storyHeader struct {
	Created     time.Time `json:"created"`
	MonotonicNs uint64    `json:"monotonic_ns"`
	Host        string    `json:"host"`
	Kernel      string    `json:"kernel"`
}

// storyEnd is what a recording ends with. A recording that was cut short has none.
type storyEnd struct {
	TimeNs           uint64            `json:"time_ns"`
	HasStacks        bool              `json:"has_stacks"`
	Taken            uint64            `json:"taken"`
	Incomplete       map[string]uint64 `json:"incomplete,omitempty"`
	Python           uint64            `json:"python"`
	IncompletePython map[string]uint64 `json:"incomplete_python,omitempty"`
}

// storyCall is a call of stacks, with the frames that are inlined in it.
type storyCall struct {
	Number int          `json:"number"`
	Frames []storyFrame `json:"frames"`
}

type storyFrame struct {
	Kind    string `json:"kind"`
	Name    string `json:"name,omitempty"`
	Symbol  string `json:"symbol,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Inlined bool   `json:"inlined,omitempty"`
	Module  string `json:"module,omitempty"`
	Path    string `json:"path,omitempty"`
	BuildID string `json:"build_id,omitempty"`
	Address uint64 `json:"address,omitempty"`
}

// storyStack is a stack of the calls with these numbers, innermost first.
type storyStack struct {
	Number int   `json:"number"`
	Calls  []int `json:"calls"`
}

// storyEvent has all fields of an event. What is a number with names is kept by name.
type storyEvent struct {
	TimeNs        uint64                   `json:"time_ns"`
	Kind          string                   `json:"kind"`
	PID           int                      `json:"pid,omitempty"`
	TID           int                      `json:"tid,omitempty"`
	Comm          string                   `json:"comm,omitempty"`
	Devices       []int                    `json:"devices,omitempty"`
	Region        string                   `json:"region,omitempty"`
	BufferID      uint64                   `json:"buffer_id,omitempty"`
	Object        uint64                   `json:"object,omitempty"`
	Allocator     uint64                   `json:"allocator,omitempty"`
	Address       uint64                   `json:"address,omitempty"`
	SizeBytes     uint64                   `json:"size_bytes,omitempty"`
	PageSizeBytes uint64                   `json:"page_size_bytes,omitempty"`
	Layout        string                   `json:"layout,omitempty"`
	BytesPerBank  uint64                   `json:"bytes_per_bank,omitempty"`
	Banks         uint32                   `json:"banks,omitempty"`
	ProgramID     uint64                   `json:"program_id,omitempty"`
	Cores         [][4]uint16              `json:"cores,omitempty"`
	Uses          *event.Uses              `json:"uses,omitempty"`
	StaticKind    string                   `json:"static_kind,omitempty"`
	KernelKind    string                   `json:"kernel_kind,omitempty"`
	Global        bool                     `json:"global,omitempty"`
	PerCore       bool                     `json:"per_core,omitempty"`
	Reason        string                   `json:"reason,omitempty"`
	Message       string                   `json:"message,omitempty"`
	BeforeAttach  bool                     `json:"before_attach,omitempty"`
	Reread        bool                     `json:"reread,omitempty"`
	Capacities    map[string]storyCapacity `json:"capacities,omitempty"`
	Board         string                   `json:"board,omitempty"`
	Arch          string                   `json:"arch,omitempty"`
	Mesh          bool                     `json:"mesh,omitempty"`
	Command       string                   `json:"command,omitempty"`
	Library       string                   `json:"library,omitempty"`
	Release       string                   `json:"release,omitempty"`
	UID           int                      `json:"uid,omitempty"`
	Container     string                   `json:"container,omitempty"`
	Pod           string                   `json:"pod,omitempty"`
	ContainerPID  int                      `json:"container_pid,omitempty"`
	AttachedLate  bool                     `json:"attached_late,omitempty"`
	ExitStatus    int                      `json:"exit_status,omitempty"`
	Count         uint64                   `json:"count,omitempty"`
	Cause         string                   `json:"cause,omitempty"`
	Stack         int                      `json:"stack,omitempty"` // 0: none
}

type storyCapacity struct {
	Banks        uint32 `json:"banks"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	Base         uint64 `json:"base,omitempty"`
}

// A storyStream is the events of a story, as a recording has them.
type storyStream struct {
	header storyHeader
	events []event.Event
	end    *storyEnd
}

// readStory reads the events of a story.
func readStory(t testing.TB, path string) *storyStream {
	t.Helper()
	f, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	z, err := zstd.NewReader(f)
	qt.Assert(t, qt.IsNil(err))
	defer z.Close()
	s, err := parseStory(z)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", path))
	return s
}

// parseStory reads the lines of a story. After an error it returns what was before that.
func parseStory(r io.Reader) (*storyStream, error) {
	s := new(storyStream)
	calls, stacks := make(map[int]*event.Call), make(map[int]*event.Stack)
	lines := json.NewDecoder(bufio.NewReader(r))
	lines.DisallowUnknownFields()
	for {
		var line storyLine
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		switch {
		case line.Header != nil:
			s.header = *line.Header
		case line.Call != nil:
			var frames []event.Frame
			for _, f := range line.Call.Frames {
				frames = append(frames, event.Frame(f))
			}
			calls[line.Call.Number] = event.NewCall(frames)
		case line.Stack != nil:
			var list []*event.Call
			for _, number := range line.Stack.Calls {
				if calls[number] == nil {
					return s, fmt.Errorf("there is no call %d", number)
				}
				list = append(list, calls[number])
			}
			number := line.Stack.Number
			stacks[number] = event.NewStack(uint64(number), func() []*event.Call { return list })
		case line.Event != nil:
			e, err := line.Event.event()
			if err != nil {
				return s, err
			}
			if e.Stack = stacks[line.Event.Stack]; e.Stack == nil && line.Event.Stack != 0 {
				return s, fmt.Errorf("there is no stack %d", line.Event.Stack)
			}
			s.events = append(s.events, e)
		case line.End != nil:
			s.end = line.End
		}
	}
}

// event is the event, without its stack.
func (s *storyEvent) event() (e event.Event, err error) {
	e = event.Event{
		TimeNs: s.TimeNs, PID: s.PID, TID: s.TID, Comm: s.Comm, Devices: s.Devices,
		BufferID: s.BufferID, Object: s.Object, Allocator: s.Allocator, Address: s.Address,
		SizeBytes: s.SizeBytes, PageSizeBytes: s.PageSizeBytes, BytesPerBank: s.BytesPerBank, Banks: s.Banks,
		ProgramID: s.ProgramID, Global: s.Global, PerCore: s.PerCore, Message: s.Message, BeforeAttach: s.BeforeAttach, Reread: s.Reread,
		Open: &event.Open{Board: s.Board, Arch: s.Arch}, Mesh: s.Mesh, Start: &event.Start{
			Command: s.Command, Library: s.Library, Release: s.Release, Container: s.Container, Pod: s.Pod, ContainerPID: s.ContainerPID,
			AttachedLate: s.AttachedLate,
		},
		UID: s.UID, ExitStatus: s.ExitStatus, Count: s.Count, Cause: s.Cause, Uses: s.Uses,
	}
	for _, c := range s.Cores {
		e.Cores = append(e.Cores, event.CoreRange{X0: c[0], Y0: c[1], X1: c[2], Y1: c[3]})
	}
	for name, c := range s.Capacities {
		region, err := valueNamed[event.Region](name)
		if err == nil && int(region) >= len(e.Open.Capacities) {
			err = fmt.Errorf("%s has no capacity", name)
		}
		if err != nil {
			return e, err
		}
		e.Open.Capacities[region] = event.Capacity(c)
	}
	if *e.Start == (event.Start{}) {
		e.Start = nil
	}
	if *e.Open == (event.Open{}) {
		e.Open = nil
	}
	var errs [6]error
	e.Kind, errs[0] = valueNamed[event.Kind](s.Kind)
	e.Region, errs[1] = valueNamed[event.Region](s.Region)
	e.Layout, errs[2] = valueNamed[event.Layout](s.Layout)
	e.StaticKind, errs[3] = valueNamed[event.StaticKind](s.StaticKind)
	e.KernelKind, errs[4] = valueNamed[event.KernelKind](s.KernelKind)
	e.Reason, errs[5] = valueNamed[event.Reason](s.Reason)
	return e, errors.Join(errs[:]...)
}

// named is a number that has a name.
type named interface {
	~uint8
	comparable
	String() string
}

// valueNamed is the value with that name; the zero value for "".
func valueNamed[T named](name string) (v T, err error) {
	if name == "" {
		return v, nil
	}
	for i := range 256 {
		if v = T(i); v.String() == name {
			return v, nil
		}
	}
	return v, fmt.Errorf("there is no %T %q", v, name)
}

// nameOf is the value's name; "" for the zero value.
func nameOf[T named](v T) string {
	var zero T
	if v == zero {
		return ""
	}
	return v.String()
}

// A storyWriter writes the events of a story.
type storyWriter struct {
	lines  *json.Encoder
	z      *zstd.Encoder
	calls  map[string]int // by their frames
	stacks map[*event.Stack]int
}

func newStoryWriter(t *testing.T, f io.Writer) *storyWriter {
	t.Helper()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	qt.Assert(t, qt.IsNil(err))
	return &storyWriter{json.NewEncoder(z), z, make(map[string]int), make(map[*event.Stack]int)}
}

func (w *storyWriter) write(t testing.TB, line storyLine) {
	t.Helper()
	qt.Assert(t, qt.IsNil(w.lines.Encode(&line)))
}

// add writes an event, and before it what is new of its stack.
func (w *storyWriter) add(t testing.TB, e *event.Event) {
	t.Helper()
	s := &storyEvent{
		TimeNs: e.TimeNs, Kind: nameOf(e.Kind), PID: e.PID, TID: e.TID, Comm: e.Comm, Devices: e.Devices, Region: nameOf(e.Region),
		BufferID: e.BufferID, Object: e.Object, Allocator: e.Allocator, Address: e.Address,
		SizeBytes: e.SizeBytes, PageSizeBytes: e.PageSizeBytes, Layout: nameOf(e.Layout), BytesPerBank: e.BytesPerBank, Banks: e.Banks,
		ProgramID: e.ProgramID, StaticKind: nameOf(e.StaticKind), KernelKind: nameOf(e.KernelKind), Global: e.Global, PerCore: e.PerCore,
		Reason: nameOf(e.Reason), Message: e.Message, BeforeAttach: e.BeforeAttach, Reread: e.Reread,
		Board: e.Opened().Board, Arch: e.Opened().Arch, Mesh: e.Mesh, Command: e.Started().Command, Library: e.Started().Library, Release: e.Started().Release,
		UID: e.UID, Container: e.Started().Container, Pod: e.Started().Pod, ContainerPID: e.Started().ContainerPID,
		AttachedLate: e.Started().AttachedLate, ExitStatus: e.ExitStatus, Count: e.Count, Cause: e.Cause, Uses: e.Uses,
	}
	for _, c := range e.Cores {
		s.Cores = append(s.Cores, [4]uint16{c.X0, c.Y0, c.X1, c.Y1})
	}
	for r, c := range e.Opened().Capacities {
		if c != (event.Capacity{}) {
			if s.Capacities == nil {
				s.Capacities = make(map[string]storyCapacity)
			}
			s.Capacities[event.Region(r).String()] = storyCapacity(c)
		}
	}
	if e.Stack != nil {
		s.Stack = w.stack(t, e.Stack)
	}
	w.write(t, storyLine{Event: s})
}

// stack is the number of a stack, which is written if it is new.
func (w *storyWriter) stack(t testing.TB, s *event.Stack) int {
	t.Helper()
	if number, ok := w.stacks[s]; ok {
		return number
	}
	var calls []int
	for _, c := range s.Calls() {
		call := &storyCall{}
		for _, f := range c.Frames {
			call.Frames = append(call.Frames, storyFrame(f))
		}
		key := fmt.Sprint(call.Frames)
		if w.calls[key] == 0 {
			w.calls[key] = len(w.calls) + 1
			call.Number = w.calls[key]
			w.write(t, storyLine{Call: call})
		}
		calls = append(calls, w.calls[key])
	}
	number := len(w.stacks) + 1
	w.stacks[s] = number
	w.write(t, storyLine{Stack: &storyStack{number, calls}})
	return number
}

// storyFlush is how many events are written at a time where a recording is to have
// checkpoints: so many that some come between two checkpoints.
const storyFlush = 50

// record writes the story to a recording, as ttmem attach does it: every half a second of
// the events what came is written. With checkpointEvents it has checkpoints besides, so
// many events from each other or more, as long recordings have them.
func (s *storyStream) record(t *testing.T, path string, checkpointEvents int) {
	t.Helper()
	state := aggregate.New()
	file, err := recording.Create(path, recording.FileOptions{
		Header: &recording.Header{
			Created: s.header.Created, MonotonicNs: s.header.MonotonicNs,
			Host: s.header.Host, Kernel: s.header.Kernel, Ttmem: "golden", Recording: 1,
		},
		Checkpoint: func() func() *event.Event { return state.Freeze(nil) }, CheckpointEvents: checkpointEvents,
	})
	qt.Assert(t, qt.IsNil(err))
	state.Begin(s.header.MonotonicNs)
	var flushedNs uint64
	for i := range s.events {
		e := s.events[i]
		state.Complete(&e)
		state.Apply(&e)
		file.Add(&e)
		if e.TimeNs >= flushedNs+uint64(record.FlushInterval) || checkpointEvents > 0 && i%storyFlush == 0 {
			flushedNs = max(flushedNs, e.TimeNs)
			qt.Assert(t, qt.IsNil(file.Flush()))
			qt.Assert(t, qt.IsNil(file.Settle())) // always at the same place
		}
	}
	if s.end == nil {
		qt.Assert(t, qt.IsNil(file.Flush()))
		return
	}
	qt.Assert(t, qt.IsNil(file.Close(recording.End{
		TimeNs: s.end.TimeNs, HasStacks: s.end.HasStacks, Taken: s.end.Taken, Incomplete: s.end.Incomplete,
		Python: s.end.Python, IncompletePython: s.end.IncompletePython,
	})))
}

// convertStory writes the events of a recording as those of a story, without what only
// the machine has that it was made on.
func convertStory(t *testing.T, from, to string) {
	t.Helper()
	r, err := recording.Open(from)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(to), 0o755)))
	f, err := os.Create(to)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	w, names := newStoryWriter(t, f), newAnonymiser(t)
	w.write(t, storyLine{Header: &storyHeader{r.Header().Created.UTC(), r.Header().MonotonicNs, "host", "6.1.0"}})
	for {
		var e event.Event
		err := r.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", from))
		names.event(t, &e)
		w.add(t, &e)
	}
	if end, ok := r.End(); ok {
		w.write(t, storyLine{End: &storyEnd{
			end.TimeNs, end.HasStacks, end.Taken, end.Incomplete, end.Python, end.IncompletePython,
		}})
	}
	qt.Assert(t, qt.IsNil(w.z.Close()))
	qt.Assert(t, qt.IsNil(f.Close()))
}

// TestEventsOfStoriesComeBack: all fields of an event, a frame and an end are kept, also
// those that are added one day.
func TestEventsOfStoriesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	f, err := os.Create(path)
	qt.Assert(t, qt.IsNil(err))
	w := newStoryWriter(t, f)
	var e event.Event
	var frames [2]event.Frame
	end := new(storyEnd)
	for _, v := range []any{&e, &frames, end} {
		setFields(reflect.ValueOf(v).Elem())
	}
	e.Kind, e.Region, e.Layout, e.StaticKind, e.Reason = event.Mark, event.Kernel, event.NDSharded, event.Scratchpad, event.ReasonStaticClash
	e.KernelKind = event.FabricKernels
	calls := []*event.Call{event.NewCall(frames[:1]), event.NewCall(frames[:])}
	e.Stack = event.NewStack(1, func() []*event.Call { return calls })
	second := e
	second.Stack = nil
	for _, e := range []*event.Event{&e, &second, &e} {
		w.add(t, e)
	}
	w.write(t, storyLine{End: end})
	qt.Assert(t, qt.IsNil(w.z.Close()))
	qt.Assert(t, qt.IsNil(f.Close()))

	got := readStory(t, path)
	qt.Check(t, qt.DeepEquals(got.end, end))
	qt.Assert(t, qt.HasLen(got.events, 3))
	qt.Check(t, qt.Equals(got.events[2].Stack, got.events[0].Stack))
	var back [2][]event.Frame
	for i, c := range got.events[0].Stack.Calls() {
		back[i] = c.Frames
	}
	qt.Check(t, qt.DeepEquals(back, [2][]event.Frame{frames[:1], frames[:]}))
	got.events[0].Stack, e.Stack = nil, nil
	for i := range 2 {
		qt.Check(t, qt.DeepEquals(got.events[i], e))
	}
}

// setFields gives a value and what is in it other values than zero.
func setFields(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			setFields(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			setFields(v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		setFields(v.Index(0))
		setFields(v.Index(1))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]uint64{"a": 1, "b": 2}))
	case reflect.String:
		v.SetString("a \"text\" <of>\nlines ½")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(-7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(5)
	}
}
