package memory

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestIntervalsHaveTheirEnds(t *testing.T) {
	l := Intervals{{2, 4}, {5, 5}, {8, 9}}
	for ns, want := range []bool{false, false, true, true, true, true, false, false, true, true, false} {
		qt.Check(t, qt.Equals(l.Has(uint64(ns)), want), qt.Commentf("%d", ns))
	}
	qt.Check(t, qt.IsTrue(Intervals(nil).Has(0)))
	qt.Check(t, qt.IsFalse(Intervals{}.Has(0)))
}
