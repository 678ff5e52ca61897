package leaks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// A run is a run of PID 7. Survivors are counted between its marks, if it has any.
type run struct {
	*pagetest.Run
	marks []Mark
}

func newRun() *run {
	r := &run{Run: pagetest.NewRun()}
	r.Start(7, "python main.py")
	return r
}

func (r *run) mark(name string) {
	r.Apply(event.Event{Kind: event.Mark, Cause: name})
	if len(r.marks) == 0 {
		r.State.FollowFrom(r.Now)
	} else {
		r.State.FollowTo(r.Now)
	}
	r.marks = append(r.marks, Mark{name, r.Now})
}

func (r *run) alloc(stack *event.Stack) { r.From(7, stack, event.DRAM, 1024, 1) }

// temporary is a buffer that is freed at once.
func (r *run) temporary(stack *event.Stack) {
	r.alloc(stack)
	r.Free(7, r.Id)
}

func (r *run) text(t *testing.T, o Options, layout page.Layout) string {
	t.Helper()
	ask := analyze.LeakOptions{}
	for _, m := range r.marks {
		ask.Times = append(ask.Times, m.TimeNs)
	}
	o.Marks, o.Allocated = r.marks, r.State.BuffersAllocated()
	return pagetest.Text(t, New(analyze.Leaks(r.State, ask), o), layout)
}

// cachedAt is a call stack that makes a program of the program cache.
func cachedAt(calls ...event.Frame) *event.Stack {
	return event.StackOf(append([]event.Frame{
		{Kind: event.Native, Name: "ttnn::device_operation::detail::create_and_cache_mesh_workload"},
		{Kind: event.Native, Name: "nanobind::detail::func_create<ttnn.halo>::{lambda#1}"},
	}, calls...))
}

// leaky leaks at one line, loads weights, and has a program cache.
func leaky(marks ...string) *run {
	r := newRun()
	leak, temporary := pagetest.Stack("add", "Attention.forward", 12), pagetest.Stack("add", "Attention.forward", 13)
	weight := event.StackOf([]event.Frame{{Kind: event.Python, Name: "load", File: "/srv/model.py", Line: 5}})
	cached := cachedAt(event.Frame{Kind: event.Python, Name: "forward", File: "/srv/model.py", Line: 14})
	for range 10 {
		r.alloc(weight)
	}
	for i := range 20 {
		if i%10 == 5 && len(marks) > 0 {
			r.mark(marks[i/10])
		}
		r.temporary(temporary)
		r.alloc(leak)
		if i%2 == 0 {
			r.alloc(cached)
		}
	}
	r.Exit(7, 0)
	return r
}

func TestLeaksPage(t *testing.T) {
	text := leaky().text(t, Options{By: "stack"}, page.Layout{Width: 80})
	qt.Check(t, qt.Equals(text, `240.0 KiB leaked: 20 buffers from 1 call site

      bytes buffers     oldest
  240.0 KiB      20      6.8 s  model.py:12 Attention.forward · ttnn.add
      grew in 8 of 8 intervals of the run, still growing: 20 never freed
        ← run.py:7

Retained by the runtime: program cache  10 buffers, 120.0 KiB
  made together with a program, and there as long as it is cached:
  configuration, semaphores, global circular buffers
      bytes buffers     oldest
  120.0 KiB      10      6.7 s  model.py:14 forward · ttnn.halo

Live but stable: 10 buffers, 120.0 KiB, from 1 call site.
`))
	pagetest.CheckWidth(t, text, 80)
}

// heldRun is a process that was attached when m.debug held eight tensors. It adds one in each step,
// of one name to m.log too, and one look at the end finds who holds them.
func heldRun(marks ...string) *run {
	r := newRun()
	for i := range uint64(8) {
		r.Apply(event.Event{
			Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: i + 1, Devices: []int{0}, SizeBytes: 12 << 10, BytesPerBank: 1 << 10, Banks: 12,
			BeforeAttach: true,
		})
	}
	r.Id = 8
	leak, temporary := pagetest.Stack("add", "step", 12), pagetest.Stack("add", "step", 13)
	var debug, log []uint64
	for i := range 20 {
		if i%10 == 5 && len(marks) > 0 {
			r.mark(marks[i/10])
		}
		r.temporary(temporary)
		r.alloc(leak)
		debug = append(debug, r.Id)
		if i%4 == 0 {
			r.alloc(leak)
			log = append(log, r.Id)
		}
	}
	for i := range uint64(8) {
		r.Own(7, i+1, fmt.Sprintf("m.debug[%d]", i), "bf16[32,32] TILE")
	}
	for i, id := range debug {
		r.Own(7, id, fmt.Sprintf("m.debug[%d]", 8+i), "bf16[32,32] TILE")
	}
	for i, id := range log {
		r.Own(7, id, fmt.Sprintf("m.log['step %d'][0].\x1b[1mt", i), "bf16[32,32] TILE")
	}
	return r
}

// TestTheFirstLineNamesTheContainer that grows, with the buffers from before the attach.
func TestTheFirstLineNamesTheContainer(t *testing.T) {
	text := heldRun().text(t, Options{By: "stack"}, page.Layout{Width: 80})
	qt.Check(t, qt.Equals(text, `m.debug[…]: 8 → 18 → 28 tensors
300.0 KiB leaked: 25 buffers from 1 call site

      bytes buffers     oldest
  300.0 KiB      25      9.5 s  model.py:12 step · ttnn.add
      grew in 8 of 8 intervals of the run, still growing: 25 never freed
      held by m.debug[…]: 8 → 18 → 28 tensors
      held by m.log[…][0].[1mt: 0 → 3 → 5 tensors
        ← run.py:7
`))
	text = heldRun().text(t, Options{By: "owner"}, page.Layout{Painter: page.Painter{ASCII: true}})
	qt.Check(t, qt.Equals(text, `m.debug[...]: 8 -> 18 -> 28 tensors
300.0 KiB leaked: 25 buffers from 1 call site

      bytes buffers  owner
  240.0 KiB      20  m.debug[...]
   60.0 KiB       5  m.log[...][0].[1mt
`))
}

// TestContainersBetweenMarks count what they held at the first mark, and what was added since.
func TestContainersBetweenMarks(t *testing.T) {
	r := heldRun("a", "b")
	text := r.text(t, Options{By: "stack"}, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "m.debug[…]: 13 → 18 → 23 tensors\n144.0 KiB leaked"))
}

func TestLeaksBetweenNamedMarks(t *testing.T) {
	o := Options{By: "stack", From: "step 5", To: "step 15"}
	text := leaky("step 5", "step 15").text(t, o, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "120.0 KiB leaked from \"step 5\" to \"step 15\" (3.6 s): 10 buffers from 1 call site\n"))
	qt.Check(t, qt.StringContains(text, "grew between the two marks\n"))
	qt.Check(t, qt.StringContains(text, "Retained by the runtime: program cache  5 buffers"))
}

func TestLeaksBySomethingElse(t *testing.T) {
	text := leaky().text(t, Options{By: "op"}, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "      bytes buffers  op\n  240.0 KiB      20  ttnn.add\n"))
	text = leaky().text(t, Options{By: "process"}, page.Layout{Width: 80})
	qt.Check(t, qt.StringContains(text, "PID 7 python main.py\n"))
}

// TestStableIsShownApart: a cache that is full is listed below the leaks.
func TestStableIsShownApart(t *testing.T) {
	r := newRun()
	for i := range 8 {
		r.mark("step")
		r.alloc(pagetest.Stack("add", "Attention.forward", 31))
		if i < 2 {
			r.alloc(pagetest.Stack("embedding", "Tables.get", 7))
		}
	}
	r.mark("step")
	text := r.text(t, Options{By: "stack", From: "step#1", To: "step"}, page.Layout{Width: 80})
	qt.Check(t, qt.Equals(text, `96.0 KiB leaked from "step#1" to "step" (8 intervals, 1.8 s): 8 buffers from 1
call site

      bytes buffers     oldest
   96.0 KiB       8      1.7 s  model.py:31 Attention.forward · ttnn.add
      grew in 8 of 8 intervals between marks, still growing
        ← run.py:7

Live but stable  2 buffers, 24.0 KiB
  allocated between the marks and still live, but no longer growing at the last
      bytes buffers     oldest
   24.0 KiB       2      1.6 s  model.py:7 Tables.get · ttnn.embedding
      grew in 2 of 8 intervals between marks, not after the 2nd
        ← run.py:7
`))
}

// TestLeaksFitTheTerminal: no line is too wide, however long the names are.
func TestLeaksFitTheTerminal(t *testing.T) {
	long := strings.Repeat("model::Attention<bfloat16, tt::Layout::TILE>::", 4) + "forward_with_cache"
	python := func(line int, name string) event.Frame {
		return event.Frame{Kind: event.Python, Name: name, File: "/code/models/" + strings.Repeat("deep/", 9) + "a_file_with_a_long_name.py", Line: line}
	}
	stackOf := func(line int, operation string) *event.Stack {
		return event.StackOf([]event.Frame{
			{Kind: event.Native, Name: operation}, {Kind: event.Native, Name: "nanobind::detail::func_create<ttnn.scaled_dot_product_attention>::{lambda#1}"},
			python(line, long), python(line+1, "main"), python(line+2, "<module>"),
		})
	}
	leak, temporary, cached := stackOf(10, long), stackOf(20, "f"), cachedAt(python(30, long))
	weight := event.StackOf([]event.Frame{python(40, "load")})
	runOf := func(marks bool) *run {
		r := newRun()
		alloc := func(stack *event.Stack) {
			r.Id++
			r.Apply(pagetest.Buffer(event.Alloc, r.Id, event.L1, 0x1000*r.Id, 1<<40, stack, 0, 1, 2, 3, 5, 7))
		}
		for i := range 40 {
			if i%4 == 0 && marks {
				r.mark("the first mark of the model " + strings.Repeat("x", 60))
			}
			alloc(leak)
			if i%5 == 0 {
				alloc(cached)
			}
			if i < 10 {
				alloc(weight)
			}
			alloc(temporary)
			r.Free(4242, r.Id)
		}
		return r
	}
	for _, columns := range []int{40, 60, 80} {
		for _, test := range []struct {
			by    string
			marks bool
		}{{"stack", false}, {"stack", true}, {"file", false}, {"op", false}, {"chip", false}} {
			o := Options{By: test.by, Suppress: "/code/" + strings.Repeat("known", 20), WatchedNs: 3e9}
			text := runOf(test.marks).text(t, o, page.Layout{Width: columns})
			qt.Check(t, qt.StringContains(text, " leaked"))
			pagetest.CheckWidth(t, text, columns)
		}
	}
}

// TestNotEnoughToJudge: next to no allocations do not show that nothing leaks.
func TestNotEnoughToJudge(t *testing.T) {
	for _, test := range []struct {
		buffers   int
		watchedNs uint64
		want      string
	}{
		{0, 1e9, "Not enough allocations to judge, watched for 1.0 s: no buffer was allocated.\n"},
		{1, 0, "Not enough allocations to judge: 1 buffer was allocated.\n"},
		{15, 2e9, "Not enough allocations to judge, watched for 2.0 s: 15 buffers were allocated.\n"},
		{16, 130e9, "No leaks, watched for 2 min 10 s: nothing grew to the end.\n"},
		{16, 0, "No leaks: nothing grew to the end.\n"},
	} {
		r := newRun()
		for range test.buffers {
			r.temporary(pagetest.Stack("add", "Attention.forward", 31))
		}
		text := r.text(t, Options{By: "stack", WatchedNs: test.watchedNs}, page.Layout{})
		qt.Check(t, qt.Equals(text, test.want))
	}
}

// TestContainersOfSitesThatLookAlikeAddUp, and the largest is first.
func TestContainersOfSitesThatLookAlikeAddUp(t *testing.T) {
	one := func(owner string, count uint64) analyze.Container {
		return analyze.Container{Owner: owner, Amount: memory.Amount{Count: count, Bytes: 10 * count}}
	}
	first := []analyze.Container{one("m.a[…]", 5), one("m.b[…]", 4)}
	l := analyze.Verdict{Containers: first}
	l.Add(&analyze.Verdict{Containers: []analyze.Container{one("m.c[…]", 6), one("m.b[…]", 3)}})
	qt.Check(t, qt.DeepEquals(l.Containers, []analyze.Container{one("m.b[…]", 7), one("m.c[…]", 6), one("m.a[…]", 5)}))
	qt.Check(t, qt.Equals(first[1].Count, 4))
}

// TestGroupsByOwnerAreNoMoreThanTheLeak: between marks it does not count what only replaced others.
func TestGroupsByOwnerAreNoMoreThanTheLeak(t *testing.T) {
	p := Page{Options: Options{By: "owner"}, leaks: []*alloc.Row{{
		Site: &alloc.Site{}, Amounts: []memory.Amount{{Count: 5, Bytes: 50}},
		Verdict: &analyze.Verdict{Containers: []analyze.Container{{Owner: "m.a[…]", Amount: memory.Amount{Count: 7, Bytes: 70}}}},
	}}}
	groups := p.groups()
	qt.Assert(t, qt.HasLen(groups, 1))
	qt.Check(t, qt.Equals(groups[0].Text, "m.a[…]"))
	qt.Check(t, qt.DeepEquals(groups[0].Amounts, []memory.Amount{{Count: 5, Bytes: 50}}))
}

// TestHostMemoryThatGrowsIsNamed: over the whole run, and not between marks.
func TestHostMemoryThatGrowsIsNamed(t *testing.T) {
	r := newRun()
	r.mark("a")
	host := uint64(1 << 30)
	for range 400 {
		r.temporary(nil)
		host += 1 << 20
		r.Apply(event.Event{Kind: event.HostMemory, PID: 7, SizeBytes: host, BytesPerBank: host})
	}
	r.mark("b")
	marks, processes := r.marks, r.State.Snapshot().Processes
	grew := "Host memory of PID 7, not device memory, grew by "
	qt.Check(t, qt.Not(qt.StringContains(r.text(t, Options{Processes: processes}, page.Layout{}), grew)))
	r.marks = nil
	qt.Check(t, qt.StringContains(r.text(t, Options{Processes: processes}, page.Layout{}), grew))
	qt.Check(t, qt.Not(qt.StringContains(r.text(t, Options{Processes: processes, Filter: alloc.Filter{PIDs: []int{8}}}, page.Layout{}), grew)))
	o := Options{Processes: processes}
	report := analyze.Leaks(r.State, analyze.LeakOptions{})
	qt.Check(t, qt.Matches(string(document.Append(nil, New(report, o).Document(), nil)), `.*"host_growth":\[\{"pid":7,"resident_bytes":\d+,"peak_bytes":\d+,"growth_bytes":\d+\}\].*`))
	o.Marks = marks
	qt.Check(t, qt.Not(qt.StringContains(string(document.Append(nil, New(report, o).Document(), nil)), "host_growth")))
}
