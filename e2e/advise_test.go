package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// advice is what ttmem advise says of a region.
type advice struct {
	Region    string
	PeakBytes uint64 `json:"peak_bytes"`
	Lines     []heldLine
}

// heldLine is a line with buffers that are not used any more at the peak.
type heldLine struct {
	Bytes        uint64
	Stack        []event.Frame
	LastUseStack []event.Frame `json:"last_use_stack"`
	Freed        struct {
		PeakBytes uint64 `json:"peak_bytes"`
		Proved    bool
		Reason    string
	}
}

// adviceOf runs a program, and returns the advice about a region.
func adviceOf(t *testing.T, region string, args ...string) (of advice, out string) {
	t.Helper()
	file, printed := recordProgram(t, "0.81.1", args[0], args[1:]...)
	var said struct{ Peaks []advice }
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "advise", file, "--json"), &said)))
	i := slices.IndexFunc(said.Peaks, func(a advice) bool { return a.Region == region })
	qt.Assert(t, qt.IsTrue(i >= 0))
	return said.Peaks[i], string(printed)
}

// TestAdviceIsTrue: a program that frees a tensor as advised has the peak that was promised, also by the library's own count.
func TestAdviceIsTrue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ program, region, remark, last string }{
		{"held_after_use.py", "DRAM", "HELD", "LAST"}, {"decode.py", "L1", "WIDE", "SLICE"},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			before, _ := adviceOf(t, c.region, c.program)
			held := name.AtLine(lineOf(t, c.program, c.remark))
			i := slices.IndexFunc(before.Lines, func(l heldLine) bool {
				return held(event.StackOf(l.Stack))
			})
			qt.Assert(t, qt.IsTrue(i >= 0), qt.Commentf("%+v", before))
			l := before.Lines[i]
			qt.Check(t, qt.IsTrue(l.Freed.Proved), qt.Commentf("%s", l.Freed.Reason))
			qt.Check(t, qt.IsTrue(l.Freed.PeakBytes < before.PeakBytes))
			qt.Check(t, qt.IsTrue(name.AtLine(lineOf(t, c.program, c.last))(event.StackOf(l.LastUseStack))))
			after, out := adviceOf(t, c.region, c.program, "freed")
			qt.Check(t, qt.Equals(after.PeakBytes, l.Freed.PeakBytes))
			if strings.Contains(out, "PEAK ") {
				qt.Check(t, qt.StringContains(out, fmt.Sprintf("PEAK %d\n", l.Freed.PeakBytes)))
				qt.Check(t, qt.HasLen(before.Lines, 1))
				qt.Check(t, qt.Equals(l.Bytes, before.PeakBytes-l.Freed.PeakBytes))
			}
		})
	}
}

// TestNothingIsAccused that is used again: weights, caches, states of the next iteration, and results that the host reads.
func TestNothingIsAccused(t *testing.T) {
	t.Parallel()
	clean, _ := adviceOf(t, "DRAM", "used_again.py")
	qt.Check(t, qt.HasLen(clean.Lines, 0), qt.Commentf("%+v", clean.Lines))
	dram, _ := adviceOf(t, "DRAM", "decode.py")
	qt.Check(t, qt.HasLen(dram.Lines, 0), qt.Commentf("%+v", dram.Lines))
}
