// Package words writes numbers and lists in sentences.
// It is not part of ttmem's Go library: it changes without notice.
package words

import (
	"fmt"
	"strings"

	"ttmem/tracer/event"
)

// Bytes writes a number of bytes in IEC units with one decimal: "0 B",
// "44.0 KiB", "12.0 GiB". It is at most 10 characters long.
func Bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n) / 1024
	units := "KMGTPE"
	// A value that would be printed as 1024.0 is 1.0 of the next unit.
	for value >= 1023.95 && len(units) > 1 {
		value /= 1024
		units = units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// Count writes "1 buffer" or "2 buffers".
func Count(n uint64, noun string) string { return fmt.Sprint(n, " ", Plural(n, noun)) }

// Plural is a noun after a number.
func Plural(n uint64, noun string) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	case strings.HasSuffix(noun, "ry"):
		return strings.TrimSuffix(noun, "y") + "ies"
	}
	return noun + "s"
}

// Ordinal writes "1st", "2nd" or "11th".
func Ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// listedNames is how many names an error lists.
const listedNames = 20

// Some lists the first names, and the number of others.
func Some(names []string, noun string) string {
	if n := len(names) - listedNames; n > 0 {
		return strings.Join(names[:listedNames], ", ") + " and " + Count(uint64(n), "other "+noun)
	}
	return strings.Join(names, ", ")
}

// Clean makes s one printable line without superfluous blanks.
func Clean(s string) string { return strings.Join(strings.Fields(event.Printable(s)), " ") }
