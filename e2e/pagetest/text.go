package pagetest

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-quicktest/qt"
)

// Text is what a page writes.
func Text[Layout any](t testing.TB, p interface {
	WriteText(io.Writer, Layout) error
}, layout Layout) string {
	t.Helper()
	var b strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteText(&b, layout)))
	return b.String()
}

// CheckWidth checks that no line of a text is wider than so many columns.
func CheckWidth(t testing.TB, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(Colors.ReplaceAllString(text, "")) {
		line = strings.TrimRight(line, "\r\n")
		qt.Check(t, qt.IsTrue(ansi.StringWidth(line) <= columns), qt.Commentf("%d of %d columns: %s", ansi.StringWidth(line), columns, line))
	}
}

// Colors are the escape sequences of colours.
var Colors = regexp.MustCompile("\x1b\\[[0-9;]*m")
