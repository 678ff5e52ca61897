package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
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
	const stateColumns, l1Columns = 9, 12
	// The first of the two figures stays if there is no room for both: the present one of
	// running processes, else the peak. Without the other there is room for the command.
	first, second := "peak", r.end
	if r.Live {
		first, second = r.end, "peak"
	}
	both := slices.ContainsFunc(list, func(p aggregate.Process) bool { return p.Exit == nil }) &&
		r.width >= 1+processColumns+2+stateColumns+3*(2+bytesColumns)+2+l1Columns
	figures := func(pid, state string, dram, l1 [2]string) string {
		line := " " + page.Right(pid, processColumns) + "  " + page.Left(state, stateColumns) + page.Right(dram[0], 2+bytesColumns)
		if both {
			line += page.Right(dram[1], 2+bytesColumns)
		}
		line += page.Right(l1[0], 2+l1Columns)
		if both {
			line += page.Right(l1[1], 2+bytesColumns)
		}
		return line
	}
	inOrder := func(peak, present string) [2]string {
		if r.Live {
			return [2]string{present, peak}
		}
		return [2]string{peak, present}
	}
	about := ""
	if slices.ContainsFunc(list, func(p aggregate.Process) bool { return len(p.Devices) > 1 }) {
		about = ", each figure of the chip where it is highest"
	}
	r.line()
	r.line(r.Paint(page.Bold, "Processes"), r.Paint(page.Dim, r.cut(about, r.width-len("Processes"))))
	head := figures("PID", "state", [2]string{"DRAM " + first, second}, [2]string{"L1/core " + first, second})
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
		switch {
		case beside:
			r.line(line, "  ", r.cut(cmp.Or(name, page.UnknownCommandLine), room))
		case name == "":
			r.line(line)
		default:
			r.line(line)
			r.line(page.Blank(detailColumns), r.cut(name, r.width-detailColumns))
		}
		r.items(page.Blank(detailColumns), detailColumns, page.Dim, r.details(p))
	}
	if hidden := max(0, len(list)-shownProcesses) + r.forgotten(); hidden > 0 {
		r.line(r.Paint(page.Dim, fmt.Sprintf("  and %d more", hidden)))
	}
}

func (r *report) forgotten() int { return page.ForgottenProcesses(r.snap) }

// A failing is allocations that failed for the same reason at the same place: a program may
// try again.
type failing struct {
	*aggregate.Failure // the newest
	where              string
	times              uint64
}

// failings are the failures of the snapshot, the newest last.
func (r *report) failings() (list []*failing) {
	type key struct {
		pid                            int
		region, reason, devices, where string
	}
	known := make(map[key]*failing)
	for i := range r.snap.Failures {
		f := &r.snap.Failures[i]
		one := &failing{f, page.Place(f.Stack.Frames()), 1}
		k := key{f.PID, f.Region, f.Reason, fmt.Sprint(f.Devices), one.where}
		if k.where == "" {
			k.where = f.Message
		}
		if before := known[k]; before != nil {
			one.times += before.times
			list = slices.DeleteFunc(list, func(l *failing) bool { return l == before })
		}
		known[k] = one
		list = append(list, one)
	}
	return list
}

// failures writes how many allocations failed, and the newest, each place once.
func (r *report) failures() {
	if r.snap.FailureCount == 0 {
		return
	}
	all := r.failings()
	list := all[max(0, len(all)-shownFailures):]
	r.line()
	title := page.Count(r.snap.FailureCount, "failed allocation")
	note := ""
	if len(list) < len(all) || uint64(len(r.snap.Failures)) < r.snap.FailureCount {
		note = fmt.Sprintf(", the newest %d", len(list))
	}
	r.line(r.Paint(page.Bold, title), r.Paint(page.Dim, note))
	for _, f := range list {
		about := []string{fmt.Sprintf("PID %d", f.PID)}
		at, ok := r.sinceStart(f.Failure)
		switch {
		case f.times > 1 && ok:
			about = append(about, fmt.Sprintf("%d times, the last after %s", f.times, at))
		case f.times > 1:
			about = append(about, fmt.Sprintf("%d times", f.times))
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
		for _, line := range page.Wrap("in "+f.where, columns) {
			if f.where != "" {
				r.line("    ", line)
			}
		}
	}
}

// sinceStart is the time of the failure since its process was first seen.
func (r *report) sinceStart(f *aggregate.Failure) (string, bool) {
	for i := range r.snap.Processes {
		p := &r.snap.Processes[i]
		if p.PID == f.PID && p.SinceNs <= f.TimeNs && (p.Exit == nil || f.TimeNs <= p.Exit.TimeNs) {
			return page.Seconds(f.TimeNs - p.SinceNs), true
		}
	}
	return "", false
}
