package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

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
	from := func(pid int, stack *event.Stack, region event.Region, perBank uint64, buffers int) {
		for range buffers {
			r.id++
			r.apply(event.Event{
				Kind: event.Alloc, PID: pid, Allocator: 1, BufferID: r.id, Devices: []int{0}, Region: region,
				SizeBytes: perBank * 12, BytesPerBank: perBank, Banks: 12, Stack: stack,
			})
		}
	}
	from(4242, binding("zeros", "weights", 4), event.DRAM, 8<<20, 40)
	from(4242, binding("matmul", "Attention.forward", 31), event.L1, 64<<10, 2)
	from(4242, binding("add", "Attention.forward_with_a_name_that_is_longer_than_a_line_of_the_report", 32), event.DRAM, 1<<20, 3)
	from(4242, binding("softmax", "Attention.forward", 33), event.DRAM, 1<<10, 5)
	from(4242, nil, event.DRAM, 1<<10, 1)
	r.exit(4242, 9)
	r.start(4300, "./train")
	r.open(4300, "n150", 0)
	from(4300, event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::BufferImpl::create", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "Trainer::step(int)", Module: "train"},
		{Kind: event.Native, Name: "main", Module: "train"},
	}), event.DRAM, 1<<20, 2)
	r.close(4300, 0)
	from(4300, event.StackOf([]event.Frame{{Kind: event.Native, Module: "train", Address: 7}}), event.DRAM, 2<<20, 1)
	r.exit(4300, 0)
	return r
}

func TestTheReportForAUserNamesNobodyElse(t *testing.T) {
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, sharedRun().state.Snapshot().ForUser(1000), reportOptions{})))
	qt.Check(t, qt.StringContains(b.String(), "Shared by 3 processes: PID 123 2.3 GiB, other users (2) 576.0 MiB\n"))
	qt.Check(t, qt.StringContains(b.String(), "chip 0 shared across 3 processes"))
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
	qt.Check(t, qt.StringContains(b.String(), "Shared by 50 processes: PID 50 50.0 KiB, PID 49 49.0 KiB"))
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
	var b strings.Builder
	qt.Assert(t, qt.IsNil(writeReport(&b, r.state.Snapshot(), reportOptions{})))
	qt.Check(t, qt.StringContains(b.String(), "note: PID 20 was attached late: 1 buffer found"))
	qt.Check(t, qt.IsFalse(strings.Contains(b.String(), "PID 1 was attached late")))
	qt.Check(t, qt.StringContains(b.String(), "note: 9 more processes were attached late\n"))
}
