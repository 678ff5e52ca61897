package space

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
)

func TestHolesAreWhatBlocksLeave(t *testing.T) {
	blocks := []Block{{0, 20}, {150, 200}, {160, 170}, {200, 300}, {390, 500}, {600, 700}}
	qt.Check(t, qt.DeepEquals(slices.Collect(Holes(blocks, 100, 400)), []memory.Hole{{Address: 100, Bytes: 50}, {Address: 300, Bytes: 90}}))
	qt.Check(t, qt.DeepEquals(slices.Collect(Holes(blocks, 100, 550)), []memory.Hole{{Address: 100, Bytes: 50}, {Address: 300, Bytes: 90}, {Address: 500, Bytes: 50}}))
	qt.Check(t, qt.HasLen(slices.Collect(Holes(blocks, 160, 300)), 0))
	qt.Check(t, qt.DeepEquals(Free(blocks, 100, 400), memory.FreeSpace{FreeBytesPerBank: 140, LargestFreeBytesPerBank: 90}))
}

// TestListStaysInOrder compares a List with a sorted slice, for few and for many changes
// between two reads.
func TestListStaysInOrder(t *testing.T) {
	for _, test := range []struct{ first, changes int }{{0, 10}, {10, 3}, {5000, 10}, {5000, 20_000}} {
		r := rand.New(rand.NewPCG(1, uint64(test.changes)))
		random := func() Block {
			start := 100 * r.Uint64N(2000)
			return Block{start, start + 1 + r.Uint64N(3)}
		}
		var all []Block
		for range test.first {
			all = append(all, random())
		}
		list := NewList(slices.Clone(all))
		for range 20 {
			for range test.changes {
				qt.Assert(t, qt.IsTrue(list.Trim() || test.changes > minPending))
				if len(all) > 0 && r.IntN(2) == 0 {
					i := r.IntN(len(all))
					list.Remove(all[i])
					all = slices.Delete(all, i, i+1)
				} else {
					b := random()
					list.Add(b)
					all = append(all, b)
				}
			}
			want := slices.SortedFunc(slices.Values(all), compare)
			qt.Assert(t, qt.IsTrue(slices.Equal(list.Blocks(), want)))
		}
	}
}

func TestListThatIsNotReadIsGivenUp(t *testing.T) {
	list := NewList(nil)
	changes := 0
	for list.Trim() {
		list.Add(Block{1, 2})
		changes++
	}
	// The first changes are applied because a new list counts as read.
	qt.Check(t, qt.Equals(changes, minPending+minPending+minPending/4))
}

func TestMergeChangesNeither(t *testing.T) {
	a, b := append(make([]Block, 0, 8), Block{1, 2}, Block{5, 6}), []Block{{0, 1}, {3, 4}}
	qt.Check(t, qt.DeepEquals(Merge(a, b), []Block{{0, 1}, {1, 2}, {3, 4}, {5, 6}}))
	qt.Check(t, qt.DeepEquals(a, []Block{{1, 2}, {5, 6}}))
	qt.Check(t, qt.DeepEquals(b, []Block{{0, 1}, {3, 4}}))
}
