package page

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestWallTimesStandBesideThoseOfEvents(t *testing.T) {
	c := NewClock(time.Unix(1_800_000_000, 5), 1_000_000_005)
	qt.Check(t, qt.Equals(c.UTC(2_000_001_000), "2027-01-15 08:00:01.000001"))
	qt.Check(t, qt.Equals(c.Wall(1_000_000_005), 1_800_000_000_000_000_005))
	for _, test := range []struct{ text, want string }{
		{`{"v":1,"time_ns":1000000006,"kind":"free"}`, `{"v":1,"time_ns":1000000006,"wall_ns":1800000000000000006,"kind":"free"}`},
		{`{"time_ns":0,"peaks":[{"time_ns":1000000005},{"time_ns":2000000005}]}`,
			`{"time_ns":0,"peaks":[{"time_ns":1000000005,"wall_ns":1800000000000000005},{"time_ns":2000000005,"wall_ns":1800000001000000005}]}`},
		{`{"begin_ns":1000000005,"peak_time_ns":1000000006,"since_ns":0}`,
			`{"begin_ns":1000000005,"begin_wall_ns":1800000000000000005,"peak_time_ns":1000000006,"peak_wall_ns":1800000000000000006,"since_ns":0}`},
		{`{"age_ns":7,"message":"\"time_ns\":7"}`, `{"age_ns":7,"message":"\"time_ns\":7"}`}, // a duration, and a text
		{`{"time_ns":`, `{"time_ns":`},
	} {
		qt.Check(t, qt.Equals(string(c.AddWall(nil, []byte(test.text))), test.want))
		qt.Check(t, qt.Equals(string(Clock{}.AddWall([]byte("x"), []byte(test.text))), "x"+test.text))
	}
	qt.Check(t, qt.IsFalse(NewClock(time.Time{}, 7).Known()))
	qt.Check(t, qt.Equals(Clock{}.Wall(7), 0))
}
