package tracer

import (
	"maps"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/quota"
)

// A user whose many processes have ever new stacks and code has a bound on all of them together,
// and another user's stay.
func TestUsersShareOfStacks(t *testing.T) {
	d := newTestDecoder()
	const loud, quiet, processes = 1, 2, 50
	native := bpf.KernelNativeRecord{Frames: uint16(len(bpf.KernelNativeRecord{}.Addresses))}
	code := bpf.KernelCodeRecord{Name: bpf.KernelText{State: 1<<2 | 32 | 64, Bytes: 1}} // with a table
	id := uint64(0)
	add := func(user, pid int) {
		id++
		native.H, native.Id = bpf.KernelHeader{Tgid: uint32(pid), Kind: bpf.RecordNativeStack}, id
		code.H, code.Id = bpf.KernelHeader{Tgid: uint32(pid), Kind: bpf.RecordCode}, uint32(id)
		for i := range native.Addresses {
			native.Addresses[i] = id + uint64(i)
		}
		d.process(pid).user = user
		d.decode(raw(&native))
		d.decode(raw(&code))
	}
	sum := func(size func(*stack.Process) int) (n int) {
		for pid := range processes {
			n += size(d.process(pid + 1).stacks)
		}
		return n
	}
	const other = processes + 1
	for range 100 {
		add(quiet, other)
	}
	stacks, codes := d.process(other).stacks.StackBytes(), d.process(other).stacks.CodeBytes()
	for pid := range processes { // one after the other, so that all but one are idle
		for range 1000 {
			add(loud, pid+1)
		}
		qt.Assert(t, qt.IsTrue(sum((*stack.Process).StackBytes) < userStackBytes*9/8))
		qt.Assert(t, qt.IsTrue(sum((*stack.Process).CodeBytes) < userCodeBytes*9/8+stackRecords*5000))
	}
	qt.Check(t, qt.IsTrue(sum((*stack.Process).StackBytes) > userStackBytes/2))
	qt.Check(t, qt.IsTrue(sum((*stack.Process).CodeBytes) > userCodeBytes/4))
	qt.Check(t, qt.Equals(d.process(other).stacks.StackBytes(), stacks))
	qt.Check(t, qt.Equals(d.process(other).stacks.CodeBytes(), codes))
}

// TestUsersShareOfTheTime: once the event loop is late, records of the user who keeps it late are losses of their processes,
// and those of others are decoded.
func TestUsersShareOfTheTime(t *testing.T) {
	const loud, quiet = 1, 2
	d := newTestDecoder()
	for _, pid := range []int{loud, quiet} {
		d.process(pid).Sharer, d.process(pid).described = 1000+pid, true
	}
	opens := func(pid int, atNs uint64) (events int) {
		dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: 0x2000 + atNs}
		dev.H = bpf.KernelHeader{TimeNs: atNs, Tgid: uint32(pid), Tid: uint32(pid), Kind: bpf.RecordDevice, Flags: bpf.DeviceReady, Count: 1}
		dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 64, AlignmentBytes: 16}
		d.decode(raw(&dev))
		for _, e := range d.queue.Events {
			if e.PID == pid && e.Kind == event.DeviceOpen {
				events++
			}
		}
		return events
	}
	const second = 1e9
	d.newest = second
	d.tick(2*second, false, 0) // a second late
	qt.Check(t, qt.Equals(opens(loud, second), 1))
	for ran := host.RanOfThread(); host.RanOfThread() < ran+time.Second/4; { // what its events cost
	}
	d.tick(2*second, false, 0)
	qt.Check(t, qt.Equals(opens(loud, second+1), 1))
	qt.Check(t, qt.Equals(opens(quiet, second+1), 1))
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), map[loss]lossCount{{loud, quota.Beyond}: {1, second + 1}})), qt.Commentf("%v", d.lost()))
	d.tick(2*second, true, 0)
	qt.Check(t, qt.Equals(opens(loud, second+2), 2))
}

// TestUsersShareOfNames: the names of threads that are kept of a user's processes are bounded, and others have theirs.
func TestUsersShareOfNames(t *testing.T) {
	d := newTestDecoder()
	add := func(pid, user, names int) {
		p := d.process(pid)
		p.Sharer = user
		for tid := range names {
			p.setName(tid+1, readName{name: "worker"})
		}
	}
	const processes = 2 * maxNamesOfUser / maxNames
	for pid := 1; pid <= processes; pid++ {
		add(pid, 1001, maxNames)
	}
	sum := 0
	for pid := 1; pid <= processes; pid++ {
		sum += len(d.process(pid).names)
	}
	qt.Check(t, qt.IsTrue(sum > maxNamesOfUser/2 && sum <= maxNamesOfUser+processes), qt.Commentf("%d", sum))
	add(processes+1, 1002, 100)
	qt.Check(t, qt.HasLen(d.process(processes+1).names, 100))
	for pid := 1; pid <= processes; pid++ {
		d.end(d.process(pid), event.Event{})
	}
	qt.Check(t, qt.Equals(d.names.Of(1001), 0))
}
