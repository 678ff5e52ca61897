// Package words writes numbers and lists in sentences. It is not part of the library: it changes without notice.
package words

import (
	"fmt"
	"strings"

	"ttmem/tracer/event"
)

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
