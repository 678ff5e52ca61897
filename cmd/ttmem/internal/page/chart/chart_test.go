package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
)

func TestAnAxisHasTicksThatPeopleCount(t *testing.T) {
	for _, test := range []struct {
		span uint64
		want []string
	}{
		{5_000, []string{"0 µs", "1 µs", "5 µs"}},
		{443e6, []string{"0 ms", "100 ms", "400 ms"}},
		{1_715e6, []string{"0.0 s", "0.5 s", "1.5 s"}},
		{9e9, []string{"0 s", "2 s", "8 s"}},
		{100e9, []string{"0 s", "20 s", "100 s"}},
		{170e9, []string{"0.0 min", "0.5 min", "2.5 min"}},
		{9 * 3600e9, []string{"0 h", "2 h", "8 h"}},
		{40 * 24 * 3600e9, []string{"0 h", "256 h", "768 h"}},
	} {
		a := newTimeAxis(test.span, 5)
		last := test.span / a.stepNs
		got := []string{a.label(0), a.label(a.stepNs), a.label(last * a.stepNs)}
		qt.Check(t, qt.DeepEquals(got, test.want))
		qt.Check(t, qt.IsTrue(last <= 5))
	}
}

func TestAChartShowsSpikesAndWhatStays(t *testing.T) {
	columns := []memory.Span{{}, {Min: 8, Max: 8}, {Min: 16, Max: 16}, {Min: 4, Max: 16}, {Max: 1}, {Min: 20, Max: 24}}
	base := []memory.Span{{}, {}, {Min: 8, Max: 8}, {}, {}, {}}
	for _, test := range []struct {
		ascii bool
		want  []string
	}{
		{false, []string{
			"     ▄",
			"  █│ █",
			" █▓▄╷█",
		}},
		{true, []string{
			"     #",
			"  #| #",
			" #=#|#",
		}},
	} {
		c := Chart{Painter: page.Painter{ASCII: test.ascii}, Columns: columns, Base: base, Top: 24}
		qt.Check(t, qt.DeepEquals(c.Rows(3), test.want))
	}
}

func TestThePeakIsMarkedOnTheAxis(t *testing.T) {
	c := Chart{Columns: make([]memory.Span, 60)}
	line, labels := c.axisLines(6e9, 33)
	qt.Check(t, qt.Equals(page.Width(line), 60))
	qt.Check(t, qt.Equals(page.Width(line[:strings.Index(line, "▲")]), 33))
	for i, label := range []string{"0 s", "1 s", "5 s"} {
		qt.Check(t, qt.Equals(strings.Index(labels, label), []int{0, 10, 50}[i]), qt.Commentf("%s", label))
	}
}

// TestLabelsOfAnAxisFit: none is wider than the chart or runs into another one, and there
// are two at least, so that one can count.
func TestLabelsOfAnAxisFit(t *testing.T) {
	for _, columns := range []int{40, 60, 80, 120} {
		n := columns - Gutter - 1
		for span := uint64(1e6); span < 1e15; span += span / 7 {
			c := Chart{Columns: make([]memory.Span, n)}
			line, labels := c.axisLines(span, n)
			comment := qt.Commentf("%d columns, %d ns\n%s\n%s", columns, span, line, labels)
			qt.Assert(t, qt.Equals(page.Width(line), n), comment)
			qt.Assert(t, qt.IsTrue(page.Width(labels) <= n), comment)
			words := strings.Fields(labels)
			qt.Assert(t, qt.IsTrue(len(words) >= 4), comment)
			for i := 0; i < len(words); i += 2 { // a number and its unit
				qt.Assert(t, qt.IsTrue(strings.Trim(words[i], "0123456789.") == ""), comment)
				qt.Assert(t, qt.IsTrue(slices.ContainsFunc(timeUnits, func(u timeUnit) bool { return u.name == words[i+1] })), comment)
			}
		}
	}
}

// TestOneRowShowsSmallChanges, however much there is beside them.
func TestOneRowShowsSmallChanges(t *testing.T) {
	const gib = 1 << 30
	c := Chart{}
	for i := range uint64(8) {
		c.Columns = append(c.Columns, memory.Span{Max: 12*gib + i})
	}
	c.Columns = append([]memory.Span{{}}, c.Columns...)
	c.Fit()
	qt.Check(t, qt.Equals(c.One(), " ▁▂▃▄▅▆▇█"))
	c.Columns = []memory.Span{{Max: gib}, {Max: gib}}
	c.Fit()
	qt.Check(t, qt.Equals(c.One(), "▁▁"))
	c.Columns = []memory.Span{{}}
	c.Fit()
	qt.Check(t, qt.Equals(c.One(), " "))
}
