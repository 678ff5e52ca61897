package space

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// maxBlames is the maximum number of call stacks, and of circular buffers, in Evidence.
const maxBlames = 16

// Evidence returns the state of a region when an allocation failed. buffers are the buffers of
// the allocator. If circular buffers overlapped a tensor, statics are the program's circular
// buffers.
func Evidence(e *event.Event, region event.Region, capacity event.Capacity, buffers []memory.Buffer, statics []memory.Static) *memory.Evidence {
	clash, refused := e.Reason == event.ReasonStaticClash, e.Reason == event.ReasonRefused
	if clash {
		buffers = slices.DeleteFunc(buffers, func(b memory.Buffer) bool { return !reachable(&b, statics) })
	}
	all := Of(region, capacity, buffers)
	buffers = all.Blocks
	ev := &memory.Evidence{Region: region, Capacity: capacity, PerCore: all.PerCore > 0}
	if all.Start > 0 && !e.PerCore {
		ev.FreeSpace = all.FreeSpace
	} else {
		ev.Capacity.Base = 0 // the free space of the failing core is not known
	}
	if len(buffers) > 0 {
		ev.Lowest = buffers[0].Address
	}
	switch {
	case clash:
		addClash(ev, statics)
	case e.Reason == event.ReasonStaticTooLarge:
		addClash(ev, statics)
		ev.From, ev.To = 0, 0
	case e.Reason == event.ReasonTraceTooSmall:
		addTrace(ev, buffers, e.Message)
	case refused:
		addRefusal(ev, e.Message)
	case !ev.PerCore: // otherwise the buffers at an address need not be in the same bank
		findPlace(ev, buffers, e.BytesPerBank)
	}
	ev.Live, ev.Holders = blame(buffers)
	largestFirst(ev.Holders)
	i, _ := slices.BinarySearchFunc(buffers, ev.From, func(b memory.Buffer, from uint64) int {
		return cmp.Compare(b.End(), from+1)
	})
	j, _ := slices.BinarySearchFunc(buffers, ev.To, func(b memory.Buffer, to uint64) int { return cmp.Compare(b.Address, to) })
	ev.Blocking, ev.Blockers = blame(buffers[i:max(i, j)])
	if !clash && !refused {
		largestFirst(ev.Blockers)
	}
	ev.Holders, ev.Blockers = first(ev.Holders), first(ev.Blockers)
	ev.AllocatedBytesPerBank = ev.Live.BytesPerBank
	if e.Reason == event.ReasonOutOfMemory {
		takeMessage(ev, e.Message)
	}
	return ev
}

// takeMessage takes the figures of the library's message, which are right. Its allocator does not know
// buffers on single cores, except where the message says what these leave.
func takeMessage(ev *memory.Evidence, message string) {
	l, _ := event.LimitsIn(message)
	if l.Bank == (event.BankState{}) || ev.PerCore {
		return
	}
	counted := event.BankState{
		CapacityBytes: ev.Capacity.BytesPerBank, AllocatedBytes: ev.AllocatedBytesPerBank, FreeBytes: ev.FreeBytesPerBank,
		LargestFreeBytes: ev.LargestFreeBytesPerBank,
	}
	if ev.Known() && counted != l.Bank {
		ev.Counted = &counted
	}
	ev.Said = true
	ev.Capacity.BytesPerBank, ev.AllocatedBytesPerBank = l.Bank.CapacityBytes, l.Bank.AllocatedBytes
	ev.FreeBytesPerBank, ev.LargestFreeBytesPerBank = l.Bank.FreeBytes, l.Bank.LargestFreeBytes
}

func first(list []memory.Blame) []memory.Blame { return slices.Clone(list[:min(len(list), maxBlames)]) }

// reachable reports whether circular buffers can overlap the buffer: they can only on the same
// cores.
func reachable(b *memory.Buffer, statics []memory.Static) bool {
	if !b.PerCore {
		return true
	}
	for i := range statics {
		for _, s := range statics[i].Cores {
			for _, c := range b.Cores() {
				if s.X0 <= c.X1 && c.X0 <= s.X1 && s.Y0 <= c.Y1 && c.Y0 <= s.Y1 {
					return !b.Scattered()
				}
			}
		}
	}
	return false
}

// findPlace finds the place where the fewest bytes have to be freed for a block of this size.
func findPlace(ev *memory.Evidence, buffers []memory.Buffer, bytes uint64) {
	c := ev.Capacity
	if c.Base == 0 || bytes <= ev.LargestFreeBytesPerBank {
		return
	}
	blocks := make([]Owned, len(buffers))
	for i := range buffers {
		blocks[i] = Owned{Block: block(&buffers[i]), ID: buffers[i].BufferID}
	}
	place := FindPlace(blocks, c.Base, c.Base+c.BytesPerBank, bytes)
	ev.From, ev.To = place.Start, place.End
}

// addClash adds the circular buffers that reach above the lowest buffer.
func addClash(ev *memory.Evidence, statics []memory.Static) {
	slices.SortStableFunc(statics, func(a, b memory.Static) int { return cmp.Compare(b.End(), a.End()) })
	for i := range statics {
		s := &statics[i]
		if i == 0 {
			ev.From, ev.To = ev.Capacity.Base, s.End()
		}
		if s.End() > ev.Lowest && len(ev.Statics) < maxBlames {
			ev.Statics = append(ev.Statics, *s)
		}
	}
}

// addTrace adds what the trace that did not fit takes of each bank: traces have pages of one size.
func addTrace(ev *memory.Evidence, buffers []memory.Buffer, message string) {
	l, _ := event.LimitsIn(message)
	sum, page := uint64(0), uint64(0)
	for i := range buffers {
		sum, page = sum+buffers[i].SizeBytes, max(page, buffers[i].PageSizeBytes)
	}
	if l.NeededBytes > sum && page > 0 && ev.Capacity.Banks > 0 {
		pages := (l.NeededBytes - sum + page - 1) / page
		ev.NeededPerBank = (pages + uint64(ev.Capacity.Banks) - 1) / uint64(ev.Capacity.Banks) * page
	}
}

// maxReserve is how much of the free L1 an operation may leave out of its budget.
const maxReserve = 64 << 10

// addRefusal adds the lowest buffers, if the budget of the operation was what is free below them: it
// places its circular buffers there.
func addRefusal(ev *memory.Evidence, message string) {
	l, _ := event.LimitsIn(message)
	free := ev.Lowest - min(ev.Lowest, ev.Capacity.Base)
	if ev.Capacity.Base == 0 || l.AvailableBytes == 0 || l.NeededBytes <= l.AvailableBytes ||
		l.AvailableBytes > free || free-l.AvailableBytes > maxReserve {
		return
	}
	ev.From, ev.To = ev.Lowest, min(ev.Lowest+l.NeededBytes-l.AvailableBytes, ev.Capacity.Base+ev.Capacity.BytesPerBank)
}

// blame adds up buffers, in total and by call stack. The buffers must be in order of address; the
// call stacks come in the order of their lowest buffers.
func blame(buffers []memory.Buffer) (all memory.Blame, stacks []memory.Blame) {
	index := make(map[uint64]int)
	var use perBank
	var uses []perBank // by call stack
	for i := range buffers {
		b := &buffers[i]
		key := memory.StackID(b.Stack)
		at, ok := index[key]
		if !ok {
			at = len(stacks)
			index[key] = at
			stacks = append(stacks, memory.Blame{Address: b.Address, Stack: b.Stack, BeforeAttach: b.BeforeAttach})
			uses = append(uses, perBank{})
		}
		use.add(b)
		uses[at].add(b)
		for _, sum := range []*memory.Blame{&all, &stacks[at]} {
			sum.Count++
			sum.End = max(sum.End, block(b).End)
		}
	}
	if len(buffers) > 0 {
		all.Address = buffers[0].Address
	}
	all.BytesPerBank = use.bytes()
	for i := range stacks {
		stacks[i].BytesPerBank = uses[i].bytes()
	}
	return all, stacks
}

// largestFirst sorts by size. The sort is stable: the lowest address comes first among equal
// sizes.
func largestFirst(list []memory.Blame) {
	slices.SortStableFunc(list, func(a, b memory.Blame) int { return cmp.Compare(b.BytesPerBank, a.BytesPerBank) })
}
