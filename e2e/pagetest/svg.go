package pagetest

import (
	"cmp"
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode"
)

// The size of a cell of the terminal, and of its text, in pixels.
const (
	cellWidth  = 8.4
	cellHeight = 18
	fontSize   = 14
	margin     = 12
)

// colors are the 8 of a terminal, and what its text and its background have.
var colors = [...]string{"#1d2026", "#e05561", "#8cc265", "#d6a74a", "#5a9ee6", "#c162de", "#42b3c2", "#d7dae0"}

const (
	foreground = "#d7dae0"
	background = "#16181d"
	faint      = "#7b8290"
)

// A look is the style of a cell. Colours are numbers of colors plus 1; 0 is the
// terminal's own.
type look struct {
	fore, back         int
	bold, dim, reverse bool
}

// DrawSVG draws lines of text with the escapes that set styles, as a terminal of so many
// columns shows them.
func DrawSVG(lines []string, columns int) string {
	width, height := 2*margin+cellWidth*float64(columns), 2*margin+cellHeight*len(lines)
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d">`+"\n", width, height, width, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", background)
	fmt.Fprintf(&out, `<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="%d">`+"\n", fontSize)
	for y, line := range lines {
		x := 0
		for _, s := range spans(line) {
			out.WriteString(s.svg(x, y))
			x += len(s.text)
		}
	}
	out.WriteString("</g>\n</svg>\n")
	return out.String()
}

// A span is cells of one style.
type span struct {
	look
	text []rune
}

// spans takes a line apart by its styles, and where blocks begin and end.
func spans(line string) (list []span) {
	var l look
	add := func(r rune) {
		if n := len(list); n > 0 && list[n-1].look == l && (blockOf(list[n-1].text[0]) == nil) == (blockOf(r) == nil) &&
			(blockOf(r) == nil || list[n-1].text[0] == r) {
			list[n-1].text = append(list[n-1].text, r)
			return
		}
		list = append(list, span{l, []rune{r}})
	}
	for line != "" {
		if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
			if parameters, after, ok := strings.Cut(rest, "m"); ok {
				l.set(parameters)
				line = after
				continue
			}
		}
		for i, r := range line {
			if i > 0 {
				line = line[i:]
				break
			}
			if r != '\x1b' {
				add(r)
			}
			if len(string(r)) == len(line) {
				line = ""
			}
		}
	}
	return list
}

// set takes SGR parameters.
func (l *look) set(parameters string) {
	for _, text := range strings.Split(parameters, ";") {
		n, _ := strconv.Atoi(text)
		switch {
		case n == 0:
			*l = look{}
		case n == 1:
			l.bold = true
		case n == 2:
			l.dim = true
		case n == 7:
			l.reverse = true
		case n == 22:
			l.bold, l.dim = false, false
		case n == 27:
			l.reverse = false
		case n >= 30 && n <= 37:
			l.fore = n - 29
		case n == 39:
			l.fore = 0
		case n >= 40 && n <= 47:
			l.back = n - 39
		case n == 49:
			l.back = 0
		}
	}
}

// fills are the colours of text and of what is behind it; "" is nothing.
func (l look) fills() (text, behind string) {
	text = foreground
	if l.fore > 0 {
		text = colors[l.fore-1]
	} else if l.dim {
		text = faint
	}
	if l.back > 0 {
		behind = colors[l.back-1]
	}
	if l.reverse {
		text, behind = cmp.Or(behind, background), text
	}
	return text, behind
}

// A shape is what of a cell a block fills, in parts of its width, and how densely.
type shape struct{ part, opacity float64 }

// blockOf is the shape of a character that is one; nil for text. Fonts leave gaps between
// blocks, so that they are drawn as what they are.
func blockOf(r rune) *shape {
	switch {
	case r == '█':
		return &shape{1, 1}
	case r == '▓':
		return &shape{1, 0.75}
	case r == '▒':
		return &shape{1, 0.5}
	case r >= '▉' && r <= '▏': // seven eighths to one
		return &shape{float64('▏'-r+1) / 8, 1}
	}
	return nil
}

func (r *span) svg(x, y int) string {
	text, behind := r.fills()
	left, top := margin+cellWidth*float64(x), float64(margin+cellHeight*y)
	width := cellWidth * float64(len(r.text))
	out := ""
	if behind != "" {
		out += fmt.Sprintf(`<rect x="%.1f" y="%.0f" width="%.1f" height="%d" fill="%s"/>`+"\n", left, top, width, cellHeight, behind)
	}
	if s := blockOf(r.text[0]); s != nil {
		return out + fmt.Sprintf(`<rect x="%.1f" y="%.0f" width="%.1f" height="%d" fill="%s" opacity="%.2f"/>`+"\n",
			left, top+2, width-cellWidth*(1-s.part), cellHeight-4, text, s.opacity)
	}
	content := strings.TrimRightFunc(string(r.text), unicode.IsSpace)
	if strings.TrimSpace(content) == "" {
		return out
	}
	content = strings.ReplaceAll(content, " ", "\u00a0") // which is not made one of several
	weight := ""
	if r.bold {
		weight = ` font-weight="bold"`
	}
	return out + fmt.Sprintf(`<text x="%.1f" y="%.0f" fill="%s"%s textLength="%.1f">%s</text>`+"\n",
		left, top+fontSize, text, weight, cellWidth*float64(len([]rune(content))), html.EscapeString(content))
}
