package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// A use is the use of a region on a chip: at the peak or, for running processes, at present.
type use struct {
	chip int
	// shown is drawn, and cbs is the part of circular buffers; other is the present or the peak.
	shown, cbs, other, capacity uint64
	// atLeast is true if the peak may have been higher.
	atLeast bool
}

func (r *report) useOf(region event.Region, d *memory.Device) use {
	of := page.UseOf(d, region)
	u := use{chip: d.ID, shown: of.PeakBytes, other: of.Bytes, capacity: of.CapacityBytes, atLeast: of.AtLeast}
	switch {
	case region == event.L1 && r.Live:
		u.cbs = d.L1PerCore.CBBytes
	case region == event.L1:
		u.cbs = d.L1PerCore.Peak.CBBytes
	case !r.Live && u.shown > 0:
		u.capacity = d.Regions.Banked(region).PeakCapacityBytes
	}
	if r.Live {
		u.shown, u.other = u.other, u.shown
	}
	return u
}

// regions writes the use of each region on the chip where it is highest and, for a peak, its call
// sites.
func (r *report) regions() {
	if len(r.snap.Devices) == 0 {
		r.line()
		late := slices.IndexFunc(r.snap.Processes, func(p memory.Process) bool { return p.AttachedLate })
		switch {
		case r.snap.Reading || r.snap.LostEvents > 0:
			r.line("No device memory was seen yet.")
		case late >= 0:
			r.line(fmt.Sprintf("No device memory was seen since ttmem attached to PID %d.", r.snap.Processes[late].PID))
		default:
			r.line("No device memory was seen: no traced program opened a device.")
		}
		return
	}
	ids := r.snap.DeviceIDs()
	names := make(map[string]bool)
	for i := range r.snap.Devices {
		names[r.DeviceName(&r.snap.Devices[i])] = true
	}
	title, about := "Peak of each region", ", on the chip where it is highest"
	if r.Live {
		title = "In use now"
	}
	uses, same := r.uses()
	if same {
		about = "  " + page.EachChip(ids)
	}
	if len(names) == 1 {
		about += r.DeviceName(&r.snap.Devices[0])
	}
	if len(uses) == 0 {
		r.line()
		r.line("Nothing was allocated", r.Paint(page.Dim, " on "+page.Chips(ids)+"."))
		return
	}
	r.line()
	r.line(r.Paint(page.Bold, title), r.Paint(page.Dim, r.cut(about, r.width-len(title))))
	for _, one := range uses {
		r.atLeast = r.atLeast || one.groups[0][0].atLeast
	}
	for _, one := range uses {
		r.use(one, len(uses), !same)
	}
	if r.Live {
		r.sharing()
	}
}

// A regionUse is the use of a region, by groups of chips with equal use, the fullest first.
type regionUse struct {
	event.Region
	label  string
	format func(uint64) string
	groups [][]use
}

// uses returns the used regions; same is true if all chips use as much.
func (r *report) uses() (list []regionUse, same bool) {
	same = true
	for _, region := range page.Regions {
		var all []use
		used := false
		for i := range r.snap.Devices {
			all = append(all, r.useOf(region, &r.snap.Devices[i]))
			used = used || page.UseOf(&r.snap.Devices[i], region).PeakBytes > 0
		}
		if !used {
			continue
		}
		slices.SortStableFunc(all, func(a, b use) int { return cmp.Compare(b.shown, a.shown) })
		groups := page.Alike(all, func(a, b use) bool { a.chip = b.chip; return a == b })
		same = same && len(groups) == 1
		label, format := page.RegionTitle(region)
		list = append(list, regionUse{region, label, format, groups})
	}
	return list, same
}

const atLeast = "at least "

// use writes the use of one of several regions: a bar for the fullest chips, and a line for the others.
func (r *report) use(of regionUse, regions int, chips bool) {
	u := of.groups[0][0]
	figures := of.format(u.shown)
	if u.capacity > 0 {
		figures += " of " + of.format(u.capacity)
	}
	if u.atLeast && !r.Live {
		figures = atLeast + figures
	}
	other := ""
	switch {
	case r.Live:
		other = ", peak " + of.format(u.other)
		if u.atLeast {
			other = ", peak at least " + of.format(u.other)
		}
	case r.running:
		other = ", " + of.format(u.other) + " " + r.end
	}
	const labelColumns, percentColumns = 14, 6
	figureColumns := 26
	if r.atLeast {
		figureColumns += len(atLeast)
	}
	line := " " + page.Left(of.label, labelColumns)
	if columns := min(48, r.width-1-labelColumns-percentColumns-figureColumns-r.otherColumns); columns >= 8 {
		line += r.bar(of.Region, u, columns)
	}
	line += page.Right(page.Percent(u.shown, u.capacity), percentColumns-1) + "  "
	if !r.whole && page.Width(line+figures+other) > r.width {
		other = ""
	}
	r.line(line, r.Paint(page.Bold, figures), r.Paint(page.Dim, other))
	if chips {
		r.chips(of)
	}
	if !r.Live {
		r.peakSources(of, u, regions)
	}
}

// bar draws a use: buffers lie at the top of L1, and circular buffers at its bottom.
func (r *report) bar(region event.Region, u use, columns int) string {
	level := page.Level(u.shown, u.capacity)
	switch {
	case u.capacity == 0:
		return page.Blank(columns)
	case region == event.L1:
		return r.DrawGap(page.NewGap(u.cbs, u.shown-u.cbs, u.capacity, columns), level, level)
	}
	return r.DrawBar(page.Bar{Part: u.shown, Whole: u.capacity, Style: level}, columns)
}

// chips writes the chips of a use, and the use of the others.
func (r *report) chips(of regionUse) {
	room, others, text := shownChips*(r.width-5), of.groups[1:], ""
	switch len(others) {
	case 0:
	case 1:
		figure := " " + of.format(others[0][0].shown)
		room = (room - page.Width(figure) - 2) / 2
		text = "; " + r.eachChip(others[0], room) + figure
	default:
		text = "; others "
		if low := others[len(others)-1][0].shown; low != others[0][0].shown {
			text += of.format(low) + " to "
		}
		text += of.format(others[0][0].shown)
		room -= page.Width(text)
	}
	text = r.eachChip(of.groups[0], room) + text
	for i, line := range page.Wrap(text, r.width-5) {
		r.line(page.Blank(3+2*min(i, 1)), r.Paint(page.Dim, line))
	}
}

// eachChip names the chips of a group, or the first of them and their number if there is no room.
func (r *report) eachChip(group []use, columns int) string {
	ids := page.Each(group, func(u use) int { return u.chip })
	text := page.EachChip(ids)
	if r.whole || page.Width(text) <= columns {
		return text
	}
	rest := fmt.Sprintf(", %s (each of %d)", r.Pick("…", "..."), len(ids))
	text = page.Chips(ids)
	text = text[:max(0, min(len(text), columns-page.Width(rest)))]
	if end := strings.LastIndexByte(text, ','); end > 0 {
		text = text[:end]
	}
	return text + rest
}

// peakSources writes the call sites of the peak of a region of a chip, one of several regions.
func (r *report) peakSources(of regionUse, u use, regions int) {
	at := slices.IndexFunc(r.peaks, func(p memory.RegionPeak) bool {
		return p.Device == u.chip && p.Region == of.Region && p.Bytes == u.shown
	})
	if at < 0 {
		r.line("   ", r.Paint(page.Dim, "before this recording: its call sites are not known"))
		return
	}
	made := r.sourcesOf(at)
	if others := r.peaks[at].OthersBytes; others > 0 {
		other := table.Named(page.OtherUsers, memory.Amount{Bytes: others})
		made.AddAs(other, other.Key, other.Look)
	}
	list := made.Rows(true, nil)
	whole := u.shown
	if len(list) > 0 { // several allocators may have assigned the same memory
		whole = max(whole, list[0].Amounts[0].Bytes)
	}
	r.sources(list, min(shownSites, allSites/regions), whole, of.format)
}

// sourcesOf returns the call sites of a peak.
func (r *report) sourcesOf(peak int) *sources {
	list := newSources()
	for _, part := range r.buffers[peak] {
		list.addOwned(part)
	}
	for _, one := range r.programs[peak] {
		list.Add(one, one.Layout)
	}
	return list
}
