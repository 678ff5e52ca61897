package top

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
)

// A processUse is the live memory of a process. l1 is for the core where it is highest; program is
// what its largest program needs of a core when it runs.
type processUse struct {
	*memory.Process
	dram, l1, program, buffers uint64
	endNs                      uint64 // 0: running
}

// processColumns are the columns of the table of processes before the names.
var processColumns = []column[*processUse]{
	{"PID", 8, 0, func(_ *model, u *processUse) (string, page.Style) { return fmt.Sprint(u.PID), page.NoStyle }},
	{"USER", page.UserColumns, 0, func(m *model, u *processUse) (string, page.Style) {
		return m.Cut(m.clean(m.users.Of(u.Process)), page.UserColumns-1), page.NoStyle
	}},
	{"DRAM", 11, 0, func(_ *model, u *processUse) (string, page.Style) { return page.Bytes(u.dram), page.NoStyle }},
	{"L1 PER CORE", 13, 0, func(_ *model, u *processUse) (string, page.Style) { return page.KiB(u.l1), page.NoStyle }},
	{"PROGRAM", 11, 0, func(_ *model, u *processUse) (string, page.Style) { return page.KiB(u.program), page.NoStyle }},
	{"HOST", 11, 90, func(_ *model, u *processUse) (string, page.Style) {
		if u.Host == nil {
			return "", page.NoStyle
		}
		return page.Bytes(u.Host.ResidentBytes), page.NoStyle
	}},
	{"BUFFERS", 9, 90, func(_ *model, u *processUse) (string, page.Style) { return formatCount(u.buffers), page.NoStyle }},
	{"FOR", 8, 90, func(m *model, u *processUse) (string, page.Style) {
		end := cmp.Or(u.endNs, m.present.NowNs)
		return formatAge(end - min(end, u.SinceNs)), page.NoStyle
	}},
}

// processUses returns the running processes, largest first, and then those that ended,
// latest first.
func (m *model) processUses() (list []processUse) {
	for i := range m.present.Processes {
		u := processUse{Process: &m.present.Processes[i]}
		for j := range u.Devices {
			d := &u.Devices[j]
			u.dram += d.Regions.DRAM.AllocatedBytes
			u.l1 = max(u.l1, l1(d).used)
			u.program = max(u.program, d.L1PerCore.LargestProgramBytes)
		}
		for _, live := range u.Live {
			u.buffers += live.Buffers
		}
		if u.Exit != nil {
			u.endNs = u.Exit.TimeNs
		}
		list = append(list, u)
	}
	slices.SortStableFunc(list, func(a, b processUse) int {
		return cmp.Or(memory.CompareBools(a.Exit == nil, b.Exit == nil), cmp.Compare(b.endNs, a.endNs), cmp.Compare(b.dram+b.l1, a.dram+a.l1))
	})
	return list
}

// processLines returns the table of processes, from line y on. A click selects one.
func (m *model) processLines(y int) []string {
	list := m.processUses()
	room := max(3, m.height/6)
	if !m.roomy() {
		room = 3
	}
	if len(list) > room {
		room-- // for the line that says so
	}
	host := slices.ContainsFunc(list, func(u processUse) bool { return u.Host != nil })
	columns := slices.DeleteFunc(slices.Clone(processColumns), func(c column[*processUse]) bool { return m.width < c.least || c.name == "HOST" && !host })
	lines := []string{m.Paint(page.OnGreen, m.left(heads(m.painter, columns)+"  PROCESS", m.width))}
	for i := range list[:min(room, len(list))] {
		u := &list[i]
		if i > 0 && u.Exit != nil && !m.roomy() {
			break // the table needs the room more than processes that ended
		}
		name, st := m.clean(page.ProcessName(u.Process)), page.NoStyle
		if u.Exit != nil { // how it ended comes before the name, which may be cut
			st, name = page.Dim, "("+page.ProcessState(u.Process)+") "+name
		}
		if u.PID == m.filter.pid {
			st = page.Bold
		}
		m.zone(y+len(lines), 0, m.width, func() request { return m.clickProcess(u.PID) })
		lines = append(lines, m.Paint(st, m.Cut(cells(m, m.painter, columns, u)+"  "+name, m.width)))
	}
	if hidden := len(list) - (len(lines) - 1); hidden > 0 && len(list) > room {
		more := fmt.Sprintf("%8s %d more", "", hidden)
		if !m.once {
			more += ": p selects the next"
		}
		lines = append(lines, m.Paint(page.Dim, more))
	}
	return lines
}
