package page

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestFormatBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 45056: "44.0 KiB",
		1<<20 - 1: "1.0 MiB", 1<<20 - 60: "1023.9 KiB", 12 * 1072693184: "12.0 GiB", 1 << 40: "1.0 TiB",
		1 << 50: "1.0 PiB", 1<<64 - 1: "16.0 EiB",
	} {
		qt.Check(t, qt.Equals(Bytes(n), want), qt.Commentf("%d", n))
		qt.Check(t, qt.IsTrue(len(Bytes(n)) <= 10))
	}
}

func TestL1IsAlwaysInKiB(t *testing.T) {
	qt.Check(t, qt.Equals(KiB(0), "0 B"))
	qt.Check(t, qt.Equals(KiB(51), "51 B"))
	qt.Check(t, qt.Equals(KiB(52), "0.1 KiB"))
	qt.Check(t, qt.Equals(KiB(512), "0.5 KiB"))
	qt.Check(t, qt.Equals(KiB(1393312), "1360.7 KiB"))
	qt.Check(t, qt.Equals(KiB(1<<40), "1.0 TiB"))
}

func TestFormatPercent(t *testing.T) {
	for _, test := range []struct {
		part, whole uint64
		want        string
	}{
		{0, 100, "0%"}, {1, 1000, "<1%"}, {1, 100, "1%"}, {666, 1000, "67%"}, {9999, 10000, "99%"},
		{100, 100, "100%"}, {104, 100, "104%"}, {1 << 60, 1, "over"}, {5, 0, ""},
	} {
		qt.Check(t, qt.Equals(Percent(test.part, test.whole), test.want))
	}
}

func TestFormatSeconds(t *testing.T) {
	for ns, want := range map[uint64]string{
		12_000_000: "0.012 s", 12_345_000_000: "12.3 s", 125 * 1e9: "2 min 05 s", 7385 * 1e9: "2 h 03 min",
	} {
		qt.Check(t, qt.Equals(Seconds(ns), want))
	}
}

func TestWhatProgramsSayDoesNothingToTheTerminal(t *testing.T) {
	qt.Check(t, qt.Equals(Clean("a\x1b[31m\n\tb\u200bc\x07"), "a[31m bc"))
	qt.Check(t, qt.Equals(ShortCommand("/usr/bin/python3 ../x/y.py --out=/a/b"), "python3 y.py --out=/a/b"))
}

func TestWideCharactersTakeTwoColumns(t *testing.T) {
	qt.Check(t, qt.Equals(Width("模型.py\x1b[1m:3\x1b[0m"), 9))
	qt.Check(t, qt.Equals(Truncate("模型模型", 6, "…"), "模型…"))
	for _, line := range Fold(strings.Repeat("模型", 30), 20) {
		qt.Check(t, qt.IsTrue(Width(line) <= 20))
	}
	qt.Check(t, qt.Equals(Columns{8, -6, 0}.Line("12 B", "DRAM", "hidden"), "    12 BDRAM  "))
}

func TestNounsAfterNumbers(t *testing.T) {
	qt.Check(t, qt.Equals(Count(1, "process"), "1 process"))
	qt.Check(t, qt.Equals(Count(2, "process"), "2 processes"))
	qt.Check(t, qt.Equals(Count(0, "buffer"), "0 buffers"))
}

func TestChipsAreShort(t *testing.T) {
	odd := []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}
	for _, test := range []struct {
		ids     []int
		columns int
		want    string
	}{
		{[]int{3}, 0, "3"},
		{[]int{0, 1, 2, 3, 9}, 12, "0-3,9"},
		{odd[:4], 12, "1,3,5,7"},
		{odd, 12, "1,3,5,7 +12"},
		{odd, 9, "1,3,5 +13"},
		{append([]int{40, 41, 42}, odd...), 9, "1,3,5 +16"},
		{odd, 1, "1 +15"},
		{odd, 100, "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31"},
	} {
		qt.Check(t, qt.Equals(ShortChips(test.ids, test.columns), test.want))
	}
}
