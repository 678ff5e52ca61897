package tracer

// This file counts losses by process and cause.

import (
	"cmp"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// lostCauses are the reasons for losing a record, as users read them.
var lostCauses = [...]string{
	bpf.KernelLostCauseLOST_RING_FULL:          "ring buffer full",
	bpf.KernelLostCauseLOST_BUFFER_UNREADABLE:  "buffer not readable",
	bpf.KernelLostCauseLOST_DEVICE_UNREADABLE:  "device not readable",
	bpf.KernelLostCauseLOST_PROGRAM_UNREADABLE: "program not readable",
	bpf.KernelLostCauseLOST_MAP_FULL:           "kernel map full",
	bpf.KernelLostCauseLOST_NO_THREAD_STATE:    "no memory for a thread's state",
	bpf.KernelLostCauseLOST_TOO_MANY_OBJECTS:   "too many devices, programs and code objects",
	bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES: tooManyProcesses,
	bpf.KernelLostCauseLOST_TOO_MANY_CHIPS:     "too many chips in a mesh",
	bpf.KernelLostCauseLOST_UNLOADED:           "ring buffer full",
	bpf.KernelLostCauseLOST_OF_USER:            "its user's processes lost too many events to count for each",
	bpf.KernelLostCauseLOST_CAUSES:             "too many processes lost events to count each",
}

// unknownType is a cause that the decoder gives in several places.
const unknownType = "buffer of an unknown type"

// ofBuffers are causes of losses that concern only buffers and devices.
var ofBuffers = []string{
	lostCauses[bpf.KernelLostCauseLOST_BUFFER_UNREADABLE], lostCauses[bpf.KernelLostCauseLOST_DEVICE_UNREADABLE],
	"device not known", "allocator not known", "shards not seen",
}

// A loss is why events of a process were lost; pid is 0 if the process is not known.
type loss struct {
	pid   int
	cause string
}

// lossCount is how many events were lost, and when the last one was; 0: before the newest record
// that was decoded.
type lossCount struct{ n, timeNs uint64 }

// lose counts a loss.
func (d *decoder) lose(pid int, cause string, n, timeNs uint64) {
	l := d.lost[loss{pid, cause}]
	d.lost[loss{pid, cause}] = lossCount{l.n + n, max(l.timeNs, timeNs)}
}

// unknown counts a record of a process that could not be decoded.
func (d *decoder) unknown(pid int, cause string) { d.lose(pid, cause, 1, 0) }

// countLosses adds the losses of the kernel side since the last call.
func (d *decoder) countLosses() {
	d.host.takeLosses(func(k bpf.KernelLossKey, l bpf.KernelLoss) {
		pids := []int{int(k.Tgid)}
		if k.Tgid == 0 && k.Uid != 0 { // each of the user's processes may have lost all of these
			if of := d.processesOf(int(k.Uid)); len(of) > 0 {
				pids = of
			}
		}
		for _, pid := range pids {
			if k.Cause == uint32(bpf.KernelLostCauseLOST_UNLOADED) {
				d.spaces.Changed(pid) // else it would get no stacks any more
			}
			d.lose(pid, lostCauses[k.Cause], l.Count, l.TimeNs)
		}
	})
}

func (d *decoder) processesOf(user int) (pids []int) {
	for pid, p := range d.processes {
		if p.user == user {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reportLosses reports losses as events.
func (d *decoder) reportLosses() {
	for l, c := range d.lost {
		d.reportLoss(l, c, max(cmp.Or(c.timeNs, d.newest, host.Now()), d.queue.released))
	}
	clear(d.lost)
}

// reportLossesOf reports the losses of a process that ends. Later losses with its id belong to
// another process, or to the program that it executed.
func (d *decoder) reportLossesOf(end event.Event) {
	for l, c := range d.lost {
		if l.pid == end.PID && c.timeNs <= end.TimeNs {
			d.reportLoss(l, c, end.TimeNs)
			delete(d.lost, l)
		}
	}
}

// reportLoss reports the process, if needed, and then its loss.
func (d *decoder) reportLoss(l loss, c lossCount, timeNs uint64) {
	e := event.Event{Kind: event.Lost, TimeNs: timeNs, PID: l.pid, Count: c.n, Cause: l.cause}
	if l.pid != 0 {
		start := event.Event{TimeNs: timeNs, PID: l.pid, TID: l.pid}
		d.recover(l, d.start(&start, nil))
	}
	d.emit(e)
}
