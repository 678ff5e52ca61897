package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/pagetest"
	"ttmem/tracer/event"
)

// Processes in containers and of several users on the same chips, one of them
// attached late.
func sharedRun() *pagetest.Run {
	r := pagetest.NewRun()
	r.Apply(event.Event{
		Kind: event.ProcessStart, PID: 123, Comm: "python3", Command: "python3 serve.py --model llama", UID: 1000,
		Container: "4f1e0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d", ContainerPID: 17,
		Pod: "3c9e6b0a-5b1c-4f7e-9a51-0d2f6a7c8e90",
	})
	r.Apply(event.Event{
		Kind: event.ProcessStart, PID: 456, Comm: "python3", Command: "python3 embed.py", UID: 1001, AttachedLate: true,
	})
	r.Apply(event.Event{Kind: event.ProcessStart, PID: 789, Comm: "tt-smi", Command: "tt-smi", UID: 1001, AttachedLate: true})
	r.Open(123, "n300", 0, 1)
	r.Open(456, "n300", 0, 1)
	r.Open(789, "n300", 0)
	r.Alloc(123, event.DRAM, 200<<20, 12, 0, 1)
	for range 12 {
		r.Id++
		r.Apply(event.Event{
			Kind: event.Alloc, PID: 456, Allocator: 1, BufferID: r.Id, Devices: []int{0, 1}, Region: event.DRAM,
			SizeBytes: 4 << 20, BytesPerBank: 4 << 20, Banks: 12, BeforeAttach: true,
		})
	}
	r.Program(456, 1, 64<<10, 0)
	return r
}

// Processes that were killed, and that closed a device, with memory of several call
// stacks.
func leftRun() *pagetest.Run {
	r := pagetest.NewRun()
	r.Start(4242, "python3 run.py")
	r.Open(4242, "n150", 0)
	r.From(4242, pagetest.Stack("zeros", "weights", 4), event.DRAM, 8<<20, 40)
	r.From(4242, pagetest.Stack("matmul", "Attention.forward", 31), event.L1, 64<<10, 2)
	r.From(4242, pagetest.Stack("add", "Attention.forward_with_a_name_that_is_longer_than_a_line_of_the_report", 32), event.DRAM, 1<<20, 3)
	r.From(4242, pagetest.Stack("softmax", "Attention.forward", 33), event.DRAM, 1<<10, 5)
	r.From(4242, nil, event.DRAM, 1<<10, 1)
	r.Exit(4242, 9)
	r.Start(4300, "./train")
	r.Open(4300, "n150", 0)
	r.From(4300, event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::BufferImpl::create", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "Trainer::step(int)", Module: "train"},
		{Kind: event.Native, Name: "main", Module: "train"},
	}), event.DRAM, 1<<20, 2)
	r.Close(4300, 0)
	r.From(4300, event.StackOf([]event.Frame{{Kind: event.Native, Module: "train", Address: 7}}), event.DRAM, 2<<20, 1)
	r.Exit(4300, 0)
	return r
}

// A host on which several processes hold memory now: one attached late that went on as
// another program since, and one that has nothing.
func liveRun() *pagetest.Run {
	r := pagetest.NewRun()
	r.State.Begin(r.Now - 600*pagetest.Second)
	for range 2 {
		r.Apply(event.Event{Kind: event.ProcessStart, PID: 55, Comm: "python3", Command: "python3 serve.py", AttachedLate: true})
		r.Open(55, "n150", 0)
		r.Id++
		r.Apply(event.Event{
			Kind: event.Alloc, PID: 55, Allocator: 1, BufferID: r.Id, Devices: []int{0}, Region: event.DRAM,
			SizeBytes: 12 << 10, BytesPerBank: 1 << 10, Banks: 12, BeforeAttach: true,
		})
	}
	for layer := range 20 {
		r.From(55, calledFrom("zeros", layer), event.DRAM, uint64(layer+1)<<20, 1)
	}
	r.From(55, pagetest.Stack("matmul", "Attention.forward", 31), event.L1, 8<<10, 2)
	r.Start(66, "/opt/venv/bin/python3 /srv/benchmarks/embeddings/benchmark_embeddings.py --batch 64 --model large")
	r.Open(66, "n150", 0)
	r.From(66, calledFrom("zeros", 1), event.DRAM, 2<<20, 1)
	r.From(66, calledFrom("zeros", 2), event.DRAM, 1<<20, 1)
	r.From(66, calledFrom("zeros", 1), event.L1, 1<<10, 1)
	r.From(66, nil, event.DRAM, 1<<10, 1)
	r.Start(77, "tt-smi")
	r.State.Advance(r.Now + 1800*pagetest.Second)
	return r
}

// calledFrom is a stack of which only the caller tells the layer.
func calledFrom(op string, layer int) *event.Stack {
	frames := slices.Clone(pagetest.Stack(op, "weights", 4).Frames())
	frames = slices.Insert(frames, len(frames)-1,
		event.Frame{Kind: event.Python, Name: "Layer.__init__", File: "/srv/layer.py", Line: 12},
		event.Frame{Kind: event.Python, Name: "build", File: "/srv/model.py", Line: 100 + layer})
	return event.StackOf(frames)
}

func TestWhatHasTheSameNameIsToldApartByItsCallers(t *testing.T) {
	text := reportText(t, liveRun(), options{Options: Options{Live: true}, Whole: true})
	// the caller that is the same for all says nothing
	qt.Check(t, qt.StringContains(text, "  240.0 MiB      1 buffer  DRAM  ttnn.zeros - model.py:4 weights, from model.py:119 build\n"))
	qt.Check(t, qt.StringContains(text, "   24.0 MiB      1 buffer  DRAM  ttnn.zeros - model.py:4 weights, from model.py:101 build\n"))
	qt.Check(t, qt.StringContains(text, "   12.0 MiB      1 buffer  DRAM  ttnn.zeros - model.py:4 weights, from model.py:102 build\n"))
	// what is in another region is another thing
	qt.Check(t, qt.StringContains(text, "   12.0 KiB      1 buffer  L1    ttnn.zeros - model.py:4 weights\n"))
}

func TestStacksThatDifferInNothingThatIsShownAreOnePlace(t *testing.T) {
	r := pagetest.NewRun()
	for _, name := range []string{"tt::a", "tt::b"} {
		stack := append([]event.Frame{{Kind: event.Native, Name: name}}, pagetest.Stack("add", "forward", 3).Frames()...)
		r.From(1, event.StackOf(stack), event.DRAM, 1<<20, 2)
	}
	qt.Check(t, qt.StringContains(reportText(t, r, options{}), "\n        48.0 MiB     4 buffers  ttnn.add - model.py:3 forward\n"))
}

func TestWhatIsNotShownByNameSaysWhatItIs(t *testing.T) {
	const from = 30 // where the names begin, less two
	names := func(stacks int, more ...*event.Event) (list []string) {
		r := pagetest.NewRun()
		for line := range stacks {
			r.From(1, pagetest.Stack("add", "forward", 10+line), event.DRAM, uint64(100-line)<<10, 1)
		}
		for _, e := range more {
			r.Apply(*e)
		}
		_, text, _ := strings.Cut(reportText(t, r, options{}), "Live at the end, total over all banks\n       1  DRAM ")
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
	qt.Check(t, qt.DeepEquals(names(5), []string{add(10), add(11), add(12), "2 other call sites"}))
	qt.Check(t, qt.DeepEquals(names(40), []string{add(10), add(11), add(12), "37 other call sites"}))
	qt.Check(t, qt.DeepEquals(names(1, bare, &earlier), []string{add(10), "without a call stack", "before ttmem attached"}))
	qt.Check(t, qt.DeepEquals(names(0, &earlier), []string{"before ttmem attached"}))
	most := earlier
	most.BytesPerBank = 12*99<<10 + 1 // of one bank, and so more than the second of twelve
	qt.Check(t, qt.DeepEquals(names(3, &most), []string{add(10), "before ttmem attached", add(11), add(12)}))
	qt.Check(t, qt.HasLen(names(0, bare), 0)) // and why is not known
}

func TestOnlyWhatWasAllocatedCanBeFreed(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(1, "python3")
	r.Open(1, "n150", 0)
	check := func(o options, want string) {
		t.Helper()
		text := reportText(t, r, o)
		for _, line := range []string{"Nothing was allocated.", "Nothing is allocated.", "Every buffer was freed."} {
			qt.Check(t, qt.Equals(strings.Contains(text, "\n"+line+"\n"), line == want), qt.Commentf("%s", text))
		}
	}
	live := options{Options: Options{Live: true}}
	check(options{}, "Nothing was allocated.")
	check(live, "Nothing was allocated.")
	id := r.Alloc(1, event.DRAM, 1<<20, 12, 0)
	check(options{}, "")
	r.Free(1, id)
	check(options{}, "Every buffer was freed.")
	check(live, "Nothing is allocated.")
	r.Exit(1, 0)
	check(options{}, "Every buffer was freed.")
}

// TestTheTimeIsThatOfTheProcesses: what came before the first is the start of a command;
// of what goes on it is that of tracing.
func TestTheTimeIsThatOfTheProcesses(t *testing.T) {
	r := pagetest.NewRun()
	r.State.Begin(r.Now - 4*pagetest.Second)
	qt.Check(t, qt.StringContains(reportText(t, r, options{}), "Device memory over 0.000 s\n"))
	r.Start(1, "python3")
	qt.Check(t, qt.StringContains(reportText(t, r, options{}), "Device memory over 0.000 s\n"))
	r.State.Advance(r.Now + 6*pagetest.Second)
	qt.Check(t, qt.StringContains(reportText(t, r, options{}), "Device memory over 6.0 s\n"))
	qt.Check(t, qt.StringContains(reportText(t, r, options{Options: Options{Live: true}}), "Device memory now, traced for 10.1 s\n"))
}

// TestAUserIsToldWhatIsNotHis: also where all of a chip is others'.
func TestAUserIsToldWhatIsNotHis(t *testing.T) {
	report := func(uid int) string {
		var b strings.Builder
		snap := analyze.ForUser(sharedRun().State.Snapshot(), uid)
		qt.Assert(t, qt.IsNil(Write(&b, snap, page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}, Options{Live: true, Own: true})))
		return b.String()
	}
	for _, want := range []string{"only your own processes are listed", " Not used by you: other users (3) 2.9 GiB\n", "Your processes have nothing allocated."} {
		qt.Check(t, qt.StringContains(report(7), want))
	}
	qt.Check(t, qt.StringContains(report(1000), "only your own processes are listed"))
	qt.Check(t, qt.Not(qt.StringContains(report(1000), "have nothing allocated")))

	all := sharedRun().State.Snapshot()
	qt.Check(t, qt.Equals(page.OthersHold(analyze.ForUser(all, 1000)), "other users hold 576.0 MiB of 12.0 GiB of DRAM on each of chips 0, 1"))
	qt.Check(t, qt.Equals(page.OthersHold(all), "other users use no chip"))
}

// TestAReportSaysThatMemoryIsStillRead: then figures are too low.
func TestAReportSaysThatMemoryIsStillRead(t *testing.T) {
	snap := pagetest.NewRun().State.Snapshot()
	snap.Reading = true
	var b strings.Builder
	qt.Assert(t, qt.IsNil(Write(&b, snap, page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}, Options{Live: true})))
	qt.Check(t, qt.StringContains(b.String(), "No device memory was seen yet."))
	qt.Check(t, qt.StringContains(b.String(), "totals are incomplete"))
}

func TestTheReportForAUserNamesNobodyElse(t *testing.T) {
	var b strings.Builder
	qt.Assert(t, qt.IsNil(Write(&b, analyze.ForUser(sharedRun().State.Snapshot(), 1000), page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}, Options{})))
	qt.Check(t, qt.StringContains(b.String(), "Shared across 3 processes: PID 123 2.3 GiB, other users (2) 576.0 MiB\n"))
	qt.Check(t, qt.Equals(strings.Count(b.String(), "across 3 processes"), 1))
	for _, other := range []string{"456", "789", "embed.py", "tt-smi"} {
		qt.Check(t, qt.IsFalse(strings.Contains(b.String(), other)), qt.Commentf("%s in\n%s", other, b.String()))
	}
}

func TestAChipOfManyProcessesNamesTheLargest(t *testing.T) {
	r := pagetest.NewRun()
	for pid := 1; pid <= 50; pid++ {
		r.Open(pid, "n150", 0)
		r.Alloc(pid, event.DRAM, uint64(pid)<<10, 1, 0)
	}
	var b strings.Builder
	qt.Assert(t, qt.IsNil(Write(&b, r.State.Snapshot(), page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}, Options{})))
	qt.Check(t, qt.StringContains(b.String(), "Shared across 50 processes: PID 50 50.0 KiB, PID 49 49.0 KiB"))
	qt.Check(t, qt.StringContains(b.String(), "PID 43 43.0 KiB, 42 more 903.0 KiB\n"))
	checkLines(t, b.String(), options{})
}

func TestProcessesThatWereAttachedLateAreCutShort(t *testing.T) {
	r := pagetest.NewRun()
	for pid := range 30 {
		r.Apply(event.Event{Kind: event.ProcessStart, PID: pid + 1, AttachedLate: true})
		if pid > 0 { // the first had allocated nothing
			r.Apply(event.Event{Kind: event.Alloc, PID: pid + 1, BufferID: 1, Devices: []int{0}, Banks: 1, BytesPerBank: 1, BeforeAttach: true})
		}
	}
	text := strings.Join(strings.Fields(reportText(t, r, options{})), " ")
	qt.Check(t, qt.StringContains(text, "note: attached late: PID 2 with 1 buffer, PID 3 with 1 buffer,"))
	qt.Check(t, qt.StringContains(text, "PID 21 with 1 buffer, 9 more found in memory;"))
}

func TestAProcessThatIsAnotherProgramNowIsInTheNotesOnce(t *testing.T) {
	text := reportText(t, liveRun(), options{Width: 200})
	qt.Check(t, qt.StringContains(text, "note: attached late: PID 55 with 2 buffers found in memory;"))
}
