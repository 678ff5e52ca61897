package event

import (
	"strings"
	"unicode"
)

// printable reports whether a character shows itself, and is nothing that a terminal, a browser
// or a text editor acts on: controls, DEL, the C1 controls, line separators, marks of direction
// and the like.
func printable(r rune) bool { return unicode.IsPrint(r) }

// Printable is s as one line of printable characters: names and messages come from traced
// programs, which are not trusted. Everything that writes them as text uses it.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !printable(r):
			return -1
		}
		return r
	}, s)
}
