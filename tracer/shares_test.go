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

// TestUsersShareOfTheTime: once the event loop is late, records of the user who made it late are losses of their processes,
// but for those that tell of devices. Records of others are decoded.
func TestUsersShareOfTheTime(t *testing.T) {
	const loud, quiet = 1, 2
	d := newTestDecoder()
	for _, pid := range []int{loud, quiet} {
		p := d.process(pid)
		p.user, p.Sharer, p.described = 1000+pid, 1000+pid, true
	}
	open := func(pid int, atNs, allocator uint64) {
		dev := bpf.KernelDeviceRecord{Device: 0x1000, Allocator: allocator}
		dev.H = bpf.KernelHeader{TimeNs: atNs, Tgid: uint32(pid), Tid: uint32(pid), Kind: bpf.RecordDevice, Flags: bpf.DeviceReady, Count: 1}
		dev.Banks[event.L1] = bpf.KernelBankInfo{BytesPerBank: 1 << 20, Banks: 64, AlignmentBytes: 16}
		d.decode(raw(&dev))
	}
	alloc := func(pid int, atNs uint64) {
		r := bpf.KernelBufferRecord{Object: 0x7f0000003000 + atNs<<8, Device: 0x1000, Allocator: 0x2000, UniqueId: atNs}
		r.H = bpf.KernelHeader{TimeNs: atNs, Tgid: uint32(pid), Tid: uint32(pid), Kind: bpf.RecordAlloc}
		r.Window[9], r.Window[16], r.Window[41] = 0x10, byte(event.L1), 4
		d.decode(raw(&r))
	}
	count := func(pid int, kind event.Kind) (n int) {
		for _, e := range d.queue.Events {
			if e.PID == pid && e.Kind == kind {
				n++
			}
		}
		return n
	}
	const second = 1e9
	open(loud, second, 0x2000)
	open(quiet, second, 0x2000)
	d.tick(2*second, false, 0) // a second late
	alloc(loud, second+1)
	alloc(quiet, second+1)
	d.turn(loud)
	for ran := host.RanOfThread(); host.RanOfThread() < ran+time.Second/4; { // what its events cost
	}
	d.tick(2*second, false, 0)
	alloc(loud, second+2)
	open(loud, second+2, 0x3000)
	alloc(quiet, second+2)
	qt.Check(t, qt.IsTrue(maps.Equal(d.lost(), map[loss]lossCount{{loud, madeLate}: {1, second + 2}})), qt.Commentf("%v", d.lost()))
	d.tick(2*second, true, 0)
	qt.Check(t, qt.IsTrue(d.recovering[d.process(loud)]), qt.Commentf("its memory is read again"))
	qt.Check(t, qt.IsFalse(d.process(loud).recovery.never))
	alloc(loud, second+3)
	for kind, want := range map[event.Kind][2]int{event.DeviceOpen: {2, 1}, event.Alloc: {2, 2}} {
		qt.Check(t, qt.Equals([2]int{count(loud, kind), count(quiet, kind)}, want), qt.Commentf("%v", kind))
	}
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
