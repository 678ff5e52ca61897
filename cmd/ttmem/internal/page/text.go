package page

import (
	"path"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Fold is Wrap, but also cuts words that are longer than a line, such as paths and names of
// templates, between their parts if possible.
func Fold(s string, limit int) (lines []string) {
	limit = max(limit, 20)
	for _, line := range Wrap(s, limit) {
		for Width(line) > limit {
			head := ansi.Truncate(line, limit, "")
			if i := strings.LastIndexAny(head, ":/,"); i > len(head)/2 {
				head = head[:i+1]
			}
			lines = append(lines, head)
			line = line[len(head):]
		}
		lines = append(lines, line)
	}
	return lines
}

// FirstLine is the first line of s that is not blank.
func FirstLine(s string) string {
	// messages of tt-metal begin with the place of the throw; the text follows "info:"
	if _, info, ok := strings.Cut(s, "\ninfo:\n"); ok {
		s = info
	}
	for line := range strings.Lines(s) {
		if line = Clean(line); line != "" {
			return line
		}
	}
	return ""
}

// ShortCommand is a command line without the folders of its files.
func ShortCommand(command string) string {
	words := strings.Fields(Clean(command))
	for i, word := range words {
		if strings.HasPrefix(word, "/") || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
			words[i] = path.Base(word)
		}
	}
	return strings.Join(words, " ")
}

// Width is the number of columns that s takes. Colours take none.
func Width(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return ansi.StringWidth(s)
		}
	}
	return len(s) // the case of nearly all texts
}

// Truncate cuts s to the width and marks the cut with the ellipsis.
func Truncate(s string, limit int, ellipsis string) string {
	if Width(s) <= limit {
		return s
	}
	return ansi.Truncate(s, max(0, limit), ellipsis)
}

// Left pads s on its right to n columns.
func Left(s string, n int) string { return s + Blank(n-Width(s)) }

// Right pads s on its left to n columns.
func Right(s string, n int) string { return Blank(n-Width(s)) + s }

// Blank is n columns of nothing.
func Blank(n int) string { return strings.Repeat(" ", max(0, n)) }

// Wrap breaks s between words into lines of at most limit columns. Longer words stay whole.
func Wrap(s string, limit int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && Width(line)+1+Width(word) > limit {
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
