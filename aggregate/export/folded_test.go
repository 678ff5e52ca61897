package export

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/golden"
	"ttmem/tracer/event"
)

func folded(t *testing.T, p *memory.Profile, o Options) string {
	t.Helper()
	var b strings.Builder
	_, err := Folded(&b, p, o)
	qt.Assert(t, qt.IsNil(err))
	return b.String()
}

func TestFoldedStacksMatchTheGoldenFile(t *testing.T) {
	golden.Check(t, "small.folded", folded(t, smallRun().state.Profile(), Options{}))
}

func TestFoldedLinesAreWhatOtherProgramsParse(t *testing.T) {
	// flamegraph.pl takes two numbers at the end for a difference
	line := regexp.MustCompile(`^(.*\S) (\d+)$`)
	difference := regexp.MustCompile(` \d+(\.\d*)?$`)
	p := smallRun().state.Profile()
	var want uint64
	for _, s := range p.Samples {
		want += s.Peak.Bytes
	}
	var sum uint64
	for text := range strings.Lines(folded(t, p, Options{AllFrames: true})) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		qt.Assert(t, qt.IsNotNil(m), qt.Commentf("%q", text))
		qt.Check(t, qt.IsFalse(difference.MatchString(m[1])), qt.Commentf("%q", text))
		qt.Check(t, qt.IsTrue(len(strings.Split(m[1], ";")) >= 4), qt.Commentf("%q", text))
		n, err := strconv.ParseUint(m[2], 10, 64)
		qt.Assert(t, qt.IsNil(err))
		sum += n
	}
	qt.Check(t, qt.Equals(sum, want))
}

func TestStacksWithTheSameNamesAreOneLine(t *testing.T) {
	r := newRun()
	r.alloc(1, event.DRAM, 100, stackOf(ttnn("ttnn::add", 0x10)), 0)
	r.alloc(1, event.DRAM, 11, stackOf(ttnn("ttnn::add", 0x20)), 0)
	qt.Check(t, qt.Equals(folded(t, r.state.Profile(), Options{}), "[unknown] (1);device 0;DRAM;ttnn::add 111\n"))
}
