package tracer

// This file counts losses by process and cause.

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// lossCount is how many events were lost, and when the last one was; 0: before the newest record
// that was decoded.
type lossCount struct{ n, timeNs uint64 }

// lose counts a loss of a process; nil: of an unknown one.
func (d *decoder) lose(p *process, cause string, n, timeNs uint64) {
	lost := d.unattributed
	if p != nil {
		lost = p.lost
		d.losing[p] = true
	}
	l := lost[cause]
	lost[cause] = lossCount{l.n + n, max(l.timeNs, timeNs)}
}

// unknown counts a record of a process that could not be decoded.
func (d *decoder) unknown(p *process, cause string) { d.lose(p, cause, 1, 0) }

// kernelLoss is what the kernel side lost of a program.
type kernelLoss struct {
	bpf.KernelLossKey
	bpf.KernelLoss
}

// countLosses adds the losses of the kernel side since the last call.
func (d *decoder) countLosses() {
	err := d.kernel.TakeLosses(func(k bpf.KernelLossKey, l bpf.KernelLoss) {
		d.kernelLosses = append(d.kernelLosses, kernelLoss{k, l})
	})
	if err != nil {
		d.warn(fmt.Sprintf("counting lost events: %v", err))
	}
	// in this order, because a later program of a process ends the one before it
	slices.SortStableFunc(d.kernelLosses, func(a, b kernelLoss) int { return cmp.Compare(a.ExecId, b.ExecId) })
	list := d.kernelLosses
	d.kernelLosses = nil // a process that ends counts them, too
	d.kernelLosses = append(slices.DeleteFunc(list, d.countLoss), d.kernelLosses...)
}

// userLossNs is how long a loss of a user waits until one of their processes is known. If none is, they have ended. Totals
// of others are not in doubt then: the kernel side counts by user after hundreds of processes with losses of their own.
const userLossNs = 1e9

// countLoss counts a loss of the kernel side. It returns false if that has to wait.
func (d *decoder) countLoss(l kernelLoss) bool {
	program := kernel.Program{PID: int(l.Tgid), ExecID: l.ExecId}
	p := d.processes[program.PID]
	switch {
	case l.Tgid == 0 && l.Uid != 0: // each of the user's processes may have lost all of these
		found := false
		for _, p := range d.processes {
			if p.user == int(l.Uid) {
				d.lose(p, kernel.Causes[l.Cause], l.Count, l.TimeNs)
				found = true
			}
		}
		if !found && d.known >= l.TimeNs+userLossNs {
			d.Warn(int(l.Uid), fmt.Sprintf("lost %d events of processes that have ended: %s", l.Count, kernel.Causes[l.Cause]))
			return true
		}
		return found
	case l.Tgid != 0:
		if p != nil && program.ExecID > p.ExecID && (p.ending || d.known < l.TimeNs) {
			return false // the program before it may have more records
		}
		p = cmp.Or(d.follow(program, l.TimeNs, true), p) // nil: the process runs another program already
	}
	if p != nil && l.Cause == uint32(bpf.KernelLostCauseLOST_UNLOADED) {
		d.spaces.Changed(p.PID) // else it would get no stacks any more
	}
	d.lose(p, kernel.Causes[l.Cause], l.Count, l.TimeNs)
	return true
}

// reportLosses reports losses as events.
func (d *decoder) reportLosses() {
	for p := range d.losing {
		d.reportLossesOf(p, 0)
	}
	for cause, c := range d.unattributed {
		d.emit(event.Event{Kind: event.Lost, TimeNs: d.lossNs(c), Count: c.n, Cause: cause})
	}
	clear(d.unattributed)
}

// reportLossesOf reports the losses of a process, and the process before, if needed. endNs is when it
// ended; 0: it has not.
func (d *decoder) reportLossesOf(p *process, endNs uint64) {
	for cause, c := range p.lost {
		timeNs := cmp.Or(endNs, d.lossNs(c))
		d.begin(p, timeNs)
		d.recover(p, cause)
		d.emit(event.Event{Kind: event.Lost, TimeNs: timeNs, PID: p.PID, Count: c.n, Cause: cause})
	}
	clear(p.lost)
	delete(d.losing, p)
}

func (d *decoder) lossNs(c lossCount) uint64 {
	return cmp.Or(c.timeNs, d.newest, host.Now())
}
