package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/advise"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

const (
	// leastGain is the least part of a peak by which it is to be lower: one in that many bytes.
	leastGain = 100
	// lateFreeLines is how many lines of text there are about each.
	lateFreeLines = 2
)

// lateFree is how much lower the peak of a region is if buffers are freed after their last use, as replay proves, and the
// line with most of them. The bytes of L1 are per core, of tensors alone.
type lateFree struct {
	Region     string `json:"region" schema:"banked_region"`
	PID        int    `json:"pid" user:"user"`
	Devices    []int  `json:"devices"`
	PeakBytes  uint64 `json:"peak_bytes"`
	FreedBytes uint64 `json:"freed_peak_bytes"`
	// Lines is how many lines are to free their buffers. The others describe the first.
	Lines int    `json:"lines"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
	// LastUse is the operation that uses a buffer last; left out if they are never used.
	LastUse string `json:"last_use,omitempty"`

	allocated, used name.Name
	format          func(uint64) string
}

// lateFrees are those of the regions whose peak is lower by a hundredth.
func (r *report) lateFrees() (list []lateFree) {
	if r.Advice == nil {
		return nil
	}
	for _, p := range r.Advice.Peaks {
		of, lines := p.All, len(p.Lines)
		first := p.BestLine()
		if lines == 0 {
			continue
		}
		if first != nil && p.Gain(first.Alone) >= p.Gain(of) {
			of, lines = first.Alone, 1
		}
		if of.Doubt != "" || leastGain*p.Gain(of) < max(p.Peak, 1) || !r.isPeak(p) {
			continue
		}
		l := cmp.Or(first, p.Lines[0])
		one := lateFree{
			Region: p.Region.String(), PID: p.PID, Devices: p.Devices, Lines: lines, Count: l.Count, allocated: name.Of(l.Stack.Frames()), format: page.Bytes,
		}
		banks := p.Banks
		if p.Region == event.L1 {
			one.format, banks = page.KiB, 1
		}
		one.PeakBytes, one.FreedBytes, one.Bytes = p.Peak*banks, of.PerBank*banks, l.PerBank*banks
		one.Name = one.allocated.String()
		if !l.Unused {
			one.used = name.Of(l.LastUse.Frames())
			one.LastUse = cmp.Or(one.used.String(), "(no call stack)")
		}
		list = append(list, one)
	}
	return list
}

// isPeak reports whether a peak of one allocator is that of its chips, too, as far as these show it: the peak of L1 has circular
// buffers.
func (r *report) isPeak(p *advise.Peak) bool {
	return p.Region == event.L1 || slices.ContainsFunc(r.peaks, func(q memory.RegionPeak) bool {
		return q.Region == p.Region && slices.Contains(p.Devices, q.Device) && q.Bytes == p.Peak*p.Banks
	})
}

// writeLateFrees writes what to free earlier, if a peak is lower then.
func (r *report) writeLateFrees() {
	for _, one := range r.lateFrees() {
		what := one.Region
		if what == event.L1.String() {
			what = "Tensors in L1"
		}
		if len(r.snap.Processes) > 1 {
			what += " of " + r.users.PID(one.PID)
		}
		text := fmt.Sprintf("%s would peak at %s, not %s, if ", what, one.format(one.FreedBytes), one.format(one.PeakBytes))
		line := cmp.Or(page.Clean(one.allocated.Call.String()), page.Clean(one.Name), "(no call stack)")
		switch {
		case one.Lines > 1:
			text += fmt.Sprintf("%d lines freed their buffers after the last use, such as %s", one.Lines, line)
		case one.LastUse == "":
			text += fmt.Sprintf("%s of %s, never used, were freed at once", one.format(one.Bytes), line)
		default:
			text += fmt.Sprintf("%s of %s were freed after %s", one.format(one.Bytes), line, cmp.Or(page.Clean(one.used.Text(r.Separator())), one.LastUse))
		}
		const advice = ": ttmem advise FILE"
		shown := text + advice
		for columns := page.Width(text); !r.whole && columns > 0 && len(page.Wrap(shown, r.width)) > lateFreeLines; columns-- {
			shown = r.cut(text, columns) + advice
		}
		r.sentence(page.Yellow, shown)
	}
}
