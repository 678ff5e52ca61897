package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// Processes in containers and of several users on the same chips, one of them
// attached late.
func sharedRun() *reportRun {
	r := newReportRun()
	r.apply(event.Event{
		Kind: event.ProcessStart, PID: 123, Comm: "python3", Command: "python3 serve.py --model llama", UID: 1000,
		Container: "4f1e0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d", ContainerPID: 17,
		Pod: "3c9e6b0a-5b1c-4f7e-9a51-0d2f6a7c8e90",
	})
	r.apply(event.Event{
		Kind: event.ProcessStart, PID: 456, Comm: "python3", Command: "python3 embed.py", UID: 1001, AttachedLate: true,
	})
	r.apply(event.Event{Kind: event.ProcessStart, PID: 789, Comm: "tt-smi", Command: "tt-smi", UID: 1001, AttachedLate: true})
	r.open(123, "n300", 0, 1)
	r.open(456, "n300", 0, 1)
	r.open(789, "n300", 0)
	r.alloc(123, event.DRAM, 200<<20, 12, 0, 1)
	for range 12 {
		r.id++
		r.apply(event.Event{
			Kind: event.Alloc, PID: 456, Allocator: 1, BufferID: r.id, Devices: []int{0, 1}, Region: event.DRAM,
			SizeBytes: 4 << 20, BytesPerBank: 4 << 20, Banks: 12, BeforeAttach: true,
		})
	}
	r.program(456, 1, 64<<10, 0)
	return r
}

// binding is a stack as a call of ttnn's has it.
func binding(op, function string, line int) *event.Stack {
	return event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::GraphTracker::track_allocate", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "ttnn::" + op, Module: "_ttnncpp.so"},
		{Kind: event.Native, Name: "nanobind::detail::func_create<ttnn." + op + ">::{lambda#1}", Module: "_ttnn.so"},
		{Kind: event.Python, Name: "__call__", File: "/venv/lib/python3.12/site-packages/ttnn/decorators.py", Line: 1245},
		{Kind: event.Python, Name: function, File: "/srv/model.py", Line: line},
		{Kind: event.Python, Name: "<module>", File: "/srv/run.py", Line: 7},
	})
}

// Processes that were killed, and that closed a device, with memory of several call
// stacks.
func leftRun() *reportRun {
	r := newReportRun()
	r.start(4242, "python3 run.py")
	r.open(4242, "n150", 0)
	r.from(4242, binding("zeros", "weights", 4), event.DRAM, 8<<20, 40)
	r.from(4242, binding("matmul", "Attention.forward", 31), event.L1, 64<<10, 2)
	r.from(4242, binding("add", "Attention.forward_with_a_name_that_is_longer_than_a_line_of_the_report", 32), event.DRAM, 1<<20, 3)
	r.from(4242, binding("softmax", "Attention.forward", 33), event.DRAM, 1<<10, 5)
	r.from(4242, nil, event.DRAM, 1<<10, 1)
	r.exit(4242, 9)
	r.start(4300, "./train")
	r.open(4300, "n150", 0)
	r.from(4300, event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::BufferImpl::create", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "Trainer::step(int)", Module: "train"},
		{Kind: event.Native, Name: "main", Module: "train"},
	}), event.DRAM, 1<<20, 2)
	r.close(4300, 0)
	r.from(4300, event.StackOf([]event.Frame{{Kind: event.Native, Module: "train", Address: 7}}), event.DRAM, 2<<20, 1)
	r.exit(4300, 0)
	return r
}

// from allocates buffers of 12 banks at a stack.
func (r *reportRun) from(pid int, stack *event.Stack, region event.Region, perBank uint64, buffers int) {
	for range buffers {
		r.id++
		r.apply(event.Event{
			Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.id, Devices: []int{0}, Region: region,
			SizeBytes: perBank * 12, BytesPerBank: perBank, Banks: 12, Stack: stack,
		})
	}
}

// A host on which several processes hold memory now: one attached late that went on as
// another program since, and one that has nothing.
func liveRun() *reportRun {
	r := newReportRun()
	r.state.Begin(r.now - 600*second)
	for range 2 {
		r.apply(event.Event{Kind: event.ProcessStart, PID: 55, Comm: "python3", Command: "python3 serve.py", AttachedLate: true})
		r.open(55, "n150", 0)
		r.id++
		r.apply(event.Event{
			Kind: event.Alloc, PID: 55, Allocator: 1, BufferID: r.id, Devices: []int{0}, Region: event.DRAM,
			SizeBytes: 12 << 10, BytesPerBank: 1 << 10, Banks: 12, BeforeAttach: true,
		})
	}
	for layer := range 20 {
		r.from(55, calledFrom("zeros", layer), event.DRAM, uint64(layer+1)<<20, 1)
	}
	r.from(55, binding("matmul", "Attention.forward", 31), event.L1, 8<<10, 2)
	r.start(66, "/opt/venv/bin/python3 /srv/benchmarks/embeddings/benchmark_embeddings.py --batch 64 --model large")
	r.open(66, "n150", 0)
	r.from(66, calledFrom("zeros", 1), event.DRAM, 2<<20, 1)
	r.from(66, calledFrom("zeros", 2), event.DRAM, 1<<20, 1)
	r.from(66, calledFrom("zeros", 1), event.L1, 1<<10, 1)
	r.from(66, nil, event.DRAM, 1<<10, 1)
	r.start(77, "tt-smi")
	r.state.Advance(r.now + 1800*second)
	return r
}

// calledFrom is a stack of which only the caller tells the layer.
func calledFrom(op string, layer int) *event.Stack {
	frames := slices.Clone(binding(op, "weights", 4).Frames())
	frames = slices.Insert(frames, len(frames)-1,
		event.Frame{Kind: event.Python, Name: "Layer.__init__", File: "/srv/layer.py", Line: 12},
		event.Frame{Kind: event.Python, Name: "build", File: "/srv/model.py", Line: 100 + layer})
	return event.StackOf(frames)
}

func TestWhatHasTheSameNameIsToldApartByItsCallers(t *testing.T) {
	text := liveRun().report(t, reportOptions{Live: true, Whole: true})
	// the caller that is the same for all says nothing
	qt.Check(t, qt.StringContains(text, "  240.0 MiB      1 buffer  DRAM  ttnn.zeros - model.py:4 weights, from model.py:119 build\n"))
	qt.Check(t, qt.StringContains(text, "   24.0 MiB      1 buffer  DRAM  ttnn.zeros - model.py:4 weights, from model.py:101 build\n"))
	qt.Check(t, qt.StringContains(text, "   12.0 MiB      1 buffer  DRAM  ttnn.zeros - model.py:4 weights, from model.py:102 build\n"))
	// what is in another region is another thing
	qt.Check(t, qt.StringContains(text, "   12.0 KiB      1 buffer  L1    ttnn.zeros - model.py:4 weights\n"))
}

func TestStacksThatDifferInNothingThatIsShownAreOnePlace(t *testing.T) {
	r := newReportRun()
	for _, name := range []string{"tt::a", "tt::b"} {
		stack := append([]event.Frame{{Kind: event.Native, Name: name}}, binding("add", "forward", 3).Frames()...)
		r.from(1, event.StackOf(stack), event.DRAM, 1<<20, 2)
	}
	qt.Check(t, qt.StringContains(r.report(t, reportOptions{}), "\n        48.0 MiB     4 buffers  ttnn.add - model.py:3 forward\n"))
}

func TestWhatIsNotShownByNameSaysWhatItIs(t *testing.T) {
	const from = 30 // where the names begin, less two
	names := func(stacks int, more ...*event.Event) (list []string) {
		r := newReportRun()
		for line := range stacks {
			r.from(1, binding("add", "forward", 10+line), event.DRAM, uint64(100-line)<<10, 1)
		}
		for _, e := range more {
			r.apply(*e)
		}
		_, text, _ := strings.Cut(r.report(t, reportOptions{}), "Held at the end, in all banks\n       1  DRAM ")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "      ") && len(line) > from {
				list = append(list, strings.TrimSpace(line[from:]))
			}
		}
		return list
	}
	add := func(line int) string { return fmt.Sprintf("ttnn.add - model.py:%d forward", line) }
	bare := &event.Event{Kind: event.Alloc, PID: 1, BufferID: 900, Devices: []int{0}, Banks: 1, BytesPerBank: 1}
	earlier := *bare
	earlier.BufferID, earlier.BeforeAttach = 901, true
	qt.Check(t, qt.DeepEquals(names(4), []string{add(10), add(11), add(12), add(13)}))
	qt.Check(t, qt.DeepEquals(names(5), []string{add(10), add(11), add(12), "2 other places"}))
	qt.Check(t, qt.DeepEquals(names(40), []string{add(10), add(11), add(12), "37 other places"}))
	qt.Check(t, qt.DeepEquals(names(1, bare, &earlier), []string{add(10), "without a call stack", "allocated before the attach"}))
	qt.Check(t, qt.DeepEquals(names(0, &earlier), []string{"allocated before the attach"}))
	most := earlier
	most.BytesPerBank = 12*99<<10 + 1 // of one bank, and so more than the second of twelve
	qt.Check(t, qt.DeepEquals(names(3, &most), []string{add(10), "allocated before the attach", add(11), add(12)}))
	qt.Check(t, qt.HasLen(names(0, bare), 0)) // and why is not known
}

func TestOnlyWhatWasAllocatedCanBeFreed(t *testing.T) {
	r := newReportRun()
	r.start(1, "python3")
	r.open(1, "n150", 0)
	check := func(o reportOptions, want string) {
		t.Helper()
		text := r.report(t, o)
		for _, line := range []string{"Nothing was allocated.", "Nothing is held now.", "Every buffer was freed."} {
			qt.Check(t, qt.Equals(strings.Contains(text, "\n"+line+"\n"), line == want), qt.Commentf("%s", text))
		}
	}
	live := reportOptions{Live: true}
	check(reportOptions{}, "Nothing was allocated.")
	check(live, "Nothing was allocated.")
	id := r.alloc(1, event.DRAM, 1<<20, 12, 0)
	check(reportOptions{}, "")
	r.free(1, id)
	check(reportOptions{}, "Every buffer was freed.")
	check(live, "Nothing is held now.")
	r.exit(1, 0)
	check(reportOptions{}, "Every buffer was freed.")
}

// TestTheTimeIsThatOfTheProcesses: what came before the first is the start of a command;
// of what goes on it is that of tracing.
func TestTheTimeIsThatOfTheProcesses(t *testing.T) {
	r := newReportRun()
	r.state.Begin(r.now - 4*second)
	qt.Check(t, qt.StringContains(r.report(t, reportOptions{}), "Device memory over 0.000 s\n"))
	r.start(1, "python3")
	qt.Check(t, qt.StringContains(r.report(t, reportOptions{}), "Device memory over 0.000 s\n"))
	r.state.Advance(r.now + 6*second)
	qt.Check(t, qt.StringContains(r.report(t, reportOptions{}), "Device memory over 6.0 s\n"))
	qt.Check(t, qt.StringContains(r.report(t, reportOptions{Live: true}), "Device memory now, traced for 10.1 s\n"))
}

// TestAUserIsToldWhatIsNotHis: also where all of a chip is others'.
func TestAUserIsToldWhatIsNotHis(t *testing.T) {
	report := func(uid int) string {
		var b strings.Builder
		snap := sharedRun().state.Snapshot().ForUser(uid)
		qt.Assert(t, qt.IsNil(writeReport(&b, snap, reportOptions{Live: true, Own: true})))
		return b.String()
	}
	for _, want := range []string{"of the processes only your own", " Not used by you: other users (3) 2.9 GiB\n", "Your processes hold nothing now."} {
		qt.Check(t, qt.StringContains(report(7), want))
	}
	qt.Check(t, qt.StringContains(report(1000), "of the processes only your own"))
	qt.Check(t, qt.Not(qt.StringContains(report(1000), "hold nothing")))

	all := sharedRun().state.Snapshot()
	qt.Check(t, qt.Equals(page.OthersHold(all.ForUser(1000)), "other users hold 576.0 MiB of 12.0 GiB of DRAM on each of chips 0, 1"))
	qt.Check(t, qt.Equals(page.OthersHold(all), "other users use no chip"))
}

// TestAReportSaysThatMemoryIsStillRead: then figures are too low.
func TestAReportSaysThatMemoryIsStillRead(t *testing.T) {
	snap := newReportRun().state.Snapshot()
	snap.Reading = true
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, snap, reportOptions{Live: true})))
	qt.Check(t, qt.StringContains(b.String(), "No device memory was seen yet."))
	qt.Check(t, qt.StringContains(b.String(), "still being read"))
}

func TestTheReportForAUserNamesNobodyElse(t *testing.T) {
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, sharedRun().state.Snapshot().ForUser(1000), reportOptions{})))
	qt.Check(t, qt.StringContains(b.String(), "Shared across 3 processes: PID 123 2.3 GiB, other users (2) 576.0 MiB\n"))
	qt.Check(t, qt.Equals(strings.Count(b.String(), "across 3 processes"), 1))
	for _, other := range []string{"456", "789", "embed.py", "tt-smi"} {
		qt.Check(t, qt.IsFalse(strings.Contains(b.String(), other)), qt.Commentf("%s in\n%s", other, b.String()))
	}
}

func TestAChipOfManyProcessesNamesTheLargest(t *testing.T) {
	r := newReportRun()
	for pid := 1; pid <= 50; pid++ {
		r.open(pid, "n150", 0)
		r.alloc(pid, event.DRAM, uint64(pid)<<10, 1, 0)
	}
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, r.state.Snapshot(), reportOptions{})))
	qt.Check(t, qt.StringContains(b.String(), "Shared across 50 processes: PID 50 50.0 KiB, PID 49 49.0 KiB"))
	qt.Check(t, qt.StringContains(b.String(), "PID 43 43.0 KiB, 42 more 903.0 KiB\n"))
	checkLines(t, b.String(), reportOptions{})
}

func TestProcessesThatWereAttachedLateAreCutShort(t *testing.T) {
	r := newReportRun()
	for pid := range 30 {
		r.apply(event.Event{Kind: event.ProcessStart, PID: pid + 1, AttachedLate: true})
		if pid > 0 { // the first had allocated nothing
			r.apply(event.Event{Kind: event.Alloc, PID: pid + 1, BufferID: 1, Devices: []int{0}, Banks: 1, BytesPerBank: 1, BeforeAttach: true})
		}
	}
	text := strings.Join(strings.Fields(r.report(t, reportOptions{})), " ")
	qt.Check(t, qt.StringContains(text, "note: attached late: PID 2 with 1 buffer, PID 3 with 1 buffer,"))
	qt.Check(t, qt.StringContains(text, "PID 21 with 1 buffer, 9 more found in memory;"))
}

func TestAProcessThatIsAnotherProgramNowIsInTheNotesOnce(t *testing.T) {
	text := liveRun().report(t, reportOptions{Width: 200})
	qt.Check(t, qt.StringContains(text, "note: attached late: PID 55 with 2 buffers found in memory;"))
}
