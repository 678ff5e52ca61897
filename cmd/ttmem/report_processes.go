package main

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// shownProcesses and shownFailures are how many of each a report shows.
const (
	shownProcesses = 20
	shownFailures  = 3
)

// processes writes a line for each process, with its peaks on the chip where
// they were highest.
func (r *report) processes() {
	list := r.snap.Processes
	if len(list) == 0 {
		return
	}
	const pidColumns, stateColumns = 7, 9
	figures := func(pid, state, dram, l1, held string) string {
		return strings.Join([]string{
			"", right(pid, pidColumns), left(" "+state, stateColumns), right(dram, bytesColumns),
			right(l1, bytesColumns), "", right(held, bytesColumns), " ",
		}, " ")
	}
	head := figures("PID", "state", "peak DRAM", "peak L1", "at the end")
	r.line()
	r.line(r.paint(bold, "Processes"))
	r.line(r.paint(dim, head+"command"))
	for i := range list[:min(len(list), shownProcesses)] {
		p := &list[i]
		var dram, l1, held uint64
		for j := range p.Devices {
			d := &p.Devices[j]
			dram = max(dram, d.Regions.DRAM.PeakBytes)
			l1 = max(l1, d.L1PerCore.Peak.BufferBytes+d.L1PerCore.Peak.CBBytes)
			for region := range event.Region(event.BankedRegions) {
				held += d.Regions.Banked(region).AllocatedBytes
			}
		}
		fixed := figures(fmt.Sprint(p.PID), processState(p), formatBytes(dram), formatKiB(l1), formatBytes(held))
		r.line(fixed, truncate(processName(p), r.width-width(fixed), r.pick("…", "~")))
		r.items(detailColumns, "", r.details(p))
	}
	if hidden := max(0, len(list)-shownProcesses) + r.forgotten(); hidden > 0 {
		r.line(r.paint(dim, fmt.Sprintf("  and %d more", hidden)))
	}
}

// forgotten is how many processes ended that the snapshot does not have: it
// keeps the newest.
func (r *report) forgotten() int {
	n := int(r.snap.ExitedProcesses)
	for i := range r.snap.Processes {
		if r.snap.Processes[i].Exit != nil {
			n--
		}
	}
	return n
}

// processName is what a person calls the process.
func processName(p *aggregate.Process) string {
	if name := shortCommand(p.Command); name != "" {
		return name
	}
	return plain(p.Comm)
}

// processState is how the process is or ended.
func processState(p *aggregate.Process) string {
	switch {
	case p.Exit == nil:
		return "running"
	case p.Exit.Status == nil:
		return "ended"
	}
	status := syscall.WaitStatus(*p.Exit.Status)
	if status.Signaled() {
		if name := unix.SignalName(status.Signal()); name != "" {
			return name
		}
		return fmt.Sprintf("signal %d", status.Signal())
	}
	return fmt.Sprintf("exit %d", status.ExitStatus())
}

// failures writes how many requests failed, and the newest.
func (r *report) failures() {
	if r.snap.FailureCount == 0 {
		return
	}
	list := r.snap.Failures[max(0, len(r.snap.Failures)-shownFailures):]
	r.line()
	title := formatCount(r.snap.FailureCount, "failed allocation")
	note := ""
	if uint64(len(list)) < r.snap.FailureCount {
		note = fmt.Sprintf(", the newest %d", len(list))
	}
	r.line(r.paint(bold, title), r.paint(dim, note))
	for i := range list {
		f := &list[i]
		about := []string{fmt.Sprintf("PID %d", f.PID)}
		if at, ok := r.sinceStart(f); ok {
			about = append(about, "at "+at)
		}
		about = append(about, f.Region)
		if f.Reason != "" {
			about = append(about, strings.ReplaceAll(f.Reason, "_", " "))
		}
		if len(f.Devices) > 0 {
			about = append(about, formatIDs(f.Devices))
		}
		r.line("  ", r.paint(yellow, strings.Join(about, r.pick(" · ", " - "))))
		// The figures that matter stand in the message's first sentence.
		for _, line := range wrap(truncate(firstLine(f.Message), 4*(r.width-4), r.pick("…", "...")), r.width-4) {
			r.line("    ", line)
		}
		if where := place(f.Stack.Frames()); where != "" {
			for _, line := range wrap("in "+where, r.width-4) {
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
			return formatSeconds(f.TimeNs - p.SinceNs), true
		}
	}
	return "", false
}
