package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// leakRecording records events as ttmem record does, with a checkpoint each so many.
func leakRecording(t *testing.T, every int, o recording.FileOptions, events func(add func(event.Event))) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.ttmem")
	var f *recording.File
	state := aggregate.New()
	growth := aggregate.NewGrowth(aggregate.GrowthOptions{StackID: func(s *event.Stack) uint64 { return f.StackID(s) }})
	header := recording.NewHeader()
	o.Header = &header
	o.Checkpoint, o.CheckpointEvents = frozen(state), every
	if o.CheckpointNote == nil {
		o.CheckpointNote = growth.Note
	}
	f, err := recording.Create(path, o)
	qt.Assert(t, qt.IsNil(err))
	record := applying(state, func(e *event.Event) {
		f.Add(e)
		growth.Apply(e)
	})
	n := 0
	events(func(e event.Event) {
		e.TimeNs += header.MonotonicNs
		record(&e)
		if n++; n%50 == 0 {
			qt.Assert(t, qt.IsNil(f.Flush()))
			qt.Assert(t, qt.IsNil(f.Settle()))
		}
	})
	qt.Assert(t, qt.IsNil(f.Close(recording.End{TimeNs: header.MonotonicNs + 1e9})))
	return path
}

// randomLeaks are events of random programs, some of whose stacks keep what they allocate.
func randomLeaks(seed uint64, count, marks int) func(add func(event.Event)) {
	return func(add func(event.Event)) {
		r := rand.New(rand.NewPCG(seed, 12))
		var stacks []*event.Stack
		for i := range 60 {
			stacks = append(stacks, event.StackOf([]event.Frame{
				{Kind: event.Native, Name: "nanobind::detail::func_create<ttnn.add>::{lambda#1}", Module: "_ttnn.so", Address: uint64(i)},
				{Kind: event.Python, Name: "forward", File: "model.py", Line: i / 2}, {Kind: event.Python, Name: "main", File: "run.py", Line: 3},
			}))
		}
		young, id, now := make(map[int][]uint64), uint64(0), uint64(1000)
		for range count {
			pid := 100 + r.IntN(3)
			now += 1 + r.Uint64N(100_000)
			e := event.Event{TimeNs: now, PID: pid, TID: pid, Comm: "python", Devices: []int{r.IntN(2)}, Allocator: uint64(1 + r.IntN(2))}
			switch n := r.IntN(2000); {
			case marks > 0 && r.IntN(marks) == 0:
				e = event.Event{TimeNs: now, Kind: event.Mark, Cause: fmt.Sprint("m", r.IntN(9))}
				if r.IntN(3) == 0 {
					e.Cause = "test_a.py::test_b (end)"
				}
			case n < 1:
				e.Kind, e.Command = event.ProcessStart, fmt.Sprint("run ", now)
			case n < 2:
				e.Kind, e.ExitStatus = event.ProcessExit, 0
			case n < 4:
				e.Kind = event.DeviceClose
			case n < 5:
				e = event.Event{TimeNs: now, Kind: event.Lost, Cause: "ring buffer full", Count: 2}
			case n < 1050:
				id++
				i := r.IntN(len(stacks))
				e.Kind, e.BufferID, e.Stack, e.BytesPerBank, e.Banks = event.Alloc, id, stacks[i], 1024, 12
				e.Region, e.BeforeAttach = event.Region(r.IntN(2)), r.IntN(100) == 0
				if i%7 != 0 {
					young[pid] = append(young[pid], id)
				}
			default:
				list := young[pid]
				if len(list) == 0 {
					continue
				}
				i := r.IntN(len(list))
				e.Kind, e.BufferID, e.Reason = event.Free, list[i], event.ReasonExplicit
				young[pid] = append(list[:i], list[i+1:]...)
			}
			add(e)
		}
	}
}

// leaksBothWays is the page of a file as JSON, made from its last note and of all events,
// and what the notes say. The first is nil where there is no note to go on at.
func leaksBothWays(t *testing.T, path string) (resumed, whole []byte) {
	t.Helper()
	page := func(o leaksOptions, skipped bool) []byte {
		o.by = "stack"
		w, f, err := watchLeaks(path, &o, aggregate.GrowthOptions{})
		qt.Assert(t, qt.IsNil(err))
		if w.skipped != skipped {
			return nil
		}
		r, err := f.growth.Report()
		qt.Assert(t, qt.IsNil(err))
		var out bytes.Buffer
		p := newLeakPage(r, w, &o, alloc.Filter{}, nil)
		qt.Assert(t, qt.IsNil(p.writeJSON(&out)))
		fmt.Fprintln(&out, p.notes(), f.lost)
		return out.Bytes()
	}
	// which has all events read
	all := leaksOptions{}
	all.source.pids = []int{100, 101, 102, 4242}
	return page(leaksOptions{}, true), page(all, false)
}

func pretty(t *testing.T, page []byte) string {
	t.Helper()
	line, rest, _ := bytes.Cut(page, []byte("\n"))
	var out bytes.Buffer
	qt.Assert(t, qt.IsNil(json.Indent(&out, line, "", " ")))
	return out.String() + "\n" + string(rest)
}

func TestLeaksAreTheSameFromTheLastNoteOn(t *testing.T) {
	found := 0
	for seed := range uint64(12) {
		path := leakRecording(t, 1000, recording.FileOptions{}, randomLeaks(seed, 9000, []int{0, 2000, 100, 4}[seed%4]))
		resumed, whole := leaksBothWays(t, path)
		qt.Assert(t, qt.IsNotNil(resumed), qt.Commentf("seed %d", seed))
		qt.Assert(t, qt.Equals(pretty(t, resumed), pretty(t, whole)), qt.Commentf("seed %d", seed))
		if bytes.Contains(whole, []byte(`"growing":true`)) {
			found++
		}
	}
	qt.Check(t, qt.IsTrue(found > 3), qt.Commentf("%d", found))
}

// TestLeaksOfAKilledWriter: what is whole is read.
func TestLeaksOfAKilledWriter(t *testing.T) {
	path := leakRecording(t, 500, recording.FileOptions{}, randomLeaks(1, 4000, 300))
	recorded, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	resumes := 0
	for at := len(recorded) - 1; at > len(recorded)/4; at -= len(recorded) / 70 {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, recorded[:at], 0o600)))
		resumed, whole := leaksBothWays(t, path)
		if resumed != nil {
			resumes++
			qt.Assert(t, qt.Equals(pretty(t, resumed), pretty(t, whole)), qt.Commentf("cut at %d", at))
		}
	}
	qt.Check(t, qt.IsTrue(resumes > 10), qt.Commentf("%d", resumes))
}

// TestADamagedNoteIsNotUsed: an earlier one is, or all events up to the damage.
func TestADamagedNoteIsNotUsed(t *testing.T) {
	path := leakRecording(t, 300, recording.FileOptions{}, randomLeaks(2, 9000, 300))
	recorded, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	undamaged, _ := leaksBothWays(t, path)
	var notes []int
	for at := 0; at+40 < len(recorded); at++ {
		// of a block the kind is behind its mark and checksum
		if bytes.HasPrefix(recorded[at:], []byte("TTMb")) && recorded[at+8] == 'm' {
			notes = append(notes, at+60)
		}
	}
	qt.Assert(t, qt.IsTrue(len(notes) > 2))
	damage := func(notes ...int) (resumed, whole []byte) {
		changed := bytes.Clone(recorded)
		for _, at := range notes {
			changed[at] ^= 1
		}
		qt.Assert(t, qt.IsNil(os.WriteFile(path, changed, 0o600)))
		return leaksBothWays(t, path)
	}
	last := len(notes) - 1
	resumed, whole := damage(notes[last])
	qt.Check(t, qt.Equals(pretty(t, resumed), pretty(t, whole))) // which end at the damage
	resumed, _ = damage(notes[:last]...)
	qt.Check(t, qt.Equals(pretty(t, resumed), pretty(t, undamaged)))
	resumed, whole = damage(notes...)
	qt.Check(t, qt.IsNil(resumed))
	qt.Check(t, qt.IsTrue(len(whole) > 0))
}

// TestANoteOfANewerTtmemIsNotUsed: the events tell the same.
func TestANoteOfANewerTtmemIsNotUsed(t *testing.T) {
	newer := recording.FileOptions{CheckpointNote: func() func() []byte { return func() []byte { return []byte{99, 1, 2, 3} } }}
	path := leakRecording(t, 500, newer, randomLeaks(3, 3000, 300))
	resumed, whole := leaksBothWays(t, path)
	qt.Check(t, qt.IsNil(resumed))
	w, f, err := watchLeaks(path, &leaksOptions{}, aggregate.GrowthOptions{})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(w.notes, 0))
	r, err := f.growth.Report()
	qt.Assert(t, qt.IsNil(err))
	var out bytes.Buffer
	o := leaksOptions{}
	o.by = "stack"
	p := newLeakPage(r, w, &o, alloc.Filter{}, nil)
	qt.Assert(t, qt.IsNil(p.writeJSON(&out)))
	fmt.Fprintln(&out, p.notes(), f.lost)
	qt.Check(t, qt.Equals(pretty(t, out.Bytes()), pretty(t, whole)))
}

// TestLeaksOfTheNewestFileAreThoseOfTheRecording: as its note tells of those before.
func TestLeaksOfTheNewestFileAreThoseOfTheRecording(t *testing.T) {
	for seed := range uint64(6) {
		var last string
		whole := aggregate.NewGrowth(aggregate.GrowthOptions{StackID: recording.StackID})
		all := randomLeaks(seed, 9000, []int{0, 700}[seed%2])
		path := leakRecording(t, []int{1000, 1 << 30}[seed/2%2], recording.FileOptions{MaxBytes: 40 << 10}, func(add func(event.Event)) {
			all(add)
		})
		files := 0
		for n := 20; n >= 0; n-- {
			last = path
			if n > 0 {
				last = fmt.Sprintf("%s.%d", path, n)
			}
			r, err := openRecorded(last)
			if err != nil {
				continue
			}
			files++
			var e event.Event
			for err = r.next(&e); err == nil; err = r.next(&e) {
				if files == 1 || !r.file.Reader.Checkpoint() {
					whole.Apply(&e)
				}
			}
			qt.Assert(t, qt.Equals(err, io.EOF))
			r.close()
		}
		qt.Assert(t, qt.IsTrue(files > 1), qt.Commentf("%d files", files))
		w, f, err := watchLeaks(path, &leaksOptions{}, aggregate.GrowthOptions{})
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(w.skipped))
		qt.Check(t, qt.HasLen(w.notes, 0))
		want, err := whole.Report()
		qt.Assert(t, qt.IsNil(err))
		got, err := f.growth.Report()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(got.Left, len(want.Left)))
		for i := range want.Left {
			a, b := want.Left[i], got.Left[i]
			qt.Check(t, qt.DeepEquals(a.Stack.Frames(), b.Stack.Frames()))
			a.Stack, b.Stack = nil, nil
			qt.Check(t, qt.DeepEquals(b, a))
		}

		// and by itself it says that it is not the whole
		w, _, err = watchLeaks(path, &leaksOptions{from: atBegin}, aggregate.GrowthOptions{Begin: true})
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsFalse(w.skipped))
		qt.Check(t, qt.HasLen(w.notes, 1))
	}
}
