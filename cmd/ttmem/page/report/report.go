// Package report writes the use of each chip at its peak and at present, by process.
package report

import (
	"fmt"
	"io"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// Options say what a report is about. The zero value is about all processes of a recording.
type Options struct {
	// Live is for running processes: "now" takes the place of "at the end".
	Live bool
	// Own is for users who see their own processes only.
	Own bool
	// PID is the one process that the report is about; 0: all.
	PID int
	// Older names the previous part of the recording; "" if there is none.
	Older string
	// Clock relates the snapshot's times to the wall clock. UTC prints them so.
	Clock page.Clock
	UTC   bool
}

// report is a report that is being written.
type report struct {
	page.Painter
	strings.Builder
	Options
	snap *memory.Snapshot
	// width is the number of columns; whole is true if longer names are not cut.
	width   int
	whole   bool
	columns tableColumns
	// end is "at the end" or "now".
	end string
}

// textColumns is the largest width of sentences.
const textColumns = 100

// Write writes what a snapshot has: the peak and the present use of each region of each chip,
// then processes, what they have live or did not free, and failures. Lost events are reported
// first and last.
func Write(w io.Writer, s *memory.Snapshot, layout page.Layout, o Options) error {
	r := &report{
		Painter: layout.Painter, Options: o, snap: s,
		width: layout.Columns(), whole: layout.Width == 0, columns: columnsFor(layout.Columns()), end: "at the end",
	}
	if o.Live {
		r.end = "now"
	}
	r.heading()
	r.warnLost()
	r.devices()
	r.processes()
	r.live()
	r.failures()
	r.notes()
	if len(r.doubts()) > 0 {
		r.WriteByte('\n')
		r.warnLost()
	}
	_, err := io.WriteString(w, r.String())
	return err
}

// line writes one line, without blanks at its end.
func (r *report) line(parts ...string) {
	r.WriteString(strings.TrimRight(strings.Join(parts, ""), " "))
	r.WriteByte('\n')
}

// cut cuts text to the remaining columns, unless names stay whole.
func (r *report) cut(s string, columns int) string {
	if r.whole {
		return s
	}
	return r.Cut(s, columns)
}

func (r *report) heading() {
	title, about := "Device memory", ""
	if r.PID > 0 {
		title += fmt.Sprintf(" of PID %d", r.PID)
	}
	if ns, ok := r.traced(); ok {
		about = " over " + page.Seconds(ns)
	}
	if first := page.FirstNs(r.snap, r.Live); r.UTC && first > 0 {
		about += ", from " + r.Clock.UTC(first) + " to " + r.Clock.UTC(r.snap.TimeNs) + " UTC"
	}
	if r.Live {
		title += " now"
		about = strings.Replace(about, " over ", ", traced for ", 1)
	}
	for i, line := range page.Wrap(title+about, r.width) {
		if i == 0 {
			line = r.Paint(page.Bold, title) + r.Paint(page.Dim, strings.TrimPrefix(line, title))
		}
		r.line(line)
	}
	if r.Own && r.PID == 0 {
		r.line(r.Paint(page.Dim, "Chips include the memory of all users; only your own processes are listed."))
	}
}

// traced is how long processes were traced, in ns.
func (r *report) traced() (ns uint64, ok bool) {
	first := page.FirstNs(r.snap, r.Live)
	return r.snap.TimeNs - min(first, r.snap.TimeNs), first > 0
}

// warnLost warns if figures may be wrong.
func (r *report) warnLost() {
	for _, text := range r.doubts() {
		for i, line := range page.Wrap(text, r.width-3) {
			mark := r.Pick("⚠  ", "!! ")
			if i > 0 {
				mark = "   "
			}
			r.line(r.Paint(page.BoldRed, mark+line))
		}
	}
}

func (r *report) doubts() []string {
	return page.Doubts(r.snap.Losses(false, nil), "totals may be too low")
}

// devices writes a table for each chip; chips with the same table share it.
func (r *report) devices() {
	if len(r.snap.Devices) == 0 {
		r.line()
		if r.snap.Reading || r.snap.LostEvents > 0 {
			r.line("No device memory was seen yet.")
		} else {
			r.line("No device memory was seen: no traced program opened a device.")
		}
		return
	}
	type chip struct {
		id          int
		table, name string
	}
	var chips []chip
	for i := range r.snap.Devices {
		d := &r.snap.Devices[i]
		chips = append(chips, chip{d.ID, r.deviceTable(d), r.DeviceName(d)})
	}
	for _, group := range page.Alike(chips, func(a, b chip) bool { return a.table == b.table && a.name == b.name }) {
		var ids []int
		for _, c := range group {
			ids = append(ids, c.id)
		}
		r.line()
		r.line(r.Paint(page.Bold, page.EachChip(ids)), r.Paint(page.Dim, group[0].name))
		r.WriteString(group[0].table)
	}
}

// A row is one line of a chip's table. Bar and percent are of the peak or, for running
// processes, of the present: each stands beside its figure.
type row struct {
	label, bar, percent, peak, capacity, end, count string
	style                                           page.Style
}

func (r *report) deviceTable(d *memory.Device) string {
	t := &report{Painter: r.Painter, Options: r.Options, width: r.width, whole: r.whole, columns: r.columns, end: r.end}
	over := "total over all banks" // but for L1, which is per core
	if r.columns.bar == 0 {
		over = "all banks"
	}
	t.row(row{label: over, peak: "peak", capacity: "capacity", end: r.end, count: "buffers", style: page.Dim})
	regions := &d.Regions
	t.region("DRAM", &regions.DRAM)
	if k := &regions.Kernel; k.PeakDRAMBytes > 0 {
		t.row(row{label: "  kernels", peak: page.Bytes(k.PeakDRAMBytes), end: page.Bytes(k.DRAMBytes), style: page.Dim})
	}
	t.l1(d)
	for _, small := range []event.Region{event.L1Small, event.Trace, event.SystemMemory} {
		// A region that is not reserved has no line, and host memory has none until it is
		// used.
		b := regions.Banked(small)
		if b.PeakBytes > 0 || b.CapacityBytes > 0 && small != event.SystemMemory {
			t.region(small.String(), b)
		}
	}
	t.chipProcesses(d)
	return t.String()
}

// row writes the row, with the label in its style.
func (r *report) row(w row) {
	c := &r.columns
	label, bar := page.Left(w.label, labelColumns), ""
	switch {
	case c.bar > 0 && w.bar == "":
		label = page.Left(w.label, labelColumns+1+c.bar)
	case c.bar > 0:
		bar = " " + w.bar
	}
	// a figure without a column is left out
	figure := func(st page.Style, s string, n int) string { return r.Paint(st, page.Columns{n}.Line(s)) }
	// of what there is now, nothing is dim
	now := func(s string) page.Style {
		if s == page.Bytes(0) || s == "0" {
			return page.Dim
		}
		return w.style
	}
	peak, peakStyle, end, endStyle := w.peak, w.style, w.end, now(w.end)
	if r.Live {
		peak, peakStyle, end, endStyle = w.end, now(w.end), w.peak, page.Dim
	}
	r.line(" ", r.Paint(w.style, label), bar, figure(w.style, w.percent, c.percent), figure(peakStyle, peak, c.peak),
		figure(page.Dim, w.capacity, c.capacity), figure(endStyle, end, c.end), figure(now(w.count), w.count, c.count))
}

// region writes the row of a region with banks.
func (r *report) region(label string, b *memory.Region) {
	drawn, capacity := b.PeakBytes, b.PeakCapacityBytes
	if r.Live {
		drawn = b.AllocatedBytes
	}
	if r.Live || b.PeakBytes == 0 {
		capacity = b.CapacityBytes
	}
	w := row{
		label: label, percent: page.Percent(drawn, capacity), peak: page.Bytes(b.PeakBytes),
		capacity: "unknown", end: page.Bytes(b.AllocatedBytes), count: fmt.Sprint(b.Buffers),
	}
	if capacity > 0 {
		w.capacity = page.Bytes(capacity)
		w.bar = r.DrawBar(page.Bar{Part: drawn, Whole: capacity, Style: page.Level(drawn, capacity)}, r.columns.bar)
	}
	r.row(w)
}

// l1 writes how the L1 of a core was used at its peak or, for running processes, is used now.
// The rows below the first are its parts, in the order of their addresses.
func (r *report) l1(d *memory.Device) {
	l1, kernel := &d.L1PerCore, &d.Regions.Kernel
	used := l1.Peak.CBBytes + l1.Peak.BufferBytes
	cbs, buffers := l1.Peak.CBBytes, l1.Peak.BufferBytes // what is drawn
	if r.Live {
		cbs, buffers = l1.CBBytes, l1.BufferBytes
	}
	drawn := cbs + buffers
	columns := r.columns.bar
	g := page.NewGap(cbs, buffers, l1.CapacityBytes, columns)
	st := page.Level(drawn, l1.CapacityBytes)
	capacity, bar := "unknown", ""
	if l1.CapacityBytes > 0 {
		capacity, bar = page.KiB(l1.CapacityBytes), r.DrawGap(g, st, st)
	}
	r.row(row{
		label: "L1 per core", bar: bar,
		percent: page.Percent(drawn, l1.CapacityBytes), peak: page.KiB(used), capacity: capacity,
		end: page.KiB(l1.CBBytes + l1.BufferBytes), count: fmt.Sprint(d.Regions.L1.Buffers),
	})
	part := func(label, bar string, drawn, peak, end uint64) {
		r.row(row{
			label: label, bar: bar, percent: page.Percent(drawn, l1.CapacityBytes), peak: page.KiB(peak), end: page.KiB(end), style: page.Dim,
		})
	}
	free := func(used uint64) uint64 { return l1.CapacityBytes - min(used, l1.CapacityBytes) }
	if used > 0 {
		part("  CBs, DFBs", r.Base(g, st)+page.Blank(columns-g.Base), cbs, l1.Peak.CBBytes, l1.CBBytes)
		if l1.CapacityBytes > 0 {
			part("  free", page.Blank(g.Base)+r.Trough(g.Free)+page.Blank(g.Top), free(drawn), free(used), l1.FreeBytes)
		}
		part("  buffers", page.Blank(columns-g.Top)+r.Top(g, st), buffers, l1.Peak.BufferBytes, l1.BufferBytes)
	}
	// The ring with the kernels' text lies below the banks: it takes nothing of
	// their capacity.
	if kernel.PeakBytesPerCore > 0 {
		r.row(row{
			label: "Kernel ring", peak: page.KiB(kernel.PeakBytesPerCore),
			end: page.KiB(kernel.MaxBytesPerCore), bar: r.Paint(page.Dim, page.Left(page.Truncate("outside the banks", columns, ""), columns)),
		})
	}
}
