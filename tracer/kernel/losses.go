package kernel

import (
	"errors"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
)

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
