package tracer

import (
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/libraries"
)

// maxNames bounds how many thread names are kept for a process.
const maxNames = 1 << 14

// start reports a process before its first event, and names the event's thread.
func (d *decoder) start(e *event.Event, lib *libraries.Library) *traced {
	p := d.process(e.PID)
	name, ok := p.names[e.TID]
	if !ok {
		if len(p.names) >= maxNames {
			clear(p.names) // threads come and go
		}
		if name = host.ThreadName(e.PID, e.TID); name == "" {
			name = d.host.startOf(e.PID).Comm // the thread has ended
		}
		p.names[e.TID] = name
	}
	e.Comm = name
	if p.started {
		return p
	}
	p.started = true
	start := d.host.startOf(e.PID)
	start.TimeNs, p.sinceNs, p.user = e.TimeNs, e.TimeNs, start.UID
	if user := host.RealUser(e.PID); user >= 0 {
		p.user = user
	}
	p.names[e.PID] = start.Comm
	start.AttachedLate = e.AttachedLate || d.host.lateOf(e.PID) != nil
	if lib != nil {
		start.Library, start.Release = lib.Path, lib.Release
	}
	d.emit(start)
	if pid := e.PID; start.Command == "" { // a copy: e need not be on the heap
		d.reads.readCommand(pid, e.TimeNs, func(command string) { d.setCommand(pid, p, command) })
	}
	return p
}

// setCommand sets the command line in the ProcessStart of a process, unless that event was
// released already or the process runs another program by now.
func (d *decoder) setCommand(pid int, p *traced, command string) {
	if d.processes[pid] != p {
		return
	}
	for i := len(d.queue.events) - 1; i >= 0; i-- {
		if e := &d.queue.events[i]; e.Kind == event.ProcessStart && e.PID == pid {
			e.Command = command
			return
		}
	}
}

// processEnd ends a process, or the program that it ran before an exec.
func (d *decoder) processEnd(e event.Event, r *bpf.KernelProcessRecord) {
	e.ExitStatus = int(r.ExitCode)
	execed := r.H.Kind == bpf.RecordExec
	if execed {
		e.ExitStatus = event.UnknownStatus // the process goes on with another program
	}
	d.endProcess(e, execed)
}

// endProcess forgets a process.
func (d *decoder) endProcess(e event.Event, execed bool) {
	d.countLosses()
	d.endReads(e.PID, programGone)
	d.reportLossesOf(e)
	p := d.processes[e.PID]
	if p != nil {
		p.endAllThrown(d)
		p.share.Hold(d.room, p.share.User(), 0)
	}
	delete(d.processes, e.PID)
	d.giveUp(e.PID)
	d.endSearches(e.PID, p)
	d.host.processEnded(e.PID, e.TimeNs, execed, p != nil)
	if p != nil && p.started {
		e.TID, e.Comm = e.PID, p.names[e.PID] // the record's thread is the last one that ended
		e.TimeNs = max(e.TimeNs, p.lateNs)
		e.Kind = event.ProcessExit
		d.emit(e)
	}
}

// sweep ends processes whose record of their end was lost. A process must have ended before the
// previous sweep, so that its record had time to arrive.
func (d *decoder) sweep(timeNs uint64) {
	var ended []int
	for pid := range d.processes {
		if host.Ended(pid) {
			ended = append(ended, pid)
		}
	}
	for _, pid := range ended {
		if slices.Contains(d.ended, pid) {
			d.endProcess(event.Event{TimeNs: timeNs, PID: pid, ExitStatus: event.UnknownStatus}, false)
		}
	}
	d.ended = ended
}
