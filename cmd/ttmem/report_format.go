package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// formatBytes writes a number of bytes in IEC units with one decimal: "0 B",
// "44.0 KiB", "12.0 GiB". It is at most 10 characters long.
func formatBytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value := float64(n) / 1024
	units := "KMGTPE"
	// What would be printed as 1024.0 is 1.0 of the next unit.
	for value >= 1023.95 && len(units) > 1 {
		value /= 1024
		units = units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}

// formatKiB writes a number of bytes of one core's L1, always in KiB: parts
// that are to be added up and compared have one unit.
func formatKiB(n uint64) string {
	if n == 0 || n >= 10_000<<10 {
		return formatBytes(n)
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/1024)
}

// formatPercent writes part of whole without decimals. It says neither 0% of
// what is there nor 100% of what is not full.
func formatPercent(part, whole uint64) string {
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
		// The capacity is not that of the time of the peak.
		return "over"
	case part < whole:
		return fmt.Sprintf("%d%%", min(99, int(percent+0.5)))
	}
	return fmt.Sprintf("%d%%", int(percent))
}

// formatCount writes "1 buffer" or "2 buffers".
func formatCount(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// formatIDs writes the ids of chips: "chip 3", "chips 0-7, 9".
func formatIDs(ids []int) string {
	ids = slices.Sorted(slices.Values(ids)) // a mesh has them in an order of its own
	if len(ids) == 1 {
		return fmt.Sprintf("chip %d", ids[0])
	}
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case j == i:
			fmt.Fprintf(&b, "%d", ids[i])
		case j == i+1:
			fmt.Fprintf(&b, "%d, %d", ids[i], ids[j])
		default:
			fmt.Fprintf(&b, "%d-%d", ids[i], ids[j])
		}
		i = j + 1
	}
	return "chips " + b.String()
}

// formatSeconds writes a time in ns as "0.012 s", "12.3 s" or "2 h 03 min".
func formatSeconds(ns uint64) string {
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

// plain makes one line of s that does nothing to a terminal: what programs call
// themselves and throw is not to be trusted.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// firstLine is the first line of s that says something.
func firstLine(s string) string {
	// tt-metal puts where it was thrown first, and what happened after "info:"
	if _, info, ok := strings.Cut(s, "\ninfo:\n"); ok {
		s = info
	}
	for line := range strings.Lines(s) {
		if line = plain(line); line != "" {
			return line
		}
	}
	return ""
}

// shortCommand is a command line without the folders of its files.
func shortCommand(command string) string {
	words := strings.Fields(plain(command))
	for i, word := range words {
		if strings.HasPrefix(word, "/") || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
			words[i] = path.Base(word)
		}
	}
	return strings.Join(words, " ")
}

// width is the number of columns that s takes.
func width(s string) int { return utf8.RuneCountInString(s) }

// truncate cuts s to the width and marks the cut with the ellipsis.
func truncate(s string, limit int, ellipsis string) string {
	if width(s) <= limit {
		return s
	}
	if limit <= width(ellipsis) {
		return ""
	}
	return string([]rune(s)[:limit-width(ellipsis)]) + ellipsis
}

// left and right pad s to the width.
func left(s string, n int) string  { return s + strings.Repeat(" ", max(0, n-width(s))) }
func right(s string, n int) string { return strings.Repeat(" ", max(0, n-width(s))) + s }

// wrap breaks s between words into lines of at most limit columns. Longer words
// stay whole.
func wrap(s string, limit int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && width(line)+1+width(word) > limit {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
