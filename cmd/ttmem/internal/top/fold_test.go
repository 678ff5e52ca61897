package top

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// A helper that allocates has many callers: the small ones are one row for each region, as on pages, and Enter
// lists all stacks.
func TestSmallStacksOfALineAreOneRow(t *testing.T) {
	s := emptyStage(100, 40)
	id := uint64(0)
	alloc := func(region event.Region, op string, callers ...int) {
		for _, line := range callers {
			id++
			s.live.Handle(&event.Event{
				Kind: event.Alloc, TimeNs: id, PID: 1, BufferID: id, Devices: []int{0}, Region: region, BytesPerBank: 1024, Banks: 2,
				Stack: event.StackOf([]event.Frame{
					{Kind: event.Native, Name: "ttnn::" + op, Module: "_ttnncpp.so"},
					{Kind: event.Python, Name: "__call__", File: "/usr/lib/python3/dist-packages/ttnn/decorators.py", Line: 512},
					{Kind: event.Python, Name: "empty", File: "/home/user/model.py", Line: 16},
					{Kind: event.Python, Name: "forward", File: "/home/user/model.py", Line: line},
				}),
			})
		}
	}
	alloc(event.DRAM, "empty", 21, 22, 23, 23)
	alloc(event.L1, "empty", 31, 32)
	alloc(event.DRAM, "ones", 24)
	s.refresh()
	qt.Assert(t, qt.HasLen(s.rows, 4), qt.Commentf("%s", s.text()))
	qt.Check(t, qt.Matches(s.table()[0], ` +6\.0 KiB +43% +3 .* DRAM  .*model\.py:16 empty ← 3 other callers · 2 operations.*`))
	qt.Check(t, qt.Matches(s.table()[1], ` +4\.0 KiB +29% +2 .* DRAM  .*model\.py:16 empty ← :23 forward · ttnn::empty.*`))
	qt.Check(t, qt.Matches(s.text(), `(?s).*L1  [^\n]*model\.py:16 empty ← :31 forward.*`))
	qt.Check(t, qt.StringContains(s.text(), " open "))
	s.width = 72
	qt.Check(t, qt.StringContains(s.text(), "model.py:16 ← 3 other callers"))
	s.width = 100

	s.press("enter")
	qt.Check(t, qt.Equals(s.page, pageTable))
	qt.Assert(t, qt.HasLen(s.rows, 4)) // two buffers have the same stack
	for _, line := range s.table()[:4] {
		qt.Check(t, qt.Matches(line, ` .*DRAM  .*model\.py:16 empty ← :2[1234] forward.*`))
	}
	s.press("enter")
	qt.Check(t, qt.Equals(s.page, pageStack))
	s.press("esc", "esc")
	qt.Check(t, qt.HasLen(s.rows, 4))
	qt.Check(t, qt.IsNil(s.filter.in))
}
