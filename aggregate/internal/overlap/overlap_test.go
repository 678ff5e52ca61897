package overlap

import (
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestCover compares a cover with a count for each address, for blocks that are adjacent, nested,
// equal and apart.
func TestCover(t *testing.T) {
	const end = 300
	r := rand.New(rand.NewPCG(1, 2))
	var cover cover
	var counts [end]int
	var blocks [][2]uint64
	for range 20_000 {
		if len(blocks) > 0 && (r.IntN(2) == 0 || len(blocks) > 40) {
			i := r.IntN(len(blocks))
			b := blocks[i]
			blocks = append(blocks[:i], blocks[i+1:]...)
			bare := uint64(0)
			for at := b[0]; at < b[1]; at++ {
				if counts[at]--; counts[at] == 0 {
					bare++
				}
			}
			qt.Assert(t, qt.Equals(cover.remove(b[0], b[1]), bare))
			continue
		}
		start := 10 * r.Uint64N(end/10-5)
		b := [2]uint64{start, start + 10*(1+r.Uint64N(5))}
		blocks = append(blocks, b)
		newly := uint64(0)
		for at := b[0]; at < b[1]; at++ {
			if counts[at] == 0 {
				newly++
			}
			counts[at]++
		}
		qt.Assert(t, qt.Equals(cover.insert(b[0], b[1]), newly))
	}
	for _, b := range blocks {
		cover.remove(b[0], b[1])
	}
	qt.Check(t, qt.IsNil(cover.root))
}

// depth is the height of a subtree.
func (n *node) depth() int {
	if n == nil {
		return 0
	}
	return 1 + max(n.left.depth(), n.right.depth())
}

// TestCoverStaysShallow: the cost of a change does not grow with the number of blocks, also if they
// come in order of their addresses, or one covers all others.
func TestCoverStaysShallow(t *testing.T) {
	var cover cover
	const n = 1 << 16
	for i := range uint64(n) {
		cover.insert(100*i, 100*i+50)
	}
	qt.Check(t, qt.IsTrue(cover.root.depth() < 100), qt.Commentf("%d levels for %d addresses", cover.root.depth(), 2*n))
	qt.Check(t, qt.Equals(cover.insert(0, 100*n), 50*n))
	qt.Check(t, qt.Equals(cover.remove(0, 100*n), 50*n))
}

// TestAdjacentBlocksAreOne: a full region takes as much room as one block.
func TestAdjacentBlocksAreOne(t *testing.T) {
	var cover cover
	for i := range uint64(1000) {
		cover.insert(10*i, 10*i+10)
	}
	qt.Check(t, qt.Equals(cover.root.depth(), 2))
}
