package report

import (
	"fmt"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// summary is the answer in one sentence: what failed, what is assigned twice, what a trace may overwrite, what leaked, which region
// is fullest, and where L1 is tightest. It is "" if nothing was allocated.
func (r *report) summary() string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if n := r.snap.FailureCount; n > 0 {
		say("%s failed", page.Count(n, "allocation"))
	}
	if n := r.snap.OperationFailureCount; n > 0 {
		say("%s failed", page.Count(n, "operation"))
	}
	if n := r.snap.OverlapCount; n > 0 {
		say("%s assigned twice", page.Count(n, "buffer"))
	}
	if n := r.snap.UnsafeCount; n > 0 {
		say("%s may have been overwritten by a trace", page.Count(n, "buffer"))
	}
	var leaked memory.Amount
	for i := range r.leaked {
		leaked.Add(r.leaked[i].Amount)
	}
	if leaked.Count > 0 {
		say("%s leaked", page.Bytes(leaked.Bytes))
	}
	fullest := r.fullest()
	if fullest == "" && parts == nil {
		return ""
	}
	if fullest != "" {
		parts = append(parts, fullest)
	}
	if o := r.tightest(); o != nil {
		at := name.Of(o.Stack.Frames())
		place := page.Clean(at.Call.String())
		if op := page.Clean(at.Op); op != "" {
			place = strings.TrimSuffix(op+", "+place, ", ")
		}
		say("L1 tightest at %s: %s of %s free", place, strings.TrimSuffix(page.KiB(o.Peak.HeadroomBytes()), " KiB"), page.KiB(o.Peak.CapacityBytes))
	}
	if leaked.Count == 0 && len(r.undecided)+len(r.hostGrowth) == 0 && !r.losses().Any() && !r.CutShort && r.State.BuffersAllocated() >= analyze.LeastSurvivors {
		say("no leak")
	}
	return strings.Join(parts, "; ")
}

// fullest is the region of a chip with the largest share of its capacity: now or at its peak. L1 has its
// own part of the summary.
func (r *report) fullest() (text string) {
	share := -1.0
	for i := range r.snap.Devices {
		for _, region := range page.Regions {
			u := r.useOf(region, &r.snap.Devices[i])
			if region == event.L1 || u.capacity == 0 || u.shown == 0 {
				continue
			}
			if one := float64(u.shown) / float64(u.capacity); one > share {
				share = one
				text = fmt.Sprintf("%s %s of %s", region, page.Bytes(u.shown), page.Bytes(u.capacity))
			}
		}
	}
	return text
}

// tightest is the operation that left the least of L1 free; nil if none is known.
func (r *report) tightest() (least *memory.Operation) {
	list, _ := r.State.Operations()
	for i := range list {
		o := &list[i]
		known := o.Peak.CapacityBytes > 0 && o.Peak.TimeNs > 0 && o.Stack != nil && (r.PID == 0 || o.PID == r.PID)
		if known && (least == nil || o.Peak.HeadroomBytes() < least.Peak.HeadroomBytes()) {
			least = o
		}
	}
	return least
}

// writeSummary writes the summary below the heading.
func (r *report) writeSummary() {
	for _, line := range page.Wrap(r.summary(), min(r.width, textColumns)) {
		r.line(r.Paint(page.Bold, line))
	}
}
