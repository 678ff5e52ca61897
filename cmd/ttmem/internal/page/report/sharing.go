package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

const (
	// shownSharers is the maximum number of processes of a chip that are named.
	shownSharers = 8
	// detailColumns is the indent of the details of a process.
	detailColumns = 9
	// containerDigits is the length of a container's short id.
	containerDigits = 12
)

// sharing writes the processes of each chip and their use of its banks, if there are several or
// if they belong to another user. Chips that are shared in the same way are one.
func (r *report) sharing() {
	type chip struct {
		id    int
		users string
		items []string
	}
	var chips []chip
	for i := range r.snap.Devices {
		d := &r.snap.Devices[i]
		if items := sharers(d, r.users); len(items) > 1 || d.OtherUsers != nil {
			chips = append(chips, chip{d.ID, strings.Join(items, ", "), items})
		}
	}
	groups := page.Alike(chips, func(a, b chip) bool { return a.users == b.users })
	for _, group := range groups[:min(len(groups), shownChips)] {
		ids := page.Each(group, func(c chip) int { return c.id })
		r.items(" "+page.EachChip(ids)+": ", 3, page.Dim, group[0].items)
	}
	if hidden := len(groups) - shownChips; hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more groups of chips", hidden)))
	}
}

// sharers are the processes of a chip.
func sharers(d *memory.Device, users page.Users) (items []string) {
	list := slices.Clone(d.Processes)
	slices.SortStableFunc(list, func(a, b memory.DeviceProcess) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
	for i := range list[:min(len(list), shownSharers)] {
		items = append(items, users.PID(list[i].PID)+" "+page.Bytes(list[i].Bytes()))
	}
	if hidden := list[min(len(list), shownSharers):]; len(hidden) > 0 {
		var bytes uint64
		for i := range hidden {
			bytes += hidden[i].Bytes()
		}
		items = append(items, fmt.Sprintf("%d more %s", len(hidden), page.Bytes(bytes)))
	}
	if o := d.OtherUsers; o != nil {
		items = append(items, fmt.Sprintf("other users (%d) %s", o.Processes, page.Bytes(o.AllocatedBytes)))
	}
	return items
}

// items writes a list after a head. Further lines are indented, and an item is never
// broken.
func (r *report) items(head string, indent int, st page.Style, items []string) {
	line := head
	for i, item := range items {
		if i+1 < len(items) {
			item += ","
		}
		blank := min(i, 1)
		if page.Width(line)+blank+page.Width(item) > r.width && page.Width(line) > indent {
			r.line(r.Paint(st, line))
			line, blank = page.Blank(indent), 0
		}
		line += page.Blank(blank)
		line += item
	}
	if len(items) > 0 {
		r.line(r.Paint(st, line))
	}
}

// details returns where a process runs, and its memory when it ended without closing its device.
func (r *report) details(p *memory.Process) []string {
	var list []string
	if p.Container != "" {
		id := []rune(page.Clean(p.Container))
		text := "container " + string(id[:min(len(id), containerDigits)])
		if p.ContainerPID != 0 {
			text = fmt.Sprintf("PID %d in %s", p.ContainerPID, text)
		}
		list = append(list, text)
	}
	if p.Pod != "" {
		list = append(list, "pod "+page.Clean(p.Pod))
	}
	var had []string
	for _, l := range p.Unfreed {
		if l.Reason != event.ReasonDeviceClose.String() {
			had = append(had, fmt.Sprintf("%s of %s", page.Bytes(l.AllocatedBytes), l.Region))
		}
	}
	if len(had) > 0 {
		list = append(list, "had "+strings.Join(had, ", ")+" when it ended")
	}
	return list
}
