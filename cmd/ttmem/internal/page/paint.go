package page

import "strings"

// A Painter colours text and picks characters that the terminal can show.
type Painter struct {
	// Color allows colours; Attributes allows bold, dim and reverse text without them.
	Color, Attributes bool
	// ASCII allows only ASCII.
	ASCII bool
}

// Style is one of the 16 colours of the terminal, which follow the user's theme, or another
// property of text, as an SGR parameter.
type Style string

const (
	NoStyle Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Reverse Style = "7"
	Red     Style = "31"
	BoldRed Style = "1;31"
	Green   Style = "32"
	Yellow  Style = "33"
	Blue    Style = "34"
	Cyan    Style = "36"
	// Styles with a background.
	OnCyan   Style = "30;46"
	OnGreen  Style = "30;42"
	OnRed    Style = "30;41"
	OnYellow Style = "30;43"
)

// withoutColor has the replacements of styles without colours.
var withoutColor = map[Style]Style{
	Bold: Bold, Dim: Dim, Reverse: Reverse, BoldRed: Bold,
	OnCyan: Reverse, OnGreen: Reverse, OnRed: Reverse, OnYellow: Reverse,
}

// Paint puts s into the style, if the terminal supports it.
func (p Painter) Paint(st Style, s string) string {
	visible := withoutColor[st] == Reverse || strings.TrimSpace(s) != ""
	switch {
	case p.Color:
	case p.Attributes:
		st = withoutColor[st]
	default:
		st = NoStyle
	}
	if st == NoStyle || s == "" || !visible {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

// Level is the colour of part in whole: green has room, yellow is at 70 % and
// red at 90 %.
func Level(part, whole uint64) Style {
	switch share := float64(part) / float64(max(1, whole)); {
	case part == 0 || whole == 0:
		return NoStyle
	case share >= 0.9:
		return Red
	case share >= 0.7:
		return Yellow
	}
	return Green
}

// Pick is the Unicode or the ASCII form of something.
func (p Painter) Pick(unicode, ascii string) string {
	if p.ASCII {
		return ascii
	}
	return unicode
}

// Cut cuts s to this many columns and marks the cut.
func (p Painter) Cut(s string, limit int) string {
	return Truncate(s, limit, p.Pick("…", "~"))
}
