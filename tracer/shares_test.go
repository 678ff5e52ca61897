package tracer

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
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
