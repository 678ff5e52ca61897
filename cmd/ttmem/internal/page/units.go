package page

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/words"
)

// BytesApart formats two different numbers of bytes so that they look different.
func BytesApart(a, b uint64) (string, string) {
	x, y := Bytes(a), Bytes(b)
	if x == y && a != b {
		return fmt.Sprintf("%d B", a), fmt.Sprintf("%d B", b)
	}
	return x, y
}

// KiB writes a number of bytes of one core's L1 in KiB, so that readers can add up and compare
// parts. Only a few bytes, which would be 0.0 KiB, have another unit.
func KiB(n uint64) string {
	if 20*n < 1024 || n >= 10_000<<10 {
		return Bytes(n)
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/1024)
}

// Percent writes part of whole without decimals. Only nothing is 0%, and only everything 100%.
func Percent(part, whole uint64) string {
	switch {
	case whole == 0:
		return ""
	case part == 0:
		return "0%"
	}
	percent := 100 * float64(part) / float64(whole)
	switch {
	case percent < 1:
		return "<1%"
	case percent > 999:
		// the capacity is not the one at the time of the peak
		return "over"
	case part < whole:
		return fmt.Sprintf("%d%%", min(99, int(percent+0.5)))
	}
	return fmt.Sprintf("%d%%", int(percent))
}

// Words of messages: see package words.
var (
	Bytes   = words.Bytes
	Count   = words.Count
	Plural  = words.Plural
	Ordinal = words.Ordinal
	Some    = words.Some
	Clean   = words.Clean
)

// Chips writes the ids of chips: "chip 3", "chips 0-7, 9".
func Chips(ids []int) string {
	if len(ids) == 1 {
		return fmt.Sprintf("chip %d", ids[0])
	}
	return "chips " + ChipNumbers(ids)
}

// ChipNumbers writes the ids of chips without the noun: "0-7, 9".
func ChipNumbers(ids []int) string {
	ids = slices.Sorted(slices.Values(ids)) // a mesh has its own order
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, fmt.Sprint(ids[i]))
		case 1:
			parts = append(parts, fmt.Sprint(ids[i]), fmt.Sprint(ids[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// ShortChips writes the ids of chips in about so many columns, as "0-7,9". If they are too long, it
// writes the first ones and the number of others: "0,2,4 +13".
func ShortChips(ids []int, columns int) string {
	text := strings.ReplaceAll(ChipNumbers(ids), ", ", ",")
	parts := strings.Split(text, ",")
	for n := len(parts) - 1; n > 0 && len(text) > columns; n-- {
		first := strings.Join(parts[:n], ",")
		shown, _ := ParseChips(first)
		text = fmt.Sprintf("%s +%d", first, len(ids)-len(shown))
	}
	return text
}

// NotAChip explains how to write chips.
const NotAChip = "not a chip: give one such as 3, or several such as 0-7,12"

// ParseChips reads what ChipNumbers writes.
func ParseChips(text string) (ids []int, err error) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 0 || b < a || b-a > 10_000 {
			return nil, errors.New(NotAChip)
		}
		for id := a; id <= b; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// EachChip is Chips for figures of each chip.
func EachChip(ids []int) string {
	if len(ids) > 1 {
		return Chips(ids) + " (each)"
	}
	return Chips(ids)
}

// Seconds writes a time in ns as "0.012 s", "12.3 s" or "2 h 03 min".
func Seconds(ns uint64) string {
	seconds := float64(ns) / 1e9
	switch {
	case seconds < 1:
		return fmt.Sprintf("%.3f s", seconds)
	case seconds < 120:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%d min %02d s", int(seconds)/60, int(seconds)%60)
	}
	return fmt.Sprintf("%d h %02d min", int(seconds)/3600, int(seconds)/60%60)
}

// Factor writes how often a part is in a whole: "1.05x", "32x", "1024x".
func Factor(whole, part uint64) string {
	times := float64(whole) / float64(part)
	if times >= 100 {
		return fmt.Sprintf("%.0fx", times)
	}
	return fmt.Sprintf("%.3gx", times)
}

// Grouped writes a number with a comma after the thousands.
func Grouped[N int | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Duration writes a time in ns that may be short, as "12 ns", "3.4 us" or "5.6 ms".
func Duration(ns uint64) string {
	switch {
	case ns < 1000:
		return fmt.Sprintf("%d ns", ns)
	case ns < 1000_000:
		return fmt.Sprintf("%.1f us", float64(ns)/1e3)
	case ns < 1000_000_000:
		return fmt.Sprintf("%.1f ms", float64(ns)/1e6)
	}
	return Seconds(ns)
}

// PIDs writes the ids of processes: "7, 42".
func PIDs(pids []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ", "), "[]")
}

// Moment writes a time in ns to the millisecond, unless it is long.
func Moment(ns uint64) string {
	if ns < 120e9 {
		return fmt.Sprintf("%.3f s", float64(ns)/1e9)
	}
	return Seconds(ns)
}

// Newest returns the last n, or all if n is 0, and the number of those left out.
func Newest[T any](list []T, n int) (newest []T, omitted int) {
	if n > 0 && len(list) > n {
		return list[len(list)-n:], len(list) - n
	}
	return list, 0
}

// First returns the first n, or all if n is 0, and the number of those left out.
func First[T any](list []T, n int) (first []T, omitted int) {
	if n > 0 && len(list) > n {
		return list[:n], len(list) - n
	}
	return list, 0
}

// Each returns the results of f for a list.
func Each[T, R any](list []T, f func(T) R) (made []R) {
	for _, one := range list {
		made = append(made, f(one))
	}
	return made
}

// Alike divides a list into groups of equal values, in the order of the first of each.
func Alike[S ~[]T, T any](list S, same func(a, b T) bool) (groups []S) {
	for _, one := range list {
		at := slices.IndexFunc(groups, func(g S) bool { return same(g[0], one) })
		if at < 0 {
			at = len(groups)
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], one)
	}
	return groups
}

// Growing says how much grew at call sites, in too few buffers to judge. It follows the word growing.
func Growing(sum memory.Amount, sites int) string {
	return fmt.Sprintf(", %s: %s (%s) from %s", TooFew(sites), Count(sum.Count, "buffer"), Bytes(sum.Bytes), Count(uint64(sites), "call site"))
}

// TooFew says that so many growing call sites have too few buffers to judge.
func TooFew(sites int) string {
	if sites > 1 {
		return "too few of each to judge"
	}
	return "too few to judge"
}
