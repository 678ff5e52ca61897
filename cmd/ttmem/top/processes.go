package top

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// A processUse is what a process has live. l1 is for the core where it is highest; static is
// the part of it in circular buffers.
type processUse struct {
	*aggregate.Process
	dram, l1, static, buffers uint64
}

// processColumns are the columns of the table of processes before the names.
var processColumns = []struct {
	name         string
	width, least int
	cell         func(m *model, u *processUse) string
}{
	{"PID", 8, 0, func(_ *model, u *processUse) string { return fmt.Sprint(u.PID) }},
	{"DRAM", 11, 0, func(_ *model, u *processUse) string { return page.Bytes(u.dram) }},
	{"L1 PER CORE", 13, 0, func(_ *model, u *processUse) string { return page.Bytes(u.l1) }},
	{"OF IT CBs", 11, 0, func(_ *model, u *processUse) string { return page.Bytes(u.static) }},
	{"BUFFERS", 9, 90, func(_ *model, u *processUse) string { return formatCount(u.buffers) }},
	{"FOR", 8, 72, func(m *model, u *processUse) string {
		end := m.present.NowNs
		if u.Exit != nil {
			end = u.Exit.TimeNs
		}
		return formatAge(end - min(end, u.SinceNs))
	}},
}

// processUses returns the running processes, largest first, and then those that ended,
// latest first.
func (m *model) processUses() []processUse {
	var list []processUse
	for i := range m.present.Processes {
		p := &m.present.Processes[i]
		u := processUse{Process: p}
		for j := range p.Devices {
			d := &p.Devices[j]
			u.dram += d.Regions.DRAM.AllocatedBytes
			u.l1 = max(u.l1, l1Used(d))
			u.static = max(u.static, d.L1PerCore.CBBytes)
		}
		for _, live := range p.Live {
			u.buffers += live.Buffers
		}
		list = append(list, u)
	}
	slices.SortStableFunc(list, func(a, b processUse) int {
		switch {
		case a.Exit == nil && b.Exit != nil:
			return -1
		case a.Exit != nil && b.Exit == nil:
			return 1
		case a.Exit != nil:
			return cmp.Compare(b.Exit.TimeNs, a.Exit.TimeNs)
		}
		return cmp.Compare(b.dram+b.l1, a.dram+a.l1)
	})
	return list
}

// processLines returns the table of processes.
func (m *model) processLines() []string {
	list := m.processUses()
	room := 3
	if m.height >= 30 {
		room = max(3, m.height/6)
	}
	if m.once {
		room = len(list)
	}
	if len(list) > room {
		room-- // for the line that says so
	}
	title := ""
	for _, c := range processColumns {
		if m.width >= c.least {
			title += m.right(c.name, c.width)
		}
	}
	lines := []string{m.Paint(head, m.left(title+"  PROCESS", m.width))}
	for i := range list[:min(room, len(list))] {
		u := &list[i]
		if i > 0 && u.Exit != nil && !m.once && m.height < 30 {
			break // the table needs the room more than processes that ended
		}
		lines = append(lines, m.processLine(u))
	}
	if hidden := len(list) - (len(lines) - 1); hidden > 0 && len(list) > room {
		lines = append(lines, m.Paint(dim, fmt.Sprintf("%8s %d more: p selects the next", "", hidden)))
	}
	return lines
}

// processLine shows how a process ended before its name, which may be cut.
func (m *model) processLine(u *processUse) string {
	line, st := "", noStyle
	for _, c := range processColumns {
		if m.width >= c.least {
			line += m.right(c.cell(m, u), c.width)
		}
	}
	name := m.clean(page.ProcessName(u.Process))
	if u.Exit != nil {
		st, name = dim, "("+page.ProcessState(u.Process)+") "+name
	}
	if u.PID == m.filter.pid {
		st = bold
	}
	return m.Paint(st, m.Cut(line+"  "+name, m.width))
}
