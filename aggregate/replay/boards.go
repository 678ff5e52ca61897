package replay

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Board has the memory of each chip of a board.
type Board struct {
	Name string
	// dram is the banks of DRAM.
	dram uint32
	*chip
}

// A chip is a kind of chip: where its banks of DRAM and L1 end, and what allocations in them are multiples of. banks is
// the number of banks of L1 and allCores the same if no cores are set apart to dispatch programs. base is the index of its
// addresses in bases.
type chip struct {
	dramEnd, l1End, alignment uint64
	banks, allCores           uint32
	base                      int
}

var (
	wormhole  = &chip{1 << 30, 0x16e000, 32, 64, 72, 0}
	blackhole = &chip{0xff00_0000, 0x18_0000, 64, 110, 120, 1}
)

// Boards are those whose memory is known, the smallest first. They were measured with mock devices of which as many cores
// are harvested as of real ones.
var Boards = []Board{{"n150", 12, wormhole}, {"n300", 12, wormhole}, {"p100", 7, blackhole}, {"p150", 8, blackhole}, {"p300", 8, blackhole}}

// BoardNames are the names of all boards.
func BoardNames() (names []string) {
	for i := range Boards {
		names = append(names, Boards[i].Name)
	}
	return names
}

// bases are where DRAM and L1 begin on a Wormhole and on a Blackhole, in releases of tt-metal from 0.66 to 0.81.
var bases = [][2]struct{ dram, l1 uint64 }{
	{{32, 103552}, {64, 105280}}, {{32, 103712}, {64, 111104}}, {{1048640, 103840}, {1048704, 111104}},
	{{1048640, 105664}, {1048704, 111488}}, {{1048640, 105824}, {1048704, 111744}},
}

// chipOf returns the kind of the chips of a device; nil if it is not known.
func chipOf(of *memory.Capacities) *chip {
	for _, c := range []*chip{wormhole, blackhole} {
		if small := of[event.L1Small]; small.Base+small.BytesPerBank == c.l1End {
			return c
		}
	}
	return nil
}

// On is a program on chips of another board. The arguments of open_device are the same, and so is what each core has of a
// sharded buffer.
func On(b *Board) Change {
	return Change{sizes: func(_ int, of *sizes) (doubt string) {
		l1, small, dram, trace := &of.Capacities[event.L1], &of.Capacities[event.L1Small], &of.Capacities[event.DRAM], &of.Capacities[event.Trace]
		recorded := chipOf(&of.Capacities)
		if recorded == nil {
			return "the recorded board is not known"
		}
		if recorded != b.chip {
			i := slices.IndexFunc(bases, func(at [2]struct{ dram, l1 uint64 }) bool {
				return at[recorded.base].dram == dram.Base && at[recorded.base].l1 == l1.Base
			})
			if i < 0 || l1.Banks != recorded.banks && l1.Banks != recorded.allCores {
				return "where L1 begins on " + b.Name + " is not known for this device and release"
			}
			dram.Base, l1.Base = bases[i][b.base].dram, bases[i][b.base].l1
			banks := b.banks
			if l1.Banks == recorded.allCores {
				banks = b.allCores
			}
			l1.Banks, small.Banks = banks, banks
		}
		small.Base = b.l1End - small.BytesPerBank
		l1.BytesPerBank = between(l1.Base, small.Base)
		traces := trace.BytesPerBank * uint64(trace.Banks)
		dram.Banks, trace.Banks = b.dram, b.dram
		trace.BytesPerBank = roundUp((traces+uint64(b.dram)-1)/uint64(b.dram), tracePages)
		trace.Base = b.dramEnd - trace.BytesPerBank
		dram.BytesPerBank = between(dram.Base, trace.Base)
		return ""
	}}
}
