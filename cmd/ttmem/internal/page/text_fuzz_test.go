package page

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
)

// FuzzText: any text becomes one line that a terminal only shows, no wider than it says.
func FuzzText(f *testing.F) {
	for _, text := range []string{
		"model.py:12 forward", "a\x1b[2J\u009b31m\u202e\u2028\x00b", "日本語テキスト", "e\u0301\u200d👩‍💻", "\xff\xfe", "\t a \n\n info:\nb",
	} {
		f.Add(text, 20)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(1, min(limit, 500))
		clean := Clean(text)
		fuzztest.Printable(t, clean)
		qt.Check(t, qt.IsFalse(strings.Contains(clean, "\n")))
		qt.Check(t, qt.Equals(Clean(clean), clean))
		qt.Check(t, qt.IsTrue(Width(Truncate(clean, limit, "…")) <= max(limit, 1)))
		fuzztest.Bounded(t, len(text), 10_000, func() {
			for _, line := range Fold(clean, limit) {
				qt.Check(t, qt.IsTrue(Width(line) <= max(limit, 20)), qt.Commentf("%q", line))
			}
		})
		fuzztest.Printable(t, FirstLine(text)+ShortCommand(text)+event.Printable(text))
	})
}
