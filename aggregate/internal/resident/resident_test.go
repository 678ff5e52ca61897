package resident

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// TestHostMemoryGrows: in most intervals, after the start of the program, and by more than a little.
func TestHostMemoryGrows(t *testing.T) {
	const mib, second = 1 << 20, 1_000_000_000
	for name, test := range map[string]struct {
		seconds int
		mib     func(second int) int
		growth  uint64 // MiB
	}{
		"steady":                     {600, func(int) int { return 500 }, 0},
		"each second more":           {600, func(s int) int { return 500 + s }, 449},
		"a little more":              {600, func(s int) int { return 500 + s/10 }, 0},
		"a large start, then steady": {600, func(s int) int { return min(4000, 100*s) }, 0},
		"in a short time":            {29, func(s int) int { return 500 + 100*s }, 0},
		"a cache that fills":         {600, func(s int) int { return min(1000, 500+3*s) }, 0},
		"in steps of a minute":       {600, func(s int) int { return 500 + 100*(s/60) }, 700},
		"up and down":                {600, func(s int) int { return 500 + 300*(s%20)/20 }, 0},
		"up and down, and more":      {600, func(s int) int { return 500 + s + 300*(s%20)/20 }, 449},
		"less and less":              {600, func(s int) int { return 5000 - s }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var u Use
			qt.Check(t, qt.IsNil(u.Memory(second)))
			most := uint64(0)
			begin := uint64(1000 * second)
			for s := range test.seconds {
				now := uint64(test.mib(s)) * mib
				most = max(most, now)
				u.Sample(begin+uint64(s)*second, now, most)
			}
			end := begin + uint64(test.seconds)*second
			m := u.Memory(end)
			qt.Check(t, qt.Equals(m.ResidentBytes, uint64(test.mib(test.seconds-1))*mib))
			qt.Check(t, qt.Equals(m.PeakBytes, most))
			if growth := m.GrowthBytes / mib; test.growth == 0 || growth > test.growth+40 || growth+40 < test.growth {
				qt.Check(t, qt.Equals(growth, test.growth))
			}
			w := codec.NewWriter()
			u.Code(w)
			var same Use
			r := codec.NewReader(w.Data, nil)
			same.Code(r)
			qt.Check(t, qt.IsFalse(r.Bad))
			qt.Check(t, qt.DeepEquals(same.Memory(end), m))
		})
	}
}

// TestHostMemoryStaysBetweenSamples: samples come only when it changes.
func TestHostMemoryStaysBetweenSamples(t *testing.T) {
	var u Use
	u.Sample(1, 100<<20, 100<<20)
	u.Sample(2, 900<<20, 900<<20)
	qt.Check(t, qt.DeepEquals(u.Memory(3600e9), &memory.HostMemory{ResidentBytes: 900 << 20, PeakBytes: 900 << 20}))
	u.Sample(3600e9, 100<<20, 900<<20)
	u.Sample(1, 200<<20, 0) // times may repeat
	qt.Check(t, qt.DeepEquals(u.Memory(1), &memory.HostMemory{ResidentBytes: 200 << 20, PeakBytes: 900 << 20}))
}
