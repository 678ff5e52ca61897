package rig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestBoardNames(t *testing.T) {
	for _, b := range Boards() {
		got, err := ParseBoard(string(b))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, b))
	}
	_, err := ParseBoard("n151")
	qt.Check(t, qt.ErrorMatches(err, `no board "n151": choose n150, n300, .*`))
	rows, cols := Board("n151").MeshShape()
	qt.Check(t, qt.Equals(rows*cols, 0))
}

func TestEveryChipIsOnOneCard(t *testing.T) {
	for _, s := range boards {
		t.Run(string(s.name), func(t *testing.T) {
			seen := map[int]int{}
			for _, card := range s.cards {
				for _, c := range card {
					seen[c]++
				}
			}
			rows, cols := s.name.MeshShape()
			qt.Assert(t, qt.HasLen(seen, rows*cols))
			for c := range rows * cols {
				qt.Check(t, qt.Equals(seen[c], 1), qt.Commentf("chip %d", c))
			}
		})
	}
}

// A channel of a chip is one cable, so it cannot be in two links.
func TestEthernetChannelsAreUsedOnce(t *testing.T) {
	type port struct{ chip, channel int }
	for _, s := range boards {
		t.Run(string(s.name), func(t *testing.T) {
			limit := 16 // channels of a Wormhole chip
			if s.arch == "blackhole" {
				limit = 14
			}
			seen := map[port]bool{}
			use := func(p port) {
				qt.Check(t, qt.IsTrue(p.chip < s.rows*s.cols && p.channel < limit), qt.Commentf("%+v", p))
				qt.Check(t, qt.IsFalse(seen[p]), qt.Commentf("%+v", p))
				seen[p] = true
			}
			for _, l := range s.links {
				for i := range l.n {
					use(port{l.a, l.chanA + i})
					use(port{l.b, l.chanB + i})
				}
			}
		})
	}
}

// A mesh of r×c has r(c-1) links along its rows and c(r-1) along its columns.
func TestLinksMakeAMesh(t *testing.T) {
	for _, s := range boards {
		rows, cols := s.name.MeshShape()
		qt.Check(t, qt.HasLen(s.links, rows*(cols-1)+cols*(rows-1)+s.parallel()), qt.Commentf("%s", s.name))
	}
}

// parallel counts links between chips that another link connects already.
func (s *boardSpec) parallel() int {
	seen := map[string]bool{}
	for _, l := range s.links {
		seen[fmt.Sprint(min(l.a, l.b), max(l.a, l.b))] = true
	}
	return len(s.links) - len(seen)
}

func TestDescriptor(t *testing.T) {
	n150, err := N150.spec()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(n150.descriptor(), `arch:
  0: wormhole_b0
chips:
  0: [0, 0, 0, 0]
chip_unique_ids:
  0: 1000
ethernet_connections: []
chips_with_mmio:
  - 0: 0
harvesting:
  0: {noc_translation: true, harvest_mask: 64, dram_harvesting_mask: 0, eth_harvesting_mask: 0, pcie_harvesting_mask: 0}
asic_locations:
  0: 0
boards:
  - [{board_id: 1649267441664}, {board_type: n150}, {chips: [0]}]
`))

	t3000, err := T3000.spec()
	qt.Assert(t, qt.IsNil(err))
	d := t3000.descriptor()
	qt.Check(t, qt.Equals(strings.Count(d, "{chip: "), 2*20))
	qt.Check(t, qt.StringContains(d, "  - [{chip: 3, chan: 9}, {chip: 7, chan: 1}]\n"))
	qt.Check(t, qt.StringContains(d, "{board_type: n300}, {chips: [3, 7]}]\n"))
	qt.Check(t, qt.StringContains(d, "chips_with_mmio:\n  - 0: 0\n  - 1: 1\n  - 2: 2\n  - 3: 3\nharvesting:"))
}
