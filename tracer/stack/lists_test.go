package stack

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestLists(t *testing.T) {
	l := newLists[int32]()
	want := make(map[uint64][]int32)
	for i := range 10_000 {
		id := uint64(i) * 7 % 9000 // some again
		want[id] = nil
		list := l.add(id, i%130)
		for k := range list {
			list[k] = int32(i + k)
			want[id] = append(want[id], list[k])
		}
	}
	long := l.add(1<<40, 3*chunkLength)
	long[3*chunkLength-1] = 5
	for id, list := range want {
		got := l.get(id)
		qt.Assert(t, qt.Equals(len(got), len(list)))
		for i := range list {
			qt.Assert(t, qt.Equals(got[i], list[i]))
		}
	}
	qt.Check(t, qt.Equals(l.get(1 << 40)[3*chunkLength-1], 5))
	qt.Check(t, qt.IsNil(l.get(1<<41)))
}
