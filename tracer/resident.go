package tracer

import (
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

const (
	// residentNs is how often the memory of processes on the host is read, and residentFactor how much longer
	// than reading that of all processes takes it is at least.
	residentNs     = 100e6
	residentFactor = 50
	// residentStep is the least change that is reported.
	residentStep = 1 << 20
)

// resident is what was last reported of a process's memory on the host.
type resident struct{ now, most uint64 }

// changed takes a sample, and reports whether it differs enough from what was last reported.
func (r *resident) changed(now, most uint64) bool {
	if max(r.now, now)-min(r.now, now) < residentStep && most-min(r.most, most) < residentStep {
		return false
	}
	*r = resident{now, most}
	return true
}

// readResident has the memory of all processes on the host read in the background, one after the other.
func (d *decoder) readResident(nowNs uint64) {
	if d.resident == nil || nowNs < d.residentNs {
		return
	}
	var list []*process
	for _, p := range d.processes {
		if p.started {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return
	}
	d.residentNs = finished // until these have been read
	read := d.resident
	go func() {
		began := host.Now()
		for _, of := range list {
			if now, most, ok := read(of.PID); ok {
				atNs := host.Now()
				d.inbox.add(result{of, atNs, func(d *decoder) bool {
					d.takeResident(of, atNs, now, most)
					return true
				}})
			}
		}
		took := host.Now() - began
		d.inbox.add(result{report: func(d *decoder) bool {
			d.residentNs = began + max(residentNs, residentFactor*took)
			return true
		}})
	}()
}

// takeResident reports a sample, if it is of the program: another process with its id may have been read.
func (d *decoder) takeResident(p *process, atNs, now, most uint64) {
	if d.kernel.Runs(p.Program) && p.reported.changed(now, most) {
		d.emit(event.Event{Kind: event.HostMemory, TimeNs: atNs, PID: p.PID, TID: p.PID, Comm: p.start.Comm, SizeBytes: now, BytesPerBank: most})
	}
}
