package page

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestTheClockHasTheWallTime(t *testing.T) {
	c := NewClock(time.Unix(1_800_000_000, 5), 1_000_000_005)
	qt.Check(t, qt.Equals(c.UTC(2_000_001_000), "2027-01-15 08:00:01.000001"))
	qt.Check(t, qt.Equals(c.Wall(1_000_000_005), 1_800_000_000_000_000_005))
	qt.Check(t, qt.IsFalse(NewClock(time.Time{}, 7).Known()))
	qt.Check(t, qt.Equals(Clock{}.Wall(7), 0))
}
