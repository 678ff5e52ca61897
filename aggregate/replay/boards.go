package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Board has the memory of each chip of a board.
type Board struct {
	Name string
	// dram is the banks of DRAM.
	dram uint32
	*chip
	// cores is the number of Tensix cores that are not harvested; 0 for as many as most chips of the kind have.
	cores uint32
}

// A chip is a kind of chip: where its banks of DRAM and L1 end, and what allocations in them are multiples of. cores are the
// numbers of Tensix cores that are not harvested, the usual one first, and dispatch that of the cores which are set apart to
// dispatch programs. Each of the others is a bank of L1. base is the index of its addresses in bases.
type chip struct {
	dramEnd, l1End, alignment uint64
	cores                     []uint32
	dispatch                  uint32
	base                      int
}

var (
	wormhole  = &chip{1 << 30, 0x16e000, 32, []uint32{72, 64, 80}, 8, 0}
	blackhole = &chip{0xff00_0000, 0x18_0000, 64, []uint32{120, 130, 140}, 10, 1}
)

// Boards are those whose memory is known, the smallest first. They were measured with mock devices of which as many cores
// are harvested as of real ones.
var Boards = []Board{
	{Name: "n150", dram: 12, chip: wormhole}, {Name: "n300", dram: 12, chip: wormhole},
	{Name: "p100", dram: 7, chip: blackhole}, {Name: "p150", dram: 8, chip: blackhole}, {Name: "p300", dram: 8, chip: blackhole},
}

// ParseBoard returns the board of a name, after which may be the number of Tensix cores of each chip that are not harvested:
// "p150:140".
func ParseBoard(text string) (*Board, error) {
	name, number, harvested := strings.Cut(text, ":")
	i := slices.IndexFunc(Boards, func(b Board) bool { return b.Name == name })
	if i < 0 {
		return nil, errors.New("choose a board: " + strings.Join(BoardNames(), ", "))
	}
	b := Boards[i]
	if harvested {
		n, err := strconv.ParseUint(number, 10, 32)
		if b.cores = uint32(n); err != nil || !slices.Contains(b.chip.cores, b.cores) {
			return nil, fmt.Errorf("choose a number of Tensix cores: %s", strings.Trim(fmt.Sprint(slices.Sorted(slices.Values(b.chip.cores))), "[]"))
		}
	}
	return &b, nil
}

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
		if recorded != b.chip || b.cores > 0 {
			i := slices.IndexFunc(bases, func(at [2]struct{ dram, l1 uint64 }) bool {
				return at[recorded.base].dram == dram.Base && at[recorded.base].l1 == l1.Base
			})
			noDispatch := l1.Banks == recorded.cores[0]
			if i < 0 || !noDispatch && !slices.Contains(recorded.cores, l1.Banks+recorded.dispatch) {
				return "where L1 begins on " + b.Name + " is not known for this device and release"
			}
			dram.Base, l1.Base = bases[i][b.base].dram, bases[i][b.base].l1
			banks := cmp.Or(b.cores, b.chip.cores[0])
			if !noDispatch {
				banks -= b.dispatch
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
