package main

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
)

const (
	// shownSharers is how many processes are named that share a chip.
	shownSharers = 8
	// detailColumns is how far what is told of a process besides is indented.
	detailColumns = 9
	// containerDigits is how much of a container's id people use.
	containerDigits = 12
)

// sharing is how many processes use the chip now.
func sharing(d *aggregate.Device) int {
	n := len(d.Sharers)
	if d.OtherUsers != nil {
		n += d.OtherUsers.Processes
	}
	return n
}

// sharers writes who shares the chip, where more than one does, with what each has
// of its banks.
func (r *report) sharers(d *aggregate.Device) {
	n := sharing(d)
	if n < 2 {
		return
	}
	list := slices.Clone(d.Sharers)
	slices.SortStableFunc(list, func(a, b aggregate.Sharer) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
	var items []string
	for i := range list[:min(len(list), shownSharers)] {
		items = append(items, fmt.Sprintf("PID %d %s", list[i].PID, formatBytes(list[i].Bytes())))
	}
	if hidden := list[min(len(list), shownSharers):]; len(hidden) > 0 {
		var bytes uint64
		for i := range hidden {
			bytes += hidden[i].Bytes()
		}
		items = append(items, fmt.Sprintf("%d more %s", len(hidden), formatBytes(bytes)))
	}
	if o := d.OtherUsers; o != nil {
		items = append(items, fmt.Sprintf("other users (%d) %s", o.Processes, formatBytes(o.AllocatedBytes)))
	}
	r.items(1, fmt.Sprintf("Shared by %d processes: ", n), items)
}

// items writes a list in dim lines. An item stays in one line.
func (r *report) items(indent int, title string, items []string) {
	line := title
	for i, item := range items {
		if i+1 < len(items) {
			item += ","
		}
		if i > 0 && indent+width(line)+1+width(item) > r.width {
			r.line(left("", indent), r.paint(dim, line))
			line = " "
		}
		if i > 0 {
			line += " "
		}
		line += item
	}
	if len(items) > 0 {
		r.line(left("", indent), r.paint(dim, line))
	}
}

// details is what is told of a process besides its figures: with how many others it
// shares its chips, and where it runs.
func (r *report) details(p *aggregate.Process) []string {
	var list []string
	if p.Exit == nil {
		list = r.shared(p)
	}
	if p.Container != "" {
		id := []rune(plain(p.Container))
		text := "container " + string(id[:min(len(id), containerDigits)])
		if p.ContainerPID != 0 {
			text = fmt.Sprintf("PID %d in %s", p.ContainerPID, text)
		}
		list = append(list, text)
	}
	if p.Pod != "" {
		list = append(list, "pod "+plain(p.Pod))
	}
	return list
}

// shared tells of the chips that the process shares, those together that as many
// processes share.
func (r *report) shared(p *aggregate.Process) []string {
	chips := make(map[int][]int)
	var numbers []int
	for i := range r.snap.Devices {
		d := &r.snap.Devices[i]
		uses := slices.ContainsFunc(d.Sharers, func(s aggregate.Sharer) bool { return s.PID == p.PID })
		n := sharing(d)
		if !uses || n < 2 {
			continue
		}
		if chips[n] == nil {
			numbers = append(numbers, n)
		}
		chips[n] = append(chips[n], d.ID)
	}
	var list []string
	for _, n := range numbers {
		list = append(list, fmt.Sprintf("%s shared across %d processes", formatIDs(chips[n]), n))
	}
	return list
}
