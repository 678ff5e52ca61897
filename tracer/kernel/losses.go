package kernel

import (
	"errors"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
)

// Causes are the reasons for losing a record, as users read them.
var Causes = [...]string{
	bpf.KernelLostCauseLOST_RING_FULL:          "ring buffer full",
	bpf.KernelLostCauseLOST_BUFFER_UNREADABLE:  "buffer not readable",
	bpf.KernelLostCauseLOST_DEVICE_UNREADABLE:  "device not readable",
	bpf.KernelLostCauseLOST_PROGRAM_UNREADABLE: "program not readable",
	bpf.KernelLostCauseLOST_MAP_FULL:           "kernel map full",
	bpf.KernelLostCauseLOST_NO_THREAD_STATE:    "no memory for a thread's state",
	bpf.KernelLostCauseLOST_TOO_MANY_OBJECTS:   "too many devices, programs and code objects",
	bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES: "its user has too many processes that use tt-metal",
	bpf.KernelLostCauseLOST_TOO_MANY_CHIPS:     "too many chips in a mesh",
	bpf.KernelLostCauseLOST_UNLOADED:           "ring buffer full",
	bpf.KernelLostCauseLOST_OF_USER:            "its user's processes lost too many events to count for each",
	bpf.KernelLostCauseLOST_CAUSES:             "too many processes lost events to count each",
}

// lossesAtOnce is how many rows one call takes out of the kernel's map of losses.
const lossesAtOnce = 1024

// TakeLosses passes on the losses of processes since the last call. Losses whose process is not
// known have the id 0 and no cause; those of a user who has too many have the user's id.
func (o *Objects) TakeLosses(each func(bpf.KernelLossKey, bpf.KernelLoss)) error {
	var records, unattributed uint64
	if err := o.LostRecords.Get(&records); err != nil {
		return err
	}
	if records == o.taken.records {
		return nil // the usual case
	}
	if err := o.LostUnattributed.Get(&unattributed); err != nil {
		return err
	}
	if n := unattributed - o.taken.unattributed; n > 0 {
		o.taken.unattributed = unattributed
		each(bpf.KernelLossKey{Cause: uint32(bpf.KernelLostCauseLOST_CAUSES)}, bpf.KernelLoss{Count: n})
	}
	keys, values := make([]bpf.KernelLossKey, lossesAtOnce), make([]bpf.KernelLoss, lossesAtOnce)
	var at ebpf.MapBatchCursor
	for {
		n, err := o.Lost.BatchLookupAndDelete(&at, keys, values, nil)
		for i := range n {
			values[i].Count = max(values[i].Count, 1) // a row is there before its first count
			each(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			o.taken.records = records // counted before reading, so that later losses are found the next time
			o.taken.times++
			return o.LostTaken.Set(o.taken.times)
		}
		if err != nil {
			return err
		}
	}
}
