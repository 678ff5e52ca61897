package e2e

import (
	"encoding/json"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// TestUsedAfterFree: runs of a program with the address of a freed tensor are reported, with both lines: not ttnn.move, which
// frees its input before it reads it, and not once another tensor has the memory.
func TestUsedAfterFree(t *testing.T) {
	t.Parallel()
	const source = "after_free.py"
	file, _ := recordProgram(t, "0.81.1", source)
	var said struct {
		UsedAfterFree []struct {
			Region      string
			Count       uint64
			Stack       []event.Frame
			AllocatedBy []event.Frame `json:"allocated_by"`
			FreedBy     []event.Frame `json:"freed_by"`
		} `json:"used_after_free"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "report", file, "--json"), &said)))
	counts := make(map[string]uint64)
	for _, a := range said.UsedAfterFree {
		counts[a.Region] += a.Count
		for remark, stack := range map[string][]event.Frame{"RUN": a.Stack, "SCRATCH": a.AllocatedBy, "FREED": a.FreedBy} {
			qt.Check(t, qt.IsTrue(name.AtLine(lineOf(t, source, remark))(event.StackOf(stack))), qt.Commentf("%s: %+v", remark, stack))
		}
	}
	qt.Check(t, qt.DeepEquals(counts, map[string]uint64{"DRAM": 2, "L1": 2}))
}
