package report

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/advise"
	"ttmem/aggregate/lives"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestLateFreesAreNamed: only where it is proved that the peak which the page shows is lower, and in two lines.
func TestLateFreesAreNamed(t *testing.T) {
	const bank = 1 << 20
	r := pagetest.NewRun()
	r.Start(7, "python3 model.py")
	r.Open(7, "n150", 0)
	r.Apply(event.Event{
		Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: 1, Devices: []int{0}, Region: event.DRAM, SizeBytes: 48 * bank, BytesPerBank: 4 * bank, Banks: 12, Stack: pagetest.At("ttnn.empty", 1),
	})
	lower, same := advise.Outcome{PerBank: 3 * bank}, advise.Outcome{PerBank: 4 * bank}
	line := func(n int, alone advise.Outcome) *advise.Line {
		return &advise.Line{Stack: pagetest.At("ttnn.empty", n), Count: 1, PerBank: bank, LastUse: pagetest.At("ttnn.add", n+1), Alone: alone}
	}
	unused := line(1, lower)
	unused.Unused = true
	long := line(5, lower)
	long.LastUse = pagetest.At("ttnn."+strings.Repeat("a_long_name_", 20), 6)
	for want, p := range map[string]advise.Peak{
		"DRAM would peak at 36.0 MiB, not 48.0 MiB, if 12.0 MiB of model.py:3 call_3 were freed after\nmodel.py:4 call_4 · ttnn.add: ttmem advise FILE\n":                                                      {Lines: []*advise.Line{line(1, same), line(3, lower)}, All: lower},
		"DRAM would peak at 24.0 MiB, not 48.0 MiB, if 2 lines freed their buffers after the last use, such\nas model.py:3 call_3: ttmem advise FILE\n":                                                        {Lines: []*advise.Line{line(1, same), line(3, lower)}, All: advise.Outcome{PerBank: 2 * bank}},
		"DRAM would peak at 36.0 MiB, not 48.0 MiB, if 12.0 MiB of model.py:1 call_1, never used, were freed\nat once: ttmem advise FILE\n":                                                                    {Lines: []*advise.Line{unused}, All: lower},
		"DRAM would peak at 36.0 MiB, not 48.0 MiB, if 12.0 MiB of model.py:5 call_5 were freed after\nmodel.py:6 call_6 · ttnn.a_long_name_a_long_name_a_long_name_a_long_name_a_long_…: ttmem advise FILE\n": {Lines: []*advise.Line{long}, All: lower},
		"none":                        {},
		"as high":                     {Lines: []*advise.Line{line(1, same)}, All: same},
		"not proved":                  {Lines: []*advise.Line{line(1, advise.Outcome{Doubt: "x"})}, All: advise.Outcome{Doubt: "x"}},
		"less than a hundredth lower": {Lines: []*advise.Line{line(1, advise.Outcome{PerBank: 4*bank - 1000})}, All: advise.Outcome{PerBank: 4*bank - 1000}},
		"another peak":                {Space: &lives.Space{Peak: 5 * bank}, Lines: []*advise.Line{line(1, lower)}, All: lower},
	} {
		if p.Space == nil {
			p.Space = &lives.Space{Peak: 4 * bank}
		}
		p.PID, p.Devices, p.Region, p.Banks = 7, []int{0}, event.DRAM, 12
		text := pagetest.Text(t, &Page{r.State.Snapshot(), Options{State: r.State, Advice: &advise.Advice{Peaks: []*advise.Peak{&p}}}}, page.Layout{Width: 100})
		if strings.HasSuffix(want, "\n") {
			qt.Check(t, qt.StringContains(text, want))
		} else {
			qt.Check(t, qt.Not(qt.StringContains(text, "would peak")), qt.Commentf("%s", want))
		}
	}
}
