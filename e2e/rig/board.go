package rig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Board names a cluster of cards that the mock device can simulate.
type Board string

// The boards.
const (
	N150   Board = "n150"   // Wormhole, one chip
	N300   Board = "n300"   // Wormhole, two chips
	T3000  Board = "t3000"  // four N300, eight chips
	Galaxy Board = "galaxy" // Wormhole Galaxy 6U, 32 chips
	P100   Board = "p100"   // Blackhole, one chip
	P150   Board = "p150"   // Blackhole, one chip
	P300   Board = "p300"   // Blackhole, two chips
	P150x4 Board = "4xp150" // four P150, four chips

	N150Of64  Board = "n150-64"  // an N150 of 64 Tensix cores instead of 72
	N150Of80  Board = "n150-80"  // with all of its cores
	P150Of140 Board = "p150-140" // a P150 with all of its cores
)

// boardSpec is the source of a descriptor.
type boardSpec struct {
	name       Board
	arch       string
	boardType  string  // as the descriptor spells it
	upi        uint64  // the product number in a board id: id >> 36
	rows, cols int     // of the mesh
	cards      [][]int // the chips of each card; the first one is on PCIe
	links      []link
	harvest    uint   // mask of the Tensix rows (Wormhole) or columns (Blackhole) that are off
	dram, eth  uint   // masks of DRAM and Ethernet cores that are off
	pcie       []uint // mask of the PCIe cores that are off, for each chip of a card
	trayBus    []int  // PCIe bus of each tray, for a Galaxy
}

// link is a bundle of n Ethernet channels between two chips, from channel
// chanA of a and chanB of b upwards.
type link struct{ a, chanA, b, chanB, n int }

// boards is the table of boards. Links, masks and product numbers are those of real
// machines, with one exception: an N300 has two rows off, here it is one. With two, some
// releases (0.81) place kernels on a row that the mock does not have and refuse most
// operations. There are 64 L1 banks either way.
var boards = []boardSpec{
	{name: N150, arch: "wormhole_b0", boardType: "n150", upi: 0x18, rows: 1, cols: 1,
		cards: [][]int{{0}}, harvest: 1 << 6},
	{name: N300, arch: "wormhole_b0", boardType: "n300", upi: 0x14, rows: 1, cols: 2,
		cards: [][]int{{0, 1}}, harvest: 1 << 6, links: []link{{0, 8, 1, 0, 2}}},
	{name: T3000, arch: "wormhole_b0", boardType: "n300", upi: 0x14, rows: 2, cols: 4,
		cards: [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, harvest: 1 << 6,
		links: []link{
			{0, 8, 4, 0, 2}, {1, 8, 5, 0, 2}, {2, 8, 6, 0, 2}, {3, 8, 7, 0, 2}, // on each card
			{0, 6, 2, 6, 2}, {1, 0, 3, 0, 2}, // along the rows 4 0 2 6 and 5 1 3 7
			{4, 6, 5, 6, 2}, {0, 14, 1, 14, 2}, {2, 14, 3, 14, 2}, {6, 6, 7, 6, 2}, // between them
		}},
	{name: Galaxy, arch: "wormhole_b0", boardType: "ubb", upi: 0x35, rows: 8, cols: 4,
		cards: trays(32, 8), trayBus: []int{0xc0, 0x80, 0x00, 0x40}, links: galaxyLinks()},
	{name: P100, arch: "blackhole", boardType: "p100", upi: 0x43, rows: 1, cols: 1,
		cards: [][]int{{0}}, harvest: 1<<7 | 1<<13, dram: 1, eth: 1<<5 | 1<<8, pcie: []uint{1 << 1}},
	{name: P150, arch: "blackhole", boardType: "p150", upi: 0x40, rows: 1, cols: 1,
		cards: [][]int{{0}}, harvest: 1<<7 | 1<<13, eth: 1<<5 | 1<<8, pcie: []uint{1 << 1}},
	{name: P300, arch: "blackhole", boardType: "p300", upi: 0x44, rows: 1, cols: 2,
		cards: [][]int{{0, 1}}, harvest: 1<<7 | 1<<13, eth: 1<<5 | 1<<8, pcie: []uint{1 << 1, 1 << 0},
		links: []link{{0, 2, 1, 9, 1}, {0, 3, 1, 8, 1}}},
	{name: P150x4, arch: "blackhole", boardType: "p150", upi: 0x40, rows: 2, cols: 2,
		cards: [][]int{{0}, {1}, {2}, {3}}, harvest: 1<<7 | 1<<13, eth: 1<<5 | 1<<8, pcie: []uint{1 << 1},
		links: []link{{0, 4, 2, 4, 4}, {0, 8, 3, 8, 4}, {1, 4, 3, 4, 4}, {1, 8, 2, 8, 4}}},
	{name: N150Of64, arch: "wormhole_b0", boardType: "n150", upi: 0x18, rows: 1, cols: 1,
		cards: [][]int{{0}}, harvest: 1<<5 | 1<<6},
	{name: N150Of80, arch: "wormhole_b0", boardType: "n150", upi: 0x18, rows: 1, cols: 1,
		cards: [][]int{{0}}},
	{name: P150Of140, arch: "blackhole", boardType: "p150", upi: 0x40, rows: 1, cols: 1,
		cards: [][]int{{0}}, eth: 1<<5 | 1<<8, pcie: []uint{1 << 1}},
}

// galaxyLinks are the links of a Wormhole Galaxy: four trays of eight chips,
// where chips 1 to 4 of a tray stand in one column and 5 to 8 in the next. The
// library checks the trays' places in the mesh of 8×4:
//
//	tray 0 | tray 2, its columns swapped
//	-------+----------------------------
//	tray 1 | tray 3, its columns swapped, both upside down
func galaxyLinks() []link {
	chip := func(tray, loc int) int { return tray*8 + loc - 1 }
	var links []link
	for tray := range 4 {
		for loc := 1; loc <= 4; loc++ {
			links = append(links, link{chip(tray, loc), 12, chip(tray, loc+4), 0, 4})
			if loc < 4 {
				links = append(links,
					link{chip(tray, loc), 8, chip(tray, loc+1), 4, 4},
					link{chip(tray, loc+4), 8, chip(tray, loc+5), 4, 4})
			}
		}
	}
	for _, loc := range []int{4, 8} {
		links = append(links,
			link{chip(0, loc), 8, chip(1, loc), 8, 4},
			link{chip(2, loc), 8, chip(3, loc), 8, 4})
	}
	for loc := 5; loc <= 8; loc++ {
		links = append(links,
			link{chip(0, loc), 12, chip(2, loc), 12, 4},
			link{chip(1, loc), 12, chip(3, loc), 12, 4})
	}
	return links
}

// trays splits n chips into cards of per chips.
func trays(n, per int) [][]int {
	cards := make([][]int, n/per)
	for chip := range n {
		cards[chip/per] = append(cards[chip/per], chip)
	}
	return cards
}

// Boards returns the available boards, the smallest of each kind first.
func Boards() []Board {
	names := make([]Board, len(boards))
	for i, b := range boards {
		names[i] = b.name
	}
	return names
}

// ParseBoard returns the board of that name.
func ParseBoard(name string) (Board, error) {
	b := Board(name)
	_, err := b.spec()
	return b, err
}

func (b Board) spec() (*boardSpec, error) {
	for i := range boards {
		if boards[i].name == b {
			return &boards[i], nil
		}
	}
	var names []string
	for _, n := range Boards() {
		names = append(names, string(n))
	}
	return nil, fmt.Errorf("no board %q: choose %s", string(b), strings.Join(names, ", "))
}

// MeshShape returns the rows and columns of the mesh of all chips of the board, for
// ttnn.open_mesh_device, or 0, 0 for a board that is not in the table.
func (b Board) MeshShape() (rows, cols int) {
	s, err := b.spec()
	if err != nil {
		return 0, 0
	}
	return s.rows, s.cols
}

// write puts the board's descriptor into dir and returns its path.
func (b Board) write(dir string) (string, error) {
	s, err := b.spec()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, string(b)+".yaml")
	return path, writeFile(path, []byte(s.descriptor()), 0o644)
}

// descriptor returns the cluster in the YAML that UMD reads.
func (s *boardSpec) descriptor() string {
	var y strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&y, format+"\n", args...) }
	chips := s.rows * s.cols

	line("arch:")
	for c := range chips {
		line("  %d: %s", c, s.arch)
	}
	line("chips:")
	for c := range chips {
		line("  %d: [%d, %d, 0, 0]", c, c%s.cols, c/s.cols)
	}
	line("chip_unique_ids:")
	for c := range chips {
		line("  %d: %d", c, s.uniqueID(c))
	}
	if len(s.links) == 0 {
		line("ethernet_connections: []") // the reader wants a list even so
	} else {
		line("ethernet_connections:")
	}
	for _, l := range s.links {
		for i := range l.n {
			line("  - [{chip: %d, chan: %d}, {chip: %d, chan: %d}]", l.a, l.chanA+i, l.b, l.chanB+i)
		}
	}
	line("chips_with_mmio:")
	for i, c := range s.onPCIe() {
		line("  - %d: %d", c, i)
	}
	if s.isGalaxy() { // the library reads the tray off the bus
		line("chip_to_bus_id:")
		for tray, card := range s.cards {
			for i, c := range card {
				line("  %d: 0x%04x", c, s.trayBus[tray]|(i+1))
			}
		}
	}
	line("harvesting:")
	for c := range chips {
		line("  %d: {noc_translation: true, harvest_mask: %d, dram_harvesting_mask: %d, eth_harvesting_mask: %d, pcie_harvesting_mask: %d}",
			c, s.harvest, s.dram, s.eth, s.pcieMask(c))
	}
	line("asic_locations:") // where a chip sits on its card
	for _, card := range s.cards {
		for i, c := range card {
			line("  %d: %d", c, s.location(i))
		}
	}
	line("boards:")
	for i, card := range s.cards {
		list := strings.ReplaceAll(strings.Trim(fmt.Sprint(card), "[]"), " ", ", ")
		line("  - [{board_id: %d}, {board_type: %s}, {chips: [%s]}]", s.upi<<36|uint64(i), s.boardType, list)
	}
	return y.String()
}

// onPCIe are the chips that the host reaches directly: all except the second ones of N300
// cards.
func (s *boardSpec) onPCIe() []int {
	var chips []int
	for _, card := range s.cards {
		if s.boardType == "n300" {
			card = card[:1]
		}
		chips = append(chips, card...)
	}
	return chips
}

// isGalaxy reports whether the cards are the trays of a Galaxy.
func (s *boardSpec) isGalaxy() bool { return s.trayBus != nil }

// location is the position of the i-th chip of a card. A Galaxy counts from 1.
func (s *boardSpec) location(i int) int {
	if s.isGalaxy() {
		return i + 1
	}
	return i
}

// place returns the card that a chip is on and its index there.
func (s *boardSpec) place(chip int) (card, index int) {
	for card, chips := range s.cards {
		if i := slices.Index(chips, chip); i >= 0 {
			return card, i
		}
	}
	return 0, 0
}

// uniqueID identifies a chip. On a Galaxy its top byte is the location.
func (s *boardSpec) uniqueID(chip int) uint64 {
	id := uint64(1000 + chip)
	if s.isGalaxy() {
		_, i := s.place(chip)
		id |= uint64(s.location(i)) << 56
	}
	return id
}

// pcieMask is the mask of the PCIe cores that a chip does not use.
func (s *boardSpec) pcieMask(chip int) uint {
	if _, i := s.place(chip); i < len(s.pcie) {
		return s.pcie[i]
	}
	return 0
}
