package top

import (
	"fmt"
	"strconv"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
)

// formatCount writes a number in at most 7 columns: "763", "12,345", "1.0M".
func formatCount(n uint64) string {
	if n < 1_000_000 {
		return page.Grouped(n)
	}
	return formatShort(n)
}

// count is page.Count with commas in large numbers.
func count(n uint64, noun string) string { return page.Grouped(n) + " " + page.Plural(n, noun) }

// A format writes a number of bytes.
type format func(uint64) string

// span writes the least and the most of several chips, in one unit if possible.
func (f format) span(least, most uint64) string {
	a, b := f(least), f(most)
	if a == b {
		return a
	}
	number, unit, _ := strings.Cut(a, " ")
	if strings.HasSuffix(b, " "+unit) {
		a = number
	}
	return a + "-" + b
}

// formatShort writes a number in at most 5 characters: "999", "12.3k", "4.5M".
func formatShort(n uint64) string {
	switch {
	case n < 10_000:
		return strconv.FormatUint(n, 10)
	case n < 100_000:
		return fmt.Sprintf("%.1fk", float64(n/100)/10)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1fM", float64(n/100_000)/10)
	}
	return fmt.Sprintf("%.1fG", float64(n/100_000_000)/10)
}

// formatAge writes a time in ns in at most 6 characters: "12 s", "5 min", "3.1 h",
// "12 d".
func formatAge(ns uint64) string {
	seconds := float64(ns) / 1e9
	switch {
	case seconds < 10:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 100:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	}
	return fmt.Sprintf("%.0f d", seconds/86400)
}

// formatIDs writes the ids of chips compactly, as they can be typed: "3", "0-7,9".
func formatIDs(ids []int) string { return strings.ReplaceAll(page.ChipNumbers(ids), ", ", ",") }
