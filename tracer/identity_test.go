package tracer

import (
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

// TestRecordsOfAnotherProgramEndAProcess: the exec_id of each record says which program it is of, so
// that records of ends may be lost, and process ids be used again.
func TestRecordsOfAnotherProgramEndAProcess(t *testing.T) {
	header := func(ns uint64, pid uint32, exec uint64, kind uint8) bpf.KernelHeader {
		return bpf.KernelHeader{TimeNs: ns, Tgid: pid, Tid: pid, ExecId: exec, Kind: kind, Count: 1}
	}
	opens := func(ns uint64, pid uint32, exec uint64) []byte {
		r := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000, H: header(ns, pid, exec, bpf.RecordDevice)}
		r.Banks[event.DRAM] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 1, AlignmentBytes: 16}
		return raw(&r)
	}
	allocates := func(ns uint64, pid uint32, exec uint64) []byte {
		r := *bufferRecord(ns, 0x3000, 1)
		r.H = header(ns, pid, exec, bpf.RecordAlloc)
		return raw(&r)
	}
	frees := func(ns uint64, pid uint32, exec uint64) []byte {
		return raw(&bpf.KernelFreeRecord{H: header(ns, pid, exec, bpf.RecordFree), Object: 0x3000})
	}
	ends := func(ns uint64, pid uint32, exec uint64, kind uint8) []byte {
		return raw(&bpf.KernelProcessRecord{H: header(ns, pid, exec, kind), ExitCode: 3 << 8})
	}
	type ended struct {
		ns     uint64
		pid    int
		status int
	}
	const unknown = event.UnknownStatus
	for name, c := range map[string]struct {
		records [][]byte
		ends    []ended
		live    map[int]int // buffers by process
	}{
		"an exec":      {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), ends(3, 7, 2, bpf.RecordExec), opens(4, 7, 2)}, []ended{{3, 7, unknown}}, map[int]int{7: 0}},
		"a lost exec":  {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), opens(4, 7, 2), allocates(5, 7, 2)}, []ended{{4, 7, unknown}}, map[int]int{7: 1}},
		"an exit":      {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), ends(3, 7, 1, bpf.RecordExit)}, []ended{{3, 7, 3 << 8}}, map[int]int{}},
		"a reused id":  {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), ends(3, 7, 1, bpf.RecordExit), opens(4, 7, 9)}, []ended{{3, 7, 3 << 8}}, map[int]int{7: 0}},
		"a lost exit":  {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), opens(4, 7, 9), allocates(5, 7, 9)}, []ended{{4, 7, unknown}}, map[int]int{7: 1}},
		"a lost start": {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), ends(4, 7, 9, bpf.RecordExit)}, []ended{{4, 7, unknown}}, map[int]int{}},
		"all of the next program lost": {
			[][]byte{opens(1, 7, 1), allocates(2, 7, 1), ends(4, 7, 9, bpf.RecordExec), ends(5, 7, 9, bpf.RecordExit)}, []ended{{4, 7, unknown}}, map[int]int{},
		},
		// it frees at the address of a buffer of the first one
		"a free after a lost exec": {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), frees(3, 7, 2)}, []ended{{3, 7, unknown}}, map[int]int{}},
		"a fork":                   {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), opens(3, 8, 2), allocates(4, 8, 2), frees(5, 8, 2)}, nil, map[int]int{7: 1, 8: 0}},
		"a vfork":                  {[][]byte{opens(1, 7, 1), allocates(2, 7, 1), ends(3, 8, 2, bpf.RecordExec), opens(4, 8, 2), frees(5, 7, 1)}, nil, map[int]int{7: 0, 8: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestDecoder()
			for _, r := range c.records {
				d.decode(r)
			}
			var got []ended
			for _, e := range d.queue.Events {
				if e.Kind == event.ProcessExit {
					got = append(got, ended{e.TimeNs, e.PID, e.ExitStatus})
				}
			}
			qt.Check(t, qt.IsTrue(slices.Equal(got, c.ends)), qt.Commentf("%v", got))
			live := make(map[int]int)
			for pid, p := range d.processes {
				live[pid] = len(p.Live)
			}
			qt.Check(t, qt.DeepEquals(live, c.live))
			qt.Check(t, qt.HasLen(d.lost(), 0))
		})
	}
}
