package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// Processes in containers and of several users on the same chips, one of them
// attached late.
func sharedRun() *pagetest.Run {
	r := pagetest.NewRun()
	r.Apply(event.Event{
		Kind: event.ProcessStart, PID: 123, Comm: "python3", UID: 54321,
		Start: &event.Start{Command: "python3 serve.py --model llama", Container: "4f1e0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d", ContainerPID: 17,
			Pod: "3c9e6b0a-5b1c-4f7e-9a51-0d2f6a7c8e90"},
	})
	r.Apply(event.Event{
		Kind: event.ProcessStart, PID: 456, Comm: "python3", UID: 54322, Start: &event.Start{Command: "python3 embed.py", AttachedLate: true},
	})
	r.Apply(event.Event{Kind: event.ProcessStart, PID: 789, Comm: "tt-smi", UID: 54322, Start: &event.Start{Command: "tt-smi", AttachedLate: true}})
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
		r.Apply(event.Event{Kind: event.ProcessStart, PID: 55, Comm: "python3", Start: &event.Start{Command: "python3 serve.py", AttachedLate: true}})
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

func TestCallSitesOfTheSameNameDifferByTheirCallers(t *testing.T) {
	text := reportText(t, liveRun(), options{Options: Options{Live: true}, Whole: true})
	// the caller that is the same for all says nothing
	qt.Check(t, qt.StringContains(text, "     2.5 GiB   20 buffers  DRAM  model.py:4 weights < 20 callers - ttnn.zeros\n"))
	qt.Check(t, qt.StringContains(text, "   24.0 MiB     1 buffer  DRAM  model.py:4 weights < model.py:101 build - ttnn.zeros\n"))
	qt.Check(t, qt.StringContains(text, "   12.0 MiB     1 buffer  DRAM  model.py:4 weights < model.py:102 build - ttnn.zeros\n"))
	// what is in another region is another thing
	qt.Check(t, qt.StringContains(text, "   64.0 KiB     1 buffer  L1    model.py:4 weights - ttnn.zeros\n"))
}

func TestStacksThatDifferInNothingThatIsShownAreOnePlace(t *testing.T) {
	r := pagetest.NewRun()
	for _, name := range []string{"tt::a", "tt::b"} {
		stack := append([]event.Frame{{Kind: event.Native, Name: name}}, pagetest.Stack("add", "forward", 3).Frames()...)
		r.From(1, event.StackOf(stack), event.DRAM, 1<<20, 2)
	}
	qt.Check(t, qt.StringContains(reportText(t, r, options{}), "\n    48.0 MiB 100%    4 buffers  model.py:3 forward - ttnn.add\n"))
}

// A call site of another file is named with it, and one that does not fit is on its own line.
func TestCallersAreShortInTheSameFile(t *testing.T) {
	r := &report{Painter: page.Painter{ASCII: true}, width: 60}
	line := func(caller string) string {
		r.Reset()
		r.source(&alloc.Row{Site: &alloc.Site{Look: alloc.Look{Caller: caller, Name: name.Name{Op: "ttnn.add", Call: name.Call{Function: "weights", File: "/srv/model.py", Line: 4}}}}}, "1 buffer  ")
		return r.String()
	}
	qt.Check(t, qt.Equals(line("model.py:119 build"), "1 buffer  model.py:4 weights < model.py:119 build - ttnn.add\n"))
	qt.Check(t, qt.Equals(line("model.py:119 build_all"), "1 buffer  model.py:4 weights < model.py:119 build_all\n"))
	qt.Check(t, qt.Equals(line("model.py:119 build_all_the_layers"), "1 buffer  model.py:4 weights < :119 build_all_the_layers\n"))
	qt.Check(t, qt.Equals(line("layers.py:119 build_all_the_layers"), "1 buffer  model.py:4 weights - ttnn.add\n          < layers.py:119 build_all_the_layers\n"))
}

func TestWhatIsNotShownByNameSaysWhatItIs(t *testing.T) {
	const from = 27 // where the names begin
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
			if strings.HasPrefix(line, "   ") && len(line) > from {
				list = append(list, strings.TrimSpace(line[from:]))
			}
		}
		return list
	}
	add := func(line int) string { return fmt.Sprintf("model.py:%d forward - ttnn.add", line) }
	bare := &event.Event{Kind: event.Alloc, PID: 1, BufferID: 900, Devices: []int{0}, Banks: 1, BytesPerBank: 1}
	earlier := *bare
	earlier.BufferID, earlier.BeforeAttach = 901, true
	qt.Check(t, qt.DeepEquals(names(4), []string{add(10), add(11), add(12), add(13)}))
	qt.Check(t, qt.DeepEquals(names(5), []string{add(10), add(11), add(12), "2 other call sites"}))
	qt.Check(t, qt.DeepEquals(names(40), []string{add(10), add(11), add(12), "37 other call sites"}))
	qt.Check(t, qt.DeepEquals(names(1, bare, &earlier), []string{add(10), "(no call stack)", "allocated before ttmem attached"}))
	qt.Check(t, qt.DeepEquals(names(0, &earlier), []string{"allocated before ttmem attached"}))
	most := earlier
	most.BytesPerBank = 12*99<<10 + 1 // of one bank, and so more than the second of twelve
	qt.Check(t, qt.DeepEquals(names(3, &most), []string{add(10), "allocated before ttmem attached", add(11), add(12)}))
	qt.Check(t, qt.HasLen(names(0, bare), 0)) // and why is not known
}

// step works in steps, and keeps a result of each if leaks is true.
func step(r *pagetest.Run, leaks bool) {
	for range 60 {
		r.From(1, pagetest.Stack("add", "forward", 31), event.DRAM, 1<<20, 1)
		r.Free(1, r.Id)
		if leaks {
			r.From(1, pagetest.Stack("log", "step", 77), event.DRAM, 1<<10, 1)
		}
	}
}

// leakingRun loads weights before it works.
func leakingRun(leaks bool) *pagetest.Run {
	r := pagetest.NewRun()
	r.Start(1, "python3 model.py")
	r.Open(1, "n150", 0)
	r.From(1, pagetest.Stack("zeros", "weights", 4), event.DRAM, 8<<20, 40)
	step(r, leaks)
	return r
}

// Weights that live until the device closes are no leak, and what leaks has no tick.
func TestTheVerdictIsThatOfLeaks(t *testing.T) {
	for _, close := range []bool{false, true} {
		for leaks, want := range map[bool]string{
			true:  "\n720.0 KiB leaked: 60 buffers from 1 call site\n   720.0 KiB   60 buffers  model.py:77 step · ttnn.log\n",
			false: "\n✓ No leaks found\n\nPeak of each region  chip 0",
		} {
			r := leakingRun(leaks)
			if close {
				r.Close(1, 0)
				r.Exit(1, 0)
			}
			text := reportText(t, r, options{Unicode: true})
			qt.Check(t, qt.StringContains(text, want))
			qt.Check(t, qt.Equals(strings.Contains(text, "✓"), !leaks))
		}
	}
	r := leakingRun(false)
	r.Apply(event.Event{Kind: event.Lost, Count: 12, Cause: "ring buffer full"})
	qt.Check(t, qt.Not(qt.StringContains(reportText(t, r, options{Unicode: true}), "✓")))
}

func TestFewAllocationsAreNotJudged(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(1, "python3")
	r.Open(1, "n150", 0)
	text := reportText(t, r, options{Unicode: true})
	qt.Check(t, qt.StringContains(text, "Nothing was allocated on chip 0.\n"))
	qt.Check(t, qt.Not(qt.StringContains(text, "leaks")))
	r.Free(1, r.Alloc(1, event.DRAM, 1<<20, 12, 0))
	text = reportText(t, r, options{Unicode: true})
	qt.Check(t, qt.StringContains(text, "No leaks found: 1 buffer allocated, too few to judge\n"))
	qt.Check(t, qt.Not(qt.StringContains(text, "✓")))
}

// Where only some processes are shown, there is a peak without call sites.
func TestAPeakFromBeforeHasNoCallSites(t *testing.T) {
	before := sharedRun()
	r := &pagetest.Run{State: aggregate.New(), Now: before.Now, Id: before.Id}
	freed := before.Alloc(456, event.DRAM, 1<<30, 1, 0)
	before.Free(456, freed)
	r.State.Apply(aggregate.OfProcesses(before.State.Checkpoint(), []int{456}))
	qt.Check(t, qt.StringContains(reportText(t, r, options{}), "before this recording: its call sites are not known\n"))
}

// TestAPeakOfSeveralUsersHasOneRowForOthers, whose call sites are not shown.
func TestAPeakOfSeveralUsersHasOneRowForOthers(t *testing.T) {
	before := sharedRun()
	r := &pagetest.Run{State: aggregate.New(), Now: before.Now, Id: before.Id}
	r.State.Apply(before.State.Freeze(func(uid int) bool { return uid == 54322 })())
	text := reportText(t, r, options{})
	qt.Check(t, qt.StringContains(text, "     2.3 GiB  81%               other users\n   576.0 MiB  19%   12 buffers  allocated before ttmem attached\n"))
	b := document.Append(nil, (&Page{r.State.Snapshot(), Options{State: r.State}}).Document(), nil)
	qt.Check(t, qt.StringContains(string(b), `"other_users_bytes":2516582400,"sites":[{"bytes":603979776`))
}

// An ordinary page fits a screen: with more regions, each has fewer call sites.
func TestAReportFitsAScreen(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(1, "python3 model.py")
	r.Open(1, "n150", 0)
	for line := range 30 {
		for _, region := range []event.Region{event.DRAM, event.L1, event.L1Small, event.Trace} {
			r.From(1, pagetest.Stack("add", "forward", 100+line), region, 1<<(20-line/2), 1)
		}
	}
	step(r, true)
	for range 3 {
		r.Apply(event.Event{Kind: event.AllocFailed, PID: 1, Devices: []int{0}, Region: event.L1, Message: fmt.Sprint("no room for ", r.Now)})
	}
	r.Close(1, 0)
	r.Exit(1, 0)
	text := reportText(t, r, options{})
	qt.Check(t, qt.IsTrue(strings.Count(text, "\n") <= 40), qt.Commentf("%s", text))
	for _, want := range []string{"leaked", "TRACE ", "Processes"} {
		qt.Check(t, qt.StringContains(text, want))
	}
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

// TestAUserSeesTheTotalsOfOtherUsers: also on chips that only other users use.
func TestAUserSeesTheTotalsOfOtherUsers(t *testing.T) {
	report := func(uid int) string {
		var b strings.Builder
		snap := analyze.ForUser(sharedRun().State.Snapshot(), uid)
		qt.Assert(t, qt.IsNil(write(&b, snap, page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}, Options{State: aggregate.New(), Live: true, Own: true})))
		return b.String()
	}
	for _, want := range []string{"only your own processes are listed", " chip 0: other users (3) 2.9 GiB\n chip 1: other users (2) 2.9 GiB\n", "Your processes have nothing allocated."} {
		qt.Check(t, qt.StringContains(report(7), want))
	}
	qt.Check(t, qt.StringContains(report(54321), "only your own processes are listed"))
	qt.Check(t, qt.Not(qt.StringContains(report(54321), "have nothing allocated")))

	all := sharedRun().State.Snapshot()
	qt.Check(t, qt.Equals(page.OthersHold(analyze.ForUser(all, 54321)), "other users hold 576.0 MiB of 12.0 GiB of DRAM on each of chips 0, 1"))
	qt.Check(t, qt.Equals(page.OthersHold(all), "other users use no chip"))
}

// TestAReportSaysThatMemoryIsStillRead: then figures are too low.
func TestAReportSaysThatMemoryIsStillRead(t *testing.T) {
	snap := pagetest.NewRun().State.Snapshot()
	snap.Reading = true
	var b strings.Builder
	qt.Assert(t, qt.IsNil(write(&b, snap, page.Layout{Painter: page.Painter{ASCII: true}, Width: 80}, Options{State: aggregate.New(), Live: true})))
	qt.Check(t, qt.StringContains(b.String(), "No device memory was seen yet."))
	qt.Check(t, qt.StringContains(b.String(), "totals are incomplete"))
}

func TestTheReportForAUserNamesNoOtherUser(t *testing.T) {
	var b strings.Builder
	qt.Assert(t, qt.IsNil(write(&b, analyze.ForUser(sharedRun().State.Snapshot(), 54321), ascii, Options{State: aggregate.New(), Live: true})))
	qt.Check(t, qt.StringContains(b.String(), " chip 0: PID 123 2.3 GiB, other users (2) 576.0 MiB\n"))
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
	text := reportText(t, r, options{Options: Options{Live: true}})
	qt.Check(t, qt.StringContains(text, "\n chip 0: PID 50 600.0 KiB, PID 49 588.0 KiB"))
	qt.Check(t, qt.StringContains(text, "PID 43 516.0 KiB,\n   42 more 10.6 MiB\n"))
	checkLines(t, text, options{})
}

func TestProcessesThatWereAttachedLateAreCutShort(t *testing.T) {
	r := pagetest.NewRun()
	for pid := range 30 {
		r.Apply(event.Event{Kind: event.ProcessStart, PID: pid + 1, Start: &event.Start{AttachedLate: true}})
		if pid > 0 { // the first had allocated nothing
			r.Apply(event.Event{Kind: event.Alloc, PID: pid + 1, BufferID: 1, Devices: []int{0}, Banks: 1, BytesPerBank: 1, BeforeAttach: true})
		}
	}
	text := strings.Join(strings.Fields(reportText(t, r, options{})), " ")
	qt.Check(t, qt.StringContains(text, "note: attached late: PID 2 with 1 buffer, PID 3 with 1 buffer,"))
	qt.Check(t, qt.StringContains(text, "PID 5 with 1 buffer, 25 more found in memory;"))
}

func TestAProcessThatIsAnotherProgramNowIsInTheNotesOnce(t *testing.T) {
	text := reportText(t, liveRun(), options{Width: 200})
	qt.Check(t, qt.StringContains(text, "note: attached late: PID 55 with 2 buffers found in memory;"))
}

// A host of 32 chips on which everything goes wrong: no list of it fits a screen.
func crowdedRun() *pagetest.Run {
	r := pagetest.NewRun()
	r.State.Begin(r.Now)
	for p := range 40 {
		pid, chips := 100+p, []int{p % 32, (p + 9) % 32}
		r.Apply(event.Event{
			Kind: event.ProcessStart, PID: pid, UID: 50000 + p%7, Comm: "python3", Start: &event.Start{AttachedLate: p%2 == 0,
				Command:   fmt.Sprintf("/opt/venv/bin/python3 /srv/benchmarks/embeddings/benchmark_embeddings.py --part %d", p),
				Container: "4f1e0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d0c9ab37d5a26f1d", ContainerPID: p, Pod: "3c9e6b0a-5b1c-4f7e-9a51-0d2f6a7c8e90"},
		})
		r.Open(pid, "galaxy", chips...)
		r.Apply(event.Event{Kind: event.Lost, PID: pid, Count: 1 + uint64(p), Cause: "ring buffer full"})
		r.Apply(event.Event{Kind: event.Lost, PID: pid, Count: 1, Cause: "too many devices, programs and code objects"})
		for i, region := range page.Regions {
			for site := range 8 {
				r.Id++
				r.Apply(event.Event{
					Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.Id, Devices: chips, Region: region, BeforeAttach: p%2 == 0,
					SizeBytes: uint64(p+1) << 10, BytesPerBank: uint64(p+site+1) << 6, Banks: 8, Stack: calledFrom("zeros", 8*i+site),
				})
			}
		}
		for i := range 3 {
			r.Apply(event.Event{
				Kind: event.AllocFailed, PID: pid, Devices: chips, Region: event.L1, Reason: event.ReasonOutOfMemory,
				Stack: calledFrom("matmul", 3*p+i), Message: strings.Repeat("Not enough space to allocate 33554432 B L1 buffer. ", 9),
			})
		}
		r.Free(pid, 1<<40)
		if p%3 == 0 {
			r.Exit(pid, 9)
		}
	}
	r.Apply(event.Event{Kind: event.Lost, Count: 12, Cause: "ring buffer full"})
	return r
}

// TestALeakWithSomeOwnersAddsUp: the buffers that nobody is known to hold are a source too.
func TestALeakWithSomeOwnersAddsUp(t *testing.T) {
	r := pagetest.NewRun()
	r.Start(7, "python main.py")
	for i := range 100 {
		r.From(7, nil, event.DRAM, 1024, 1)
		kept := r.Id
		r.Free(7, r.Alloc(7, event.L1, 1024, 64, 0))
		if i < 10 {
			r.Own(7, kept, fmt.Sprintf("m.debug[%d]", i), "bf16[32,32] TILE")
		}
	}
	b := document.Append(nil, (&Page{r.State.Snapshot(), Options{State: r.State}}).Document(), nil)
	var doc struct {
		Leaks []struct{ Count, Bytes uint64 }
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(b, &doc)))
	qt.Check(t, qt.DeepEquals(doc.Leaks, []struct{ Count, Bytes uint64 }{{10, 10 * 12288}, {90, 90 * 12288}}))
}

// A program that ended before its library was read may have had memory: the report does not deny it.
func TestMemoryFromBeforeALateAttachIsNotDenied(t *testing.T) {
	r := pagetest.NewRun()
	r.Apply(event.Event{Kind: event.ProcessStart, PID: 1234, Start: &event.Start{Command: "python one.py", AttachedLate: true}})
	r.Exit(1234, 0)
	text := reportText(t, r, options{})
	qt.Check(t, qt.StringContains(text, "No device memory was seen since ttmem attached to PID 1234."))
}
