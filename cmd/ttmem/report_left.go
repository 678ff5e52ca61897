package main

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// shownHolders is how many call stacks are shown of what a process did not free.
const shownHolders = 3

// leftBehind writes what processes hold still, and what they held when they
// closed a device or ended.
func (r *report) leftBehind() {
	if len(r.snap.Devices) == 0 {
		return
	}
	titled := false
	for i := range r.snap.Processes {
		p := &r.snap.Processes[i]
		all := slices.Concat(p.Held, p.Left)
		var holders []aggregate.Holder
		var sum aggregate.Holder
		for j, l := range all {
			if !titled {
				titled = true
				r.line()
				r.line(r.paint(bold, "Not freed"))
			}
			var pid, when string
			if j == 0 {
				pid = fmt.Sprint(p.PID)
			}
			if j == 0 || all[j-1].Reason != l.Reason {
				when = leftWhen(l.Reason)
			}
			r.line(" ", right(pid, 7), "  ", r.paint(dim, left(when, 24)), "  ", left(l.Region, labelColumns), " ",
				right(formatBytes(l.AllocatedBytes), bytesColumns), "  ", right(formatCount(l.Buffers, "buffer"), 14))
			holders = append(holders, l.Holders...)
			sum.Bytes, sum.Count = sum.Bytes+l.AllocatedBytes, sum.Count+l.Buffers
			if j+1 == len(all) || all[j+1].Reason != l.Reason {
				r.holders(holders, sum)
				holders, sum = nil, aggregate.Holder{}
			}
		}
	}
	// Not to be claimed of what was not seen, or is not remembered.
	if !titled && r.snap.LostEvents() == 0 && r.forgotten() == 0 && len(r.snap.Processes) > 0 {
		r.line()
		r.line(r.paint(green, r.pick("✓ ", "")), "Every buffer was freed.")
	}
}

// leftWhen is what a person calls the reason.
func leftWhen(reason string) string {
	switch reason {
	case event.ReasonDeviceClose.String():
		return "when its device closed"
	case event.ReasonProcessExit.String():
		return "when it ended"
	}
	return "held still"
}

// holders writes what the largest holders of the sum have, and what is left of it.
func (r *report) holders(list []aggregate.Holder, sum aggregate.Holder) {
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b aggregate.Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	line := func(h aggregate.Holder, name aggregate.Name, st style) {
		figures := fmt.Sprint(left("", 6), right(formatBytes(h.Bytes), bytesColumns),
			right(formatCount(h.Count, "buffer"), 14), "  ")
		r.line(r.paint(dim, figures), r.paint(st, r.fitName(name, r.width-width(figures))))
	}
	for _, h := range list[:min(len(list), shownHolders)] {
		line(h, cmp.Or(aggregate.NameOf(h.Stack.Frames()), aggregate.Name{Op: "unknown code"}), noStyle)
		sum.Bytes -= h.Bytes
		sum.Count -= h.Count
	}
	if sum.Count > 0 {
		line(sum, aggregate.Name{Op: "elsewhere"}, dim)
	}
}
