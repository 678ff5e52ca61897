package recording

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"ttmem/tracer/event"
)

// newStacks makes stacks of 38 native calls and 10 of Python. Each differs in one
// or two places from those before, and few of its calls are new.
func newStacks(n int) []*event.Stack {
	rng := rand.New(rand.NewPCG(3, 4))
	native := make([][]event.Frame, 60)
	for i := range native {
		for line := range 4 {
			name := fmt.Sprintf("ttnn::operations::level%d::invoke<tt::tt_metal::Tensor, std::vector<unsigned int>>", i)
			native[i] = append(native[i], event.Frame{
				Kind: event.Native, Name: name, Symbol: fmt.Sprintf("_ZN4ttnn10operations6level%d6invokeEv", i),
				File: fmt.Sprintf("/project/ttnn/cpp/ttnn/operations/level%d.cpp", i), Line: 100 + line,
				Module: "_ttnncpp.so", BuildID: "7d4a3d5c5b3a", Address: uint64(0x100000 + i*0x3120 + line*37),
			})
		}
	}
	frames := make([]event.Frame, 48)
	for i := range 38 {
		frames[i] = native[i][0]
	}
	for i := range 10 {
		frames[38+i] = event.Frame{
			Kind: event.Python, Name: fmt.Sprintf("Model.forward%d", i), Symbol: "forward",
			File: fmt.Sprintf("/home/user/model/layer%d.py", i), Line: 10 * i,
		}
	}
	stacks := make([]*event.Stack, 0, n)
	seen, known := make(map[string]bool), make(map[event.Frame]*event.Call)
	for len(stacks) < n {
		for range 1 + rng.IntN(2) {
			if rng.IntN(2) == 0 {
				frames[38+rng.IntN(10)].Line = 10 + rng.IntN(40)
			} else {
				frames[rng.IntN(38)] = native[rng.IntN(60)][rng.IntN(4)]
			}
		}
		key := fmt.Sprint(frames)
		if seen[key] {
			continue
		}
		seen[key] = true
		calls := make([]*event.Call, 0, len(frames))
		for _, f := range frames {
			if known[f] == nil {
				known[f] = event.NewCall([]event.Frame{f})
			}
			calls = append(calls, known[f])
		}
		stacks = append(stacks, event.NewStack(uint64(len(stacks)+1), func() []*event.Call { return calls }))
	}
	return stacks
}

// loop is a program that allocates a buffer and frees it, 200,000 events a
// second; each allocation has the next of the stacks.
func loop(n int, stacks []*event.Stack) []event.Event {
	rng := rand.New(rand.NewPCG(1, 2))
	events := make([]event.Event, 0, n)
	now := uint64(1e15)
	for i := range n {
		now += 4500 + rng.Uint64N(1000)
		e := event.Event{
			TimeNs: now, Kind: event.Alloc, PID: 4242, TID: 4242, Comm: "python", Devices: []int{0}, Region: event.DRAM,
			BufferID: uint64(1000 + i/2), Object: 0x7f1200345670, Allocator: 0x5612a0, Address: 0x400000,
			SizeBytes: 1 << 20, PageSizeBytes: 2048, BytesPerBank: 87040, Banks: 12,
		}
		if i%2 == 0 {
			e.Stack = stacks[i/2%len(stacks)]
		} else {
			e.Kind, e.Reason, e.PageSizeBytes = event.Free, event.ReasonExplicit, 2048
		}
		events = append(events, e)
	}
	return events
}

// model is a program that runs eagerly: buffers of many kinds on two chips, from
// 300 places, each alive for a while.
func model(n int, stacks []*event.Stack) []event.Event {
	rng := rand.New(rand.NewPCG(1, 2))
	events := make([]event.Event, 0, n)
	now := uint64(1e15)
	var live []event.Event
	for i := 0; len(events) < n; i++ {
		now += 4500 + rng.Uint64N(1000)
		if len(live) > 200 {
			at := len(live) - 1 - rng.IntN(20)
			e := live[at]
			live = append(live[:at], live[at+1:]...)
			e.TimeNs, e.Kind, e.Reason, e.Stack = now, event.Free, event.ReasonExplicit, nil
			events = append(events, e)
			continue
		}
		size := uint64(1+i%300*7%41) << 11
		e := event.Event{
			TimeNs: now, Kind: event.Alloc, PID: 4242, TID: 4242 + i%2, Comm: "python", Devices: []int{i % 2},
			Region: event.Region(i % 300 / 200), BufferID: uint64(1000 + i),
			Object: 0x7f1200340000 + 0x1c0*rng.Uint64N(400), Allocator: 0x5612a0 + uint64(i%2)<<12,
			Address: 0x400000 + rng.Uint64N(500)<<11, SizeBytes: size, PageSizeBytes: 2048,
			BytesPerBank: (size + 12*2048 - 1) / (12 * 2048) * 2048, Banks: 12, Stack: stacks[i%300%len(stacks)],
		}
		live = append(live, e)
		events = append(events, e)
	}
	return events
}

var workloads = []struct {
	name string
	make func() []event.Event
}{
	{"loop", func() []event.Event { return loop(400_000, newStacks(1)) }},
	{"model", func() []event.Event { return model(400_000, newStacks(300)) }},
	{"new", func() []event.Event { return loop(40_000, newStacks(20_000)) }},
}

// flushEvery is one flush a second.
const flushEvery = 200_000

func BenchmarkAdd(b *testing.B) {
	for _, load := range workloads {
		b.Run(load.name, func(b *testing.B) {
			events := load.make()
			for i := range events {
				events[i].Stack.Calls() // looked up: what that costs is not measured here
			}
			var out counter
			w, err := NewWriter(&out, NewHeader())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			added := 0
			for b.Loop() {
				i := added % len(events)
				if i == 0 && added > 0 && load.name == "new" {
					b.StopTimer()
					w, _ = NewWriter(&out, NewHeader())
					b.StartTimer()
				}
				w.Add(&events[i])
				added++
				if added%flushEvery == 0 || w.Full() {
					if err := w.Flush(); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(out.n)/float64(added), "bytes/event")
		})
	}
}

type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}

func BenchmarkNext(b *testing.B) {
	for _, load := range workloads {
		b.Run(load.name, func(b *testing.B) {
			events := load.make()
			var at []int
			for i := flushEvery - 1; i < len(events); i += flushEvery {
				at = append(at, i)
			}
			recorded := write(b, events, at...)
			b.ReportAllocs()
			b.ResetTimer()
			var r *Reader
			var e event.Event
			for b.Loop() {
				if r == nil || r.Next(&e) == io.EOF {
					var err error
					if r, err = NewReader(bytes.NewReader(recorded)); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(recorded))/float64(len(events)), "bytes/event")
		})
	}
}

// What a second of a busy loop and a new stack each may cost on disk: what a
// person counts on who records for a day.
func TestEventsAreSmall(t *testing.T) {
	for _, limit := range []struct {
		name  string
		bytes float64
	}{{"loop", 4}, {"model", 16}, {"new", 100}} {
		for _, load := range workloads {
			if load.name != limit.name {
				continue
			}
			events := load.make()
			perEvent := float64(len(write(t, events, flushEvery))) / float64(len(events))
			t.Logf("%s: %.1f bytes an event", load.name, perEvent)
			if perEvent > limit.bytes {
				t.Errorf("%s: %.1f bytes an event, at most %.0f expected", load.name, perEvent, limit.bytes)
			}
		}
	}
}

func TestAddOfAKnownStackAllocatesNothing(t *testing.T) {
	events := model(40_000, newStacks(300))
	w, err := NewWriter(io.Discard, NewHeader())
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	add := func() {
		w.Add(&events[i%len(events)])
		i++
		if i%10_000 == 0 {
			_ = w.Flush()
		}
	}
	for range 2 * len(events) {
		add()
	}
	if n := testing.AllocsPerRun(40_000, add); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}
