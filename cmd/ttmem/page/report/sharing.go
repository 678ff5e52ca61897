package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

const (
	// shownSharers is how many processes of a chip are named.
	shownSharers = 8
	// detailColumns is the indent of the details of a process.
	detailColumns = 9
	// containerDigits is the length of a container's short id.
	containerDigits = 12
)

// sharing is how many processes use the chip now.
func sharing(d *aggregate.Device) int {
	n := len(d.Processes)
	if d.OtherUsers != nil {
		n += d.OtherUsers.Processes
	}
	return n
}

// chipProcesses writes the processes of a chip and what each has of its banks, if there are several
// or if they are another user's.
func (r *report) chipProcesses(d *aggregate.Device) {
	n := sharing(d)
	if n < 2 && d.OtherUsers == nil {
		return
	}
	list := slices.Clone(d.Processes)
	slices.SortStableFunc(list, func(a, b aggregate.DeviceProcess) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
	var items []string
	for i := range list[:min(len(list), shownSharers)] {
		items = append(items, fmt.Sprintf("PID %d %s", list[i].PID, page.Bytes(list[i].Bytes())))
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
	head := fmt.Sprintf(" Shared across %d processes: ", n)
	if len(d.Processes) == 0 {
		head = " Not used by you: "
	}
	r.items(head, 3, page.Dim, items)
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

// details say where a process runs.
func (r *report) details(p *aggregate.Process) []string {
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
	return list
}
