package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
)

// shownProcesses and shownFailures are how many of each a report shows.
const (
	shownProcesses = 20
	shownFailures  = 3
	// processColumns is the width of a process's id.
	processColumns = 7
	// leastCommand is the least useful width of a command.
	leastCommand = 20
)

// processes writes a line for each process. Regions and chips are not added up: each figure
// is of the chip where it is highest.
func (r *report) processes() {
	list := r.snap.Processes
	if len(list) == 0 {
		return
	}
	// The first of the two figures stays if there is no room for both: the present one of
	// running processes, else the peak. Without the other there is room for the command.
	inOrder := func(peak, present string) [2]string {
		if r.Live {
			return [2]string{present, peak}
		}
		return [2]string{peak, present}
	}
	columns := page.Columns{1 + processColumns, -11, 2 + bytesColumns, 2 + bytesColumns, 14, 2 + bytesColumns}
	if r.width < columns.Width() || !slices.ContainsFunc(list, func(p memory.Process) bool { return p.Exit == nil }) {
		columns[3], columns[5] = 0, 0
	}
	figures := func(pid, state string, dram, l1 [2]string) string {
		return columns.Line(pid, "  "+state, dram[0], dram[1], l1[0], l1[1])
	}
	about := ""
	if slices.ContainsFunc(list, func(p memory.Process) bool { return len(p.Devices) > 1 }) {
		about = ", each figure of the chip where it is highest"
	}
	r.line()
	r.line(r.Paint(page.Bold, "Processes"), r.Paint(page.Dim, r.cut(about, r.width-len("Processes"))))
	names := inOrder("peak", r.end)
	head := figures("PID", "state", [2]string{"DRAM " + names[0], names[1]}, [2]string{"L1/core " + names[0], names[1]})
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
		line := figures(fmt.Sprint(p.PID), page.ProcessState(p),
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
	if hidden := max(0, len(list)-shownProcesses) + r.forgotten(); hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more", hidden)))
	}
}

func (r *report) forgotten() int { return page.ForgottenProcesses(r.snap) }

// A failing is an allocation that failed, and where.
type failing struct {
	*memory.Failure
	where string
}

// failings are the failures of the snapshot, the newest first. Those of the same reason at the
// same place are one group: a program may try again.
func (r *report) failings() [][]failing {
	var list []failing
	for i := range r.snap.Failures {
		f := &r.snap.Failures[len(r.snap.Failures)-1-i]
		list = append(list, failing{f, page.Place(f.Stack.Frames())})
	}
	return page.Alike(list, func(a, b failing) bool {
		return a.PID == b.PID && a.Region == b.Region && a.Reason == b.Reason && slices.Equal(a.Devices, b.Devices) &&
			a.where == b.where && (a.where != "" || a.Message == b.Message)
	})
}

// failures writes how many allocations failed, and the newest, each place once.
func (r *report) failures() {
	if r.snap.FailureCount == 0 {
		return
	}
	all := r.failings()
	list := all[:min(len(all), shownFailures)]
	title, note := page.Count(r.snap.FailureCount, "failed allocation"), ""
	if len(list) < len(all) || uint64(len(r.snap.Failures)) < r.snap.FailureCount {
		note = fmt.Sprintf(", the newest %d", len(list))
	}
	r.line()
	r.line(r.Paint(page.Bold, title), r.Paint(page.Dim, note))
	for _, group := range slices.Backward(list) {
		f, times := group[0], len(group)
		about := []string{fmt.Sprintf("PID %d", f.PID)}
		at, ok := r.sinceStart(f.Failure)
		switch {
		case times > 1 && ok:
			about = append(about, fmt.Sprintf("%d times, the last after %s", times, at))
		case times > 1:
			about = append(about, fmt.Sprintf("%d times", times))
		case ok:
			about = append(about, "after "+at)
		}
		about = append(about, f.Region)
		if f.Reason != "" {
			about = append(about, strings.ReplaceAll(f.Reason, "_", " "))
		}
		if len(f.Devices) > 0 {
			about = append(about, page.Chips(f.Devices))
		}
		for _, line := range page.Wrap(strings.Join(about, r.Separator()), r.width-2) {
			r.line("  ", r.Paint(page.Yellow, line))
		}
		// The figures that matter stand in the message's first sentence.
		columns := min(r.width, textColumns) - 4
		for _, line := range page.Wrap(r.cut(page.FirstLine(f.Message), 4*columns), columns) {
			r.line("    ", line)
		}
		if f.where != "" {
			for _, line := range page.Wrap("in "+f.where, columns) {
				r.line("    ", line)
			}
		}
	}
}

// sinceStart is the time of the failure since its process was first seen.
func (r *report) sinceStart(f *memory.Failure) (string, bool) {
	for i := range r.snap.Processes {
		p := &r.snap.Processes[i]
		if p.PID == f.PID && p.SinceNs <= f.TimeNs && (p.Exit == nil || f.TimeNs <= p.Exit.TimeNs) {
			at := page.Seconds(f.TimeNs - p.SinceNs)
			if r.UTC {
				at += ", at " + r.Clock.UTC(f.TimeNs) + " UTC"
			}
			return at, true
		}
	}
	return "", false
}
