package report

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
)

const (
	// processColumns is the width of a process's id.
	processColumns = 7
	// bytesColumns is that of a number of bytes.
	bytesColumns = 10
	// leastCommand is the least useful width of a command.
	leastCommand = 20
)

// processes writes a line for each process. Regions and chips are not added up: each figure is
// from the chip where it is highest.
func (r *report) processes() {
	list := slices.Clone(r.snap.Processes)
	if len(list) == 0 {
		return
	}
	if len(list) > shownProcesses {
		slices.SortStableFunc(list, func(a, b memory.Process) int {
			return cmp.Or(memory.CompareBools(a.Exit == nil, b.Exit == nil), cmp.Compare(highest(&b), highest(&a)))
		})
	}
	// If there is no room for both figures, the first one stays: the present one of running
	// processes, else the peak. That leaves room for the command.
	inOrder := func(peak, present string) [2]string {
		if r.Live {
			return [2]string{present, peak}
		}
		return [2]string{peak, present}
	}
	columns := page.Columns{1 + processColumns, 0, -11, 2 + bytesColumns, 2 + bytesColumns, 14, 2 + bytesColumns}
	if len(r.users) > 0 {
		columns[1] = page.UserColumns
	}
	if r.width < columns.Width() || !slices.ContainsFunc(list, func(p memory.Process) bool { return p.Exit == nil }) {
		columns[4], columns[6] = 0, 0
	}
	figures := func(pid, user, state string, dram, l1 [2]string) string {
		return columns.Line(pid, r.Cut(user, page.UserColumns-1), "  "+state, dram[0], dram[1], l1[0], l1[1])
	}
	about := ""
	if slices.ContainsFunc(list, func(p memory.Process) bool { return len(p.Devices) > 1 }) {
		about = ", each figure of the chip where it is highest"
	}
	r.line()
	r.line(r.Paint(page.Bold, "Processes"), r.Paint(page.Dim, r.cut(about, r.width-len("Processes"))))
	names := inOrder("peak", r.end)
	head := figures("PID", "USER", "state", [2]string{"DRAM " + names[0], names[1]}, [2]string{"L1/core " + names[0], names[1]})
	// A command without room beside the figures has its own line.
	room := r.width - page.Width(head) - 2
	beside := r.whole || room >= leastCommand
	if beside {
		head += "  command"
	}
	r.line(r.Paint(page.Dim, head))
	for i := range list[:min(len(list), shownProcesses)] {
		p := &list[i]
		var dramPeak, dram, l1Peak, l1 uint64
		for j := range p.Devices {
			d := &p.Devices[j]
			dramPeak, dram = max(dramPeak, d.Regions.DRAM.PeakBytes), max(dram, d.Regions.DRAM.AllocatedBytes)
			l1Peak = max(l1Peak, d.L1PerCore.Peak.BufferBytes+d.L1PerCore.Peak.CBBytes)
			l1 = max(l1, d.L1PerCore.BufferBytes+d.L1PerCore.CBBytes)
		}
		line := figures(fmt.Sprint(p.PID), r.names.Of(p), page.ProcessState(p),
			inOrder(page.Bytes(dramPeak), page.Bytes(dram)), inOrder(page.KiB(l1Peak), page.KiB(l1)))
		name := page.ProcessName(p)
		if beside {
			r.line(line, "  ", r.cut(cmp.Or(name, page.UnknownCommandLine), room))
		} else {
			r.line(line)
			if name != "" {
				r.line(page.Blank(detailColumns), r.cut(name, r.width-detailColumns))
			}
		}
		r.items(page.Blank(detailColumns), detailColumns, page.Dim, r.details(p))
	}
	if hidden := max(0, len(list)-shownProcesses) + page.ForgottenProcesses(r.snap); hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more", hidden)))
	}
	r.hostMemory(list[:min(len(list), shownProcesses)])
}

// hostMemory writes the memory of processes on the host, as far as it was sampled.
func (r *report) hostMemory(list []memory.Process) {
	var items []string
	for i := range list {
		if h := list[i].Host; h != nil {
			text := page.HostMemory(*h)
			if len(list) > 1 {
				text = fmt.Sprintf("PID %d %s", list[i].PID, text)
			}
			items = append(items, text)
		}
	}
	r.items(" Host memory: ", 3, page.Dim, items)
}

// highest is the highest peak of a region of a process.
func highest(p *memory.Process) (bytes uint64) {
	for i := range p.Devices {
		for _, g := range page.Regions {
			bytes = max(bytes, page.UseOf(&p.Devices[i], g).PeakBytes)
		}
	}
	return bytes
}
